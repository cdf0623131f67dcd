package pmltest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func cancelCases() claims {
	return claims{
		kittest.Of("CanceledReceiveTakesNoMessage", 2, cancelReceive),
		kittest.Of("ContextEndsAnUnmatchedReceiveOnly", 2, receiveContext),
		kittest.Of("WithdrawnOfferNeverArrives", 2, withdrawOffered),
		kittest.Of("WithdrawnQueuedSendNeverArrives", 2, withdrawQueued),
		kittest.Of("MatchedSendIsNotWithdrawn", 2, withdrawMatched),
		kittest.Of("SendOfAClaimedMessageEndsWithItsContext", 2, withdrawClaimed),
	}
}

var errEnough = errors.New("the test has had enough")

func cancelReceive(ctx context.Context, f *fixture) error {
	c := f.comms[1]
	for _, src := range []int{0, pml.AnySource} {
		buf := make([]byte, 10)
		r, err := irecv(c, src, 1, buf)
		if err != nil {
			return err
		}
		if err := r.r.Cancel(r.gen); err != nil {
			return err
		}
		if st, err := r.wait(ctx); err != nil || !st.Canceled || st.Source != pml.AnySource || st.Bytes != 0 {
			return fmt.Errorf("canceled receive: %+v %v", st, err)
		}
		b := data(src, 10)
		if err := send(ctx, f.comms[0], 1, 1, b); err != nil {
			return err
		}
		if err := want(ctx, c, src, 1, b, 0, 1); err != nil {
			return err
		}
		// After it has matched, cancel changes nothing.
		if r, err = irecv(c, src, 1, buf); err != nil {
			return err
		}
		if err := send(ctx, f.comms[0], 1, 1, b); err != nil {
			return err
		}
		err = until(ctx, "completion", func() bool {
			_, done, err := r.r.Peek(r.gen)
			return done || err != nil
		})
		if err != nil {
			return err
		}
		if err := r.r.Cancel(r.gen); err != nil {
			return err
		}
		st, err := r.wait(ctx)
		if err == nil {
			err = compare(st, buf, b, 0, 1)
		}
		if err != nil {
			return fmt.Errorf("cancel of a complete receive: %w", err)
		}
	}
	return nil
}

func receiveContext(ctx context.Context, f *fixture) error {
	c := f.comms[1]
	stop, cancel := context.WithCancelCause(ctx)
	result := make(chan error, 1)
	go func() {
		_, err := c.Recv(stop, buffer(make([]byte, 8)), 0, 1, p2p)
		result <- err
	}()
	err := until(ctx, "posting", func() bool { return f.posted(1) == 1 })
	if err != nil {
		return err
	}
	cancel(errEnough)
	if err := <-result; !errors.Is(err, errEnough) {
		return fmt.Errorf("receive whose context ended: %v", err)
	}
	if n := f.posted(1); n != 0 {
		return fmt.Errorf("receives that are still posted: %d", n)
	}
	if err := send(ctx, f.comms[0], 1, 1, data(1, 8)); err != nil {
		return err
	}
	if err := want(ctx, c, 0, 1, data(1, 8), 0, 1); err != nil {
		return fmt.Errorf("the message after: %w", err)
	}
	// A receive that has matched gets its message, though its context ends.
	b := data(2, 1<<20)
	s, err := isend(f.comms[0], 1, 2, b, pml.Standard)
	if err != nil {
		return err
	}
	if err := until(ctx, "the offer", func() bool { return f.unexpected(1) == 1 }); err != nil {
		return err
	}
	stop, cancel = context.WithCancelCause(ctx)
	defer cancel(nil)
	release := f.hold(0) // it can't answer
	go func() {
		got := make([]byte, len(b))
		st, err := c.Recv(stop, buffer(got), 0, 2, p2p)
		if err == nil {
			err = compare(st, got, b, 0, 2)
		}
		result <- err
	}()
	err = until(ctx, "match", func() bool { return f.unexpected(1) == 0 })
	cancel(errEnough)
	release()
	if err != nil {
		return err
	}
	if err := <-result; err != nil {
		return fmt.Errorf("receive whose context ended after the match: %w", err)
	}
	_, err = s.wait(ctx)
	return err
}

// hold keeps a process from all progress until the result is called.
func (f *fixture) hold(rank int) (release func()) {
	e := f.Procs[rank].Engine
	e.Lock()
	return e.Unlock
}

// posted counts the receives that wait at a rank.
func (f *fixture) posted(rank int) (n int) {
	for _, c := range f.Procs[rank].Module.Inspect().Comms {
		n += len(c.Posted)
	}
	return n
}

