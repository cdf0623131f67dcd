package pmltest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func commCases() claims {
	return claims{
		kittest.Of("MessagesWaitForTheirCommunicator", 2, early),
		kittest.Of("OfferToAMissingCommunicatorIsWithdrawn", 2, withdrawEarly),
		kittest.Of("BothSidesMaySendFirst", 2, bothFirst),
		kittest.Of("LateMessagesAreDroppedAndTheirSendersComplete", 2, late),
		kittest.Of("CloseLetsPendingOperationsComplete", 2, closePending),
		kittest.Of("CommunicatorsDoNotMix", 3, manyComms),
	}
}

// halfMade is a communicator that exists at rank 0 and not yet at rank 1.
type halfMade struct {
	f       *fixture
	id      cid.Extended
	offers  []*cid.Offer
	decided cid.Decision
	comms   [2]pml.Comm
}

// half makes rank 0's end under the fixture's policy; rank 1 has made its offer
// and does not know the decision yet.
func (f *fixture) half() (*halfMade, error) {
	h := &halfMade{f: f, id: f.NextID()}
	var payloads [][]byte
	for _, p := range f.Procs {
		o := p.Module.CIDs().OfferFor(f.policy, len(f.Procs), 1<<15)
		h.offers, payloads = append(h.offers, o), append(payloads, o.Bytes())
	}
	var err error
	if h.decided, err = cid.Decide(payloads); err != nil {
		return nil, err
	}
	return h, h.finish(0)
}

// finish makes a rank's end.
func (h *halfMade) finish(rank int) (err error) {
	h.comms[rank], err = h.f.join(rank, h.id, h.offers[rank], h.decided)
	return err
}

