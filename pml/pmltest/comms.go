package pmltest

import (
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func commCases() claims {
	return claims{
		kittest.New("MessagesWaitForTheirCommunicator", 2, (*fixture).early),
		kittest.New("OfferToAMissingCommunicatorIsWithdrawn", 2, (*fixture).withdrawEarly),
		kittest.New("BothSidesMaySendFirst", 2, (*fixture).bothFirst),
		kittest.New("LateMessagesAreDroppedAndTheirSendersComplete", 2, (*fixture).late),
		kittest.New("CloseLetsPendingOperationsComplete", 2, (*fixture).closePending),
	}
}

// halfMade is a communicator that exists at rank 0 only.
type halfMade struct {
	f          *fixture
	commID     cid.Extended
	candidates []*cid.Candidates
	decided    cid.Decision
	comms      [2]pml.Comm
}

// half creates rank 0's handle under the fixture's policy. Rank 1 has proposed its candidate ids and does not
// know the decision yet.
func (f *fixture) half() *halfMade {
	h := &halfMade{f: f, commID: f.NextID()}
	var err error
	h.candidates, h.decided, err = f.decide(f.cidPolicy)
	f.Check(err)
	h.finish(0)
	return h
}

// finish creates a rank's handle.
func (h *halfMade) finish(rank int) {
	var err error
	h.comms[rank], err = h.f.join(rank, h.commID, h.candidates[rank], h.decided)
	h.f.Check(err)
}

func (f *fixture) earlyArrivals(rank int) int { return f.inspection(rank).EarlyArrivals }

// early sends before the receiver has the communicator.
func (f *fixture) early() {
	for range 20 {
		h := f.half()
		var sends []pending
		sizes := []int{0, 10, 100000, 20, 3000}
		for i, n := range sizes {
			sends = append(sends, f.isend(h.comms[0], 1, i, data(i, n), pml.Standard))
		}
		f.waitEarly(len(sizes))
		h.finish(1)
		for i, n := range sizes {
			f.want(h.comms[1], 0, pml.AnyTag, data(i, n), 0, i)
		}
		f.wait(sends...)
		f.send(h.comms[1], 0, 1, data(1, 4))
		f.want(h.comms[0], 1, 1, data(1, 4), 1, 1)
		if n := f.earlyArrivals(1); n != 0 {
			f.Fatalf("%d messages are still kept", n)
		}
		h.comms[0].Close()
		h.comms[1].Close()
	}
}

// waitEarly waits until n messages have arrived at rank 1, which has no communicator for them yet. A network may
// keep them, and a sender without the id may only have requested it.
func (f *fixture) waitEarly(messages int) {
	f.Until("messages at a process without the communicator", func() bool {
		switch {
		case f.caps().Arrivals:
			return f.earlyArrivals(1) == messages
		case f.cidPolicy == cid.PolicyLazy:
			return f.earlyArrivals(1) > 0
		}
		return true
	})
}

func (f *fixture) withdrawEarly() {
	h := f.half()
	b := data(0, 100000)
	s := f.limited(h.comms[0], 1, b, pml.Standard)
	f.waitEarly(1)
	err := s.stop()
	if err != nil || f.caps().Withdraw {
		f.Is("send whose context ended", err, errEnough)
	}
	next := f.isend(h.comms[0], 1, 1, data(5, 30), pml.Standard)
	h.finish(1)
	f.receiveOrWithdrawn(err, func() { f.want(h.comms[1], 0, 1, b, 0, 1) })
	f.want(h.comms[1], pml.AnySource, pml.AnyTag, data(5, 30), 0, 1)
	f.wait(next)
}

// bothFirst sends the first messages of both sides at the same time, on new communicators.
func (f *fixture) bothFirst() {
	for range 100 {
		comms := f.comm()
		f.each(comms, func(rank int, c pml.Comm) {
			for i := range 3 {
				s := f.isend(c, 1-rank, i, data(rank+i, 50), pml.Standard)
				f.want(c, pml.AnySource, i, data(1-rank+i, 50), 1-rank, i)
				f.wait(s)
			}
		})
		for _, c := range comms {
			c.Close()
		}
	}
}

// dropped counts the dropped messages of a rank. If a network matches, other ranks are notified of the close,
// and drop later sends.
func (f *fixture) dropped(rank int) (n uint64) {
	for _, p := range f.Procs {
		if p.Rank != rank && f.caps().Arrivals {
			continue
		}
		for _, s := range p.Module.Stats() {
			n += s.Dropped
		}
	}
	return n
}

// late sends to a communicator that the receiver has closed, with and without earlier messages
// between the two.
func (f *fixture) late() {
	for _, met := range []bool{true, false} {
		comms := f.comm()
		if met {
			f.connectAll(comms)
		}
		// One message arrives before the close, and three after it.
		before := f.dropped(1)
		f.send(comms[0], 1, 1, data(0, 10))
		f.awaitArrival(comms[1], 0, 1)
		comms[1].Close()
		f.send(comms[0], 1, 1, data(0, 10))
		f.send(comms[0], 1, 1, data(0, 100000))
		f.Is("synchronous send to a closed communicator", comms[0].Send(f.Context(), buffer(data(0, 5)), 1, 1, p2p, pml.Synchronous), framework.ErrCommClosed)
		f.Until("four dropped messages", func() bool { return f.dropped(1)-before == 4 })
		comms[0].Close()
		// A new communicator receives none of them.
		next := f.comm()
		f.send(next[0], 1, 1, data(1, 7))
		f.want(next[1], pml.AnySource, pml.AnyTag, data(1, 7), 0, 1)
	}
}

func (f *fixture) closePending() {
	for _, n := range []int{10, 100000} {
		comms := f.comm()
		buf := make([]byte, n)
		r := f.irecv(comms[1], 0, 1, buf)
		comms[1].Close()
		comms[1].Close()
		s := f.isend(comms[0], 1, 1, data(n, n), pml.Synchronous)
		comms[0].Close()
		f.got(r, buf, data(n, n), 0, 1)
		f.wait(s)
	}
}
