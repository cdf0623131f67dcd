package pmltest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

func requestCases() claims {
	return claims{
		kittest.Of("UsedUpHandleIsClosed", 2, staleHandle),
		kittest.Of("FreedRequestStillCompletes", 2, freed),
		kittest.Of("OneOfTwoWaitersGetsTheStatus", 2, twoWaiters),
		kittest.Of("WaitWithEndedContextKeepsTheRequest", 2, waitContext),
	}
}

func staleHandle(ctx context.Context, f *fixture) error {
	buf := make([]byte, 4)
	old, err := irecv(f.comms[1], 0, 1, buf)
	if err != nil {
		return err
	}
	for i := range 3 { // after each, the old handle's request may be in use again
		if err := send(ctx, f.comms[0], 1, 1, data(i, 4)); err != nil {
			return err
		}
		r := old
		if i > 0 {
			if r, err = irecv(f.comms[1], 0, 1, buf); err != nil {
				return err
			}
			_, waitErr := old.wait(ctx)
			_, _, testErr := old.r.Test(old.gen)
			_, _, peekErr := old.r.Peek(old.gen)
			for _, err := range []error{waitErr, testErr, peekErr, old.r.Cancel(old.gen), old.r.Free(old.gen)} {
				if !errors.Is(err, framework.ErrClosed) {
					return fmt.Errorf("use of an old handle: %v, want ErrClosed", err)
				}
			}
		}
		st, err := r.wait(ctx)
		if err == nil {
			err = compare(st, buf, data(i, 4), 0, 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func freed(ctx context.Context, f *fixture) error {
	for i, n := range []int{10, 100000} {
		buf := make([]byte, n)
		r, err := irecv(f.comms[1], 0, 1, buf)
		if err != nil {
			return err
		}
		s, err := isend(f.comms[0], 1, 2, data(i, n), pml.Synchronous)
		if err != nil {
			return err
		}
		if err := errors.Join(r.r.Free(r.gen), s.r.Free(s.gen)); err != nil {
			return err
		}
		if _, err := r.wait(ctx); !errors.Is(err, framework.ErrClosed) {
			return fmt.Errorf("wait for a freed request: %v", err)
		}
		if err := send(ctx, f.comms[0], 1, 1, data(i, n)); err != nil {
			return err
		}
		if err := want(ctx, f.comms[1], 0, 2, data(i, n), 0, 2); err != nil {
			return err
		}
		// Its message came behind the one that was received, on some networks later.
		if err := until(ctx, "completion", func() bool { return f.posted(1) == 0 }); err != nil {
			return err
		}
	}
	return nil
}

func twoWaiters(ctx context.Context, f *fixture) error {
	for i := range 300 {
		buf := make([]byte, 16)
		r, err := irecv(f.comms[1], 0, 1, buf)
		if err != nil {
			return err
		}
		type outcome struct {
			st  pml.Status
			err error
		}
		results := make(chan outcome, 2)
		for range 2 {
			go func() {
				st, err := r.wait(ctx)
				results <- outcome{st, err}
			}()
		}
		if err := send(ctx, f.comms[0], 1, 1, data(i, 16)); err != nil {
			return err
		}
		got := 0
		for range 2 {
			o := <-results
			switch {
			case o.err == nil:
				got++
				if err := compare(o.st, buf, data(i, 16), 0, 1); err != nil {
					return err
				}
			case errors.Is(o.err, framework.ErrClosed), errors.Is(o.err, progress.ErrBusy):
			default:
				return o.err
			}
		}
		if got != 1 {
			// Who was told to be second may ask again; nobody took the status.
			st, err := r.wait(ctx)
			if got != 0 || err != nil {
				return fmt.Errorf("round %d: %d waiters got the status; then: %+v %v", i, got, st, err)
			}
		}
	}
	return nil
}

func waitContext(ctx context.Context, f *fixture) error {
	buf := make([]byte, 5)
	r, err := irecv(f.comms[1], 0, 1, buf)
	if err != nil {
		return err
	}
	stop, cancel := context.WithCancelCause(ctx)
	cancel(errEnough)
	if _, err := r.wait(stop); !errors.Is(err, errEnough) {
		return fmt.Errorf("wait with an ended context: %v", err)
	}
	if err := send(ctx, f.comms[0], 1, 1, data(1, 5)); err != nil {
		return err
	}
	st, err := r.wait(ctx)
	if err != nil {
		return err
	}
	return compare(st, buf, data(1, 5), 0, 1)
}