// early sends before the receiver has the communicator.
func early(ctx context.Context, f *fixture) error {
	for round := range 20 {
		h, err := f.half()
		if err != nil {
			return err
		}
		var reqs []pending
		sizes := []int{0, 10, 100000, 20, 3000}
		for i, n := range sizes {
			r, err := isend(h.comms[0], 1, i, data(i, n), pml.Standard)
			if err != nil {
				return err
			}
			reqs = append(reqs, r)
		}
		err = until(ctx, "messages at a process without the communicator", func() bool {
			return f.Procs[1].Module.Inspect().Parked == f.parks(len(sizes))
		})
		if err != nil {
			return err
		}
		if err := h.finish(1); err != nil {
			return err
		}
		for i, n := range sizes {
			if err := want(ctx, h.comms[1], 0, pml.AnyTag, data(i, n), 0, i); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		for _, r := range reqs {
			if _, err := r.wait(ctx); err != nil {
				return err
			}
		}
		if err := send(ctx, h.comms[1], 0, 1, data(1, 4)); err != nil {
			return err
		}
		if err := want(ctx, h.comms[0], 1, 1, data(1, 4), 1, 1); err != nil {
			return err
		}
		if n := f.Procs[1].Module.Inspect().Parked; n != 0 {
			return fmt.Errorf("round %d: %d messages are still parked", round, n)
		}
		h.comms[0].Close()
		h.comms[1].Close()
	}
	return nil
}

// parks returns how many of so many messages for a communicator that is not there
// yet wait at its process. A network keeps them, and a sender who does not know the
// id only asks for it.
func (f *fixture) parks(messages int) int {
	switch {
	case !f.networked():
		return messages
	case f.policy == cid.PolicyLazy:
		return 1
	}
	return 0
}

func withdrawEarly(ctx context.Context, f *fixture) error {
	h, err := f.half()
	if err != nil {
		return err
	}
	stop, cancel := context.WithCancelCause(ctx)
	result := make(chan error, 1)
	go func() { result <- h.comms[0].Send(stop, buffer(data(0, 100000)), 1, 1, p2p, pml.Standard) }()
	err = until(ctx, "the offer", func() bool { return f.Procs[1].Module.Inspect().Parked == f.parks(1) })
	cancel(errEnough)
	if err != nil {
		return err
	}
	sendErr := <-result
	if !errors.Is(sendErr, errEnough) && (sendErr != nil || !f.networked()) {
		return fmt.Errorf("send whose context ended: %v", sendErr)
	}
	next, err := isend(h.comms[0], 1, 1, data(5, 30), pml.Standard)
	if err != nil {
		return err
	}
	if err := h.finish(1); err != nil {
		return err
	}
	err = completes(ctx, sendErr, func() error { return want(ctx, h.comms[1], 0, 1, data(0, 100000), 0, 1) })
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if err := want(ctx, h.comms[1], pml.AnySource, pml.AnyTag, data(5, 30), 0, 1); err != nil {
		return err
	}
	_, err = next.wait(ctx)
	return err
}

// bothFirst has both sides' first messages cross, on fresh communicators.
func bothFirst(ctx context.Context, f *fixture) error {
	for round := range 100 {
		comms, err := f.Comm(f.policy)
		if err != nil {
			return err
		}
		err = Each(comms, func(rank int, c pml.Comm) error {
			for i := range 3 {
				s, err := isend(c, 1-rank, i, data(rank+i, 50), pml.Standard)
				if err != nil {
					return err
				}
				if err := want(ctx, c, pml.AnySource, i, data(1-rank+i, 50), 1-rank, i); err != nil {
					return err
				}
				if _, err := s.wait(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for _, c := range comms {
			c.Close()
		}
	}
	return nil
}

// dropped counts what a rank has dropped. Where a network matches, others hear that
// it has closed a communicator, and drop what they would send there.
func (f *fixture) dropped(rank int) (n uint64) {
	for _, p := range f.Procs {
		if p.Rank != rank && !f.networked() {
			continue
		}
		for _, s := range p.Module.Stats() {
			n += s.Dropped
		}
	}
	return n
}

// late sends to a communicator that the receiver has closed, with and without
// having met it there before.
func late(ctx context.Context, f *fixture) error {
	for _, met := range []bool{true, false} {
		comms, err := f.Comm(f.policy)
		if err != nil {
			return err
		}
		if met {
			err := Each(comms, func(rank int, c pml.Comm) error { return meet(ctx, c, 1-rank) })
			if err != nil {
				return err
			}
		}
		// One that is there when it closes, and two that come later.
		before := f.dropped(1)
		waiting := f.unexpected(1)
		if err := send(ctx, comms[0], 1, 1, data(0, 10)); err != nil {
			return err
		}
		if err := until(ctx, "arrival", func() bool { return f.unexpected(1) == waiting+1 }); err != nil {
			return err
		}
		comms[1].Close()
		for _, n := range []int{10, 100000} {
			if err := send(ctx, comms[0], 1, 1, data(0, n)); err != nil {
				return err
			}
		}
		if err := comms[0].Send(ctx, buffer(data(0, 5)), 1, 1, p2p, pml.Synchronous); err != nil {
			return err
		}
		err = until(ctx, "four dropped messages", func() bool { return f.dropped(1)-before == 4 })
		if err != nil {
			return fmt.Errorf("%d are dropped: %w", f.dropped(1)-before, err)
		}
		comms[0].Close()
		// A new communicator meets none of them.
		next, err := f.Comm(f.policy)
		if err != nil {
			return err
		}
		if err := send(ctx, next[0], 1, 1, data(1, 7)); err != nil {
			return err
		}
		if err := want(ctx, next[1], pml.AnySource, pml.AnyTag, data(1, 7), 0, 1); err != nil {
			return err
		}
	}
	return nil
}

func closePending(ctx context.Context, f *fixture) error {
	for _, n := range []int{10, 100000} {
		comms, err := f.Comm(f.policy)
		if err != nil {
			return err
		}
		buf := make([]byte, n)
		r, err := irecv(comms[1], 0, 1, buf)
		if err != nil {
			return err
		}
		comms[1].Close()
		comms[1].Close()
		s, err := isend(comms[0], 1, 1, data(n, n), pml.Synchronous)
		if err != nil {
			return err
		}
		comms[0].Close()
		st, err := r.wait(ctx)
		if err == nil {
			err = compare(st, buf, data(n, n), 0, 1)
		}
		if err != nil {
			return err
		}
		if _, err := s.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// manyComms uses many communicators of the same processes at once, and again
// after some have closed.
func manyComms(ctx context.Context, f *fixture) error {
	const many = 30
	for round := range 3 {
		all := make([][]pml.Comm, many)
		for i := range all {
			var err error
			if all[i], err = f.Comm(f.policy); err != nil {
				return err
			}
		}
		err := Each(f.comms, func(rank int, _ pml.Comm) error {
			to, from := (rank+1)%3, (rank+2)%3
			for i := range all {
				if err := send(ctx, all[i][rank], to, 1, data(i+rank, 40)); err != nil {
					return err
				}
			}
			for i := range all {
				k := many - 1 - i
				if err := want(ctx, all[k][rank], pml.AnySource, pml.AnyTag, data(k+from, 40), from, 1); err != nil {
					return fmt.Errorf("communicator %d: %w", k, err)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for i := range all {
			for _, c := range all[i] {
				c.Close()
			}
		}
	}
	return nil
}