func withdrawOffered(ctx context.Context, f *fixture) error {
	for i, mode := range []pml.Mode{pml.Standard, pml.Synchronous} {
		n := 1 << 20
		if mode == pml.Synchronous {
			n = 3
		}
		stop, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		result := make(chan error, 1)
		go func() { result <- f.comms[0].Send(stop, buffer(data(0, n)), 1, 1, p2p, mode) }()
		if err := until(ctx, "the offer", func() bool { return f.unexpected(1) == 1 }); err != nil {
			return err
		}
		cancel(errEnough)
		err := <-result
		if f.networked() {
			err := completes(ctx, err, func() error { return want(ctx, f.comms[1], 0, 1, data(0, n), 0, 1) })
			if err != nil {
				return err
			}
		} else if !errors.Is(err, errEnough) {
			return fmt.Errorf("send whose context ended: %v", err)
		}
		if k := f.unexpected(1); k != 0 {
			return fmt.Errorf("messages that are still there: %d", k)
		}
		for k := range 3 { // the order holds
			if err := send(ctx, f.comms[0], 1, 1, data(k, 20)); err != nil {
				return err
			}
		}
		for k := range 3 {
			if err := want(ctx, f.comms[1], pml.AnySource, pml.AnyTag, data(k, 20), 0, 1); err != nil {
				return fmt.Errorf("mode %d: %w", i, err)
			}
		}
	}
	return nil
}

// withdrawQueued cancels sends that could not go out at all.
func withdrawQueued(ctx context.Context, f *fixture) error {
	if !f.networked() {
		// The path is open, and each knows the other's id.
		err := Each(f.comms, func(rank int, c pml.Comm) error { return meet(ctx, c, 1-rank) })
		if err != nil {
			return err
		}
	} else if f.policy != cid.PolicyLazy {
		return nil // a network takes all there is
	}
	release := f.hold(1)
	var reqs []pending
	var sent [][]byte
	for len(reqs) < 1<<20 {
		b := data(len(reqs), 1000)
		r, err := isend(f.comms[0], 1, 2, b, pml.Standard)
		if err != nil {
			release()
			return err
		}
		reqs, sent = append(reqs, r), append(sent, b)
		if len(reqs)%64 == 0 && f.sends(0, "queued") > 20 {
			break
		}
	}
	first := len(reqs) - f.sends(0, "queued")
	canceled := map[int]bool{}
	for _, k := range []int{first, first + 7, len(reqs) - 1, first + 8} { // head, middle, tail
		canceled[k] = true
		if err := reqs[k].r.Cancel(reqs[k].gen); err != nil {
			release()
			return err
		}
	}
	last, err := isend(f.comms[0], 1, 2, data(7, 5), pml.Standard)
	release()
	if err != nil {
		return err
	}
	for k := range reqs {
		if !canceled[k] {
			if err := want(ctx, f.comms[1], 0, 2, sent[k], 0, 2); err != nil {
				return fmt.Errorf("message %d of %d: %w", k, len(reqs), err)
			}
		}
	}
	if err := want(ctx, f.comms[1], 0, 2, data(7, 5), 0, 2); err != nil {
		return fmt.Errorf("message after all: %w", err)
	}
	for k, r := range append(reqs, last) {
		st, err := r.wait(ctx)
		if err != nil || st.Canceled != canceled[k] {
			return fmt.Errorf("send %d: %+v %v; canceled: %v", k, st, err, canceled[k])
		}
	}
	return nil
}

// withdrawMatched ends the context of a send whose receive has matched: it
// completes, or it is withdrawn, and both sides agree on which.
func withdrawMatched(ctx context.Context, f *fixture) error {
	for i := range 100 {
		b := data(i, 100000)
		stop, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		result := make(chan error, 1)
		go func() { result <- f.comms[0].Send(stop, buffer(b), 1, 1, p2p, pml.Standard) }()
		got := make([]byte, len(b))
		r, err := irecv(f.comms[1], 0, 1, got)
		if err != nil {
			return err
		}
		cancel(errEnough)
		sent := <-result
		if f.networked() {
			var st pml.Status
			sent = completes(ctx, sent, func() (err error) { st, err = r.wait(ctx); return err })
			if !errors.Is(sent, errEnough) { // it was not withdrawn before it left
				if sent == nil {
					sent = compare(st, got, b, 0, 1)
				}
				if sent != nil {
					return fmt.Errorf("round %d: %w", i, sent)
				}
				continue
			}
		}
		if errors.Is(sent, errEnough) {
			// It never came, so that the receive takes the next.
			b = data(i+1, 100000)
			sent = send(ctx, f.comms[0], 1, 1, b)
		}
		st, err := r.wait(ctx)
		if err == nil {
			err = compare(st, got, b, 0, 1)
		}
		if err := errors.Join(sent, err); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}

// withdrawClaimed: nobody knows when a claimed message will be received, and its sender
// must not wait for that longer than it wanted to.
func withdrawClaimed(ctx context.Context, f *fixture) error {
	b := data(1, 100)
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	result := make(chan error, 1)
	go func() { result <- f.comms[0].Send(limited, buffer(b), 1, 5, p2p, pml.Synchronous) }()
	claimed, st, err := f.comms[1].Mprobe(ctx, 0, 5, p2p)
	if err != nil {
		return err
	}
	cancel(errEnough)
	select {
	case err = <-result:
	case <-ctx.Done():
		return fmt.Errorf("the send does not end: %w", context.Cause(ctx))
	}
	if err == nil || !errors.Is(err, errEnough) {
		return fmt.Errorf("the send ended with %v, want its context's cause", err)
	}
	return completes(ctx, err, func() error {
		got := make([]byte, len(b))
		if st, err = claimed.Recv(ctx, buffer(got)); err != nil {
			return err
		}
		return compare(st, got, b, 0, 5)
	})
}
