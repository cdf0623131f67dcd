package pmltest

import (
	"context"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func cancelCases() claims {
	return claims{
		kittest.New("ContextEndsAnUnmatchedReceiveOnly", 2, (*fixture).receiveContext),
		kittest.New("WithdrawnOfferNeverArrives", 2, (*fixture).withdrawOffered),
		kittest.New("WithdrawnQueuedSendNeverArrives", 2, (*fixture).withdrawQueued),
		kittest.New("MatchedSendIsNotWithdrawn", 2, (*fixture).withdrawMatched),
		kittest.New("SendOfAClaimedMessageEndsWithItsContext", 2, (*fixture).withdrawClaimed),
	}
}

func (f *fixture) receiveContext() {
	c := f.commsByRank[1]
	stop, cancel := context.WithCancelCause(f.Context())
	ended := f.Go(func() {
		_, err := c.Recv(stop, buffer(make([]byte, 8)), 0, 1, p2p)
		f.Is("receive whose context ended", err, errEnough)
	})
	f.Until("posting", func() bool { return f.posted(1) == 1 })
	cancel(errEnough)
	ended()
	_, err := c.Probe(stop, 0, 1, p2p)
	f.Is("probe whose context has ended", err, errEnough)
	if n := f.posted(1); n != 0 {
		f.Fatalf("receives that are still posted: %d", n)
	}
	f.send(f.commsByRank[0], 1, 1, data(1, 8))
	f.want(c, 0, 1, data(1, 8), 0, 1)
	// A receive that has matched gets its message, although its context ends.
	b := data(2, 1<<20)
	s := f.isend(f.commsByRank[0], 1, 2, b, pml.Standard)
	f.awaitArrival(c, 0, 2)
	stop, cancel = context.WithCancelCause(f.Context())
	defer cancel(nil)
	release := f.stopProgress(0) // It cannot answer.
	defer release()
	ended = f.Go(func() {
		got := make([]byte, len(b))
		st, err := c.Recv(stop, buffer(got), 0, 2, p2p)
		f.compare(st, err, got, b, 0, 2)
	})
	f.Until("match", func() bool { return f.hasNoMessage(c) })
	cancel(errEnough)
	release()
	ended()
	f.wait(s)
}

// posted counts the posted receives of a rank.
func (f *fixture) posted(rank int) (n int) {
	for _, c := range f.inspection(rank).Comms {
		n += len(c.Posted)
	}
	return n
}

func (f *fixture) withdrawOffered() {
	for mode, n := range map[pml.Mode]int{pml.Standard: 1 << 20, pml.Synchronous: 3} {
		s := f.limited(f.commsByRank[0], 1, data(0, n), mode)
		f.awaitArrival(f.commsByRank[1], 0, 1)
		err := s.stop()
		if f.caps().Withdraw {
			f.Is("send whose context ended", err, errEnough)
		} else {
			f.receiveOrWithdrawn(err, func() { f.want(f.commsByRank[1], 0, 1, data(0, n), 0, 1) })
		}
		if !f.hasNoMessage(f.commsByRank[1]) {
			f.Fatalf("the message is still there")
		}
		for k := range 3 { // The order is kept.
			f.send(f.commsByRank[0], 1, 1, data(k, 20))
		}
		for k := range 3 {
			f.want(f.commsByRank[1], pml.AnySource, pml.AnyTag, data(k, 20), 0, 1)
		}
	}
}

// withdrawQueued cancels sends that have not left.
func (f *fixture) withdrawQueued() {
	if f.caps().Arrivals {
		f.connectAll(f.commsByRank)
	} else if f.cidPolicy != cid.PolicyLazy {
		f.Skipf("a network takes all there is")
	}
	release := f.stopProgress(1)
	defer release()
	const size = 1000
	var sends []pending
	for len(sends) < 1<<20 {
		sends = append(sends, f.isend(f.commsByRank[0], 1, 2, data(len(sends), size), pml.Standard))
		if len(sends)%64 == 0 && f.sends(0, "queued") > 20 {
			break
		}
	}
	first := len(sends) - f.sends(0, "queued")
	canceled := map[int]bool{}
	for _, k := range []int{first, first + 7, len(sends) - 1, first + 8} { // Head, middle and tail.
		f.Check(sends[k].r.Cancel(sends[k].gen))
		st, err := sends[k].wait(f.Context())
		f.Check(err)
		canceled[k] = st.Canceled // Otherwise it has left, because a path had room.
	}
	if !canceled[len(sends)-1] {
		f.Fatalf("the last of %d sends, of which %d were queued, was not withdrawn", len(sends), len(sends)-first)
	}
	sends = append(sends, f.isend(f.commsByRank[0], 1, 2, data(len(sends), size), pml.Standard))
	release()
	// Tens of thousands may have arrived without their payload. Received one by one, each would wait for its
	// own answer.
	var left []int
	for k := range sends {
		if !canceled[k] {
			left = append(left, k)
		}
	}
	for some := range slices.Chunk(left, 64) {
		got := make([]byte, len(some)*size)
		var posted []pending
		for i := range some {
			posted = append(posted, f.irecv(f.commsByRank[1], 0, 2, got[i*size:][:size]))
		}
		for i, k := range some {
			f.got(posted[i], got[i*size:][:size], data(k, size), 0, 2)
		}
	}
	for k, s := range sends {
		if _, waited := canceled[k]; waited {
			continue
		}
		if st, err := s.wait(f.Context()); err != nil || st.Canceled {
			f.Fatalf("send %d: %+v %v", k, st, err)
		}
	}
}

// withdrawMatched ends the context of a send with a matched receive. The send completes or is withdrawn, and
// both sides agree on the outcome.
func (f *fixture) withdrawMatched() {
	const size = 100000
	for i := range 100 {
		b, got := data(i, size), make([]byte, size)
		s := f.limited(f.commsByRank[0], 1, b, pml.Standard)
		r := f.irecv(f.commsByRank[1], 0, 1, got)
		if f.receiveOrWithdrawn(s.stop(), func() { f.got(r, got, b, 0, 1) }) {
			// It was withdrawn, so that the receive matches the next.
			b = data(i+1, size)
			f.send(f.commsByRank[0], 1, 1, b)
			f.got(r, got, b, 0, 1)
		}
	}
}

// withdrawClaimed checks that a send ends with its context even if its message is claimed and may never be
// received.
func (f *fixture) withdrawClaimed() {
	b := data(1, 100)
	s := f.limited(f.commsByRank[0], 5, b, pml.Synchronous)
	claimed, _, err := f.commsByRank[1].Mprobe(f.Context(), 0, 5, p2p)
	f.Check(err)
	err = s.stop()
	f.Is("the send of a claimed message", err, errEnough)
	if f.receiveOrWithdrawn(err, func() {
		got := make([]byte, len(b))
		st, err := claimed.Recv(f.Context(), buffer(got))
		f.compare(st, err, got, b, 0, 5)
	}) {
		f.Fatalf("a message that is claimed was withdrawn")
	}
}
