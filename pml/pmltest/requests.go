package pmltest

import (
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

func requestCases() claims {
	return claims{
		kittest.New("ReleasedHandle_IsUsed_ReturnsErrClosed", 2, (*fixture).staleHandle),
		kittest.New("FreedRequestStillCompletes", 2, (*fixture).freed),
		kittest.New("OneOfTwoWaitersGetsTheStatus", 2, (*fixture).twoWaiters),
	}
}

func (f *fixture) staleHandle() {
	buf := make([]byte, 4)
	old := f.irecv(f.commsByRank[1], 0, 1, buf)
	for i := range 3 { // After each, the old handle's request may be in use again.
		f.send(f.commsByRank[0], 1, 1, data(i, 4))
		r := old
		if i > 0 {
			r = f.irecv(f.commsByRank[1], 0, 1, buf)
			_, waitErr := old.wait(f.Context())
			_, _, testErr := old.r.Test(old.gen)
			_, _, peekErr := old.r.Peek(old.gen)
			for _, err := range []error{waitErr, testErr, peekErr, old.r.Cancel(old.gen), old.r.Free(old.gen)} {
				f.Is("use of an old handle", err, framework.ErrClosed)
			}
		}
		f.got(r, buf, data(i, 4), 0, 1)
	}
}

func (f *fixture) freed() {
	for i, n := range []int{10, 100000} {
		r := f.irecv(f.commsByRank[1], 0, 1, make([]byte, n))
		s := f.isend(f.commsByRank[0], 1, 2, data(i, n), pml.Synchronous)
		f.Check(r.r.Free(r.gen), s.r.Free(s.gen))
		_, err := r.wait(f.Context())
		f.Is("wait for a freed request", err, framework.ErrClosed)
		f.send(f.commsByRank[0], 1, 1, data(i, n))
		f.want(f.commsByRank[1], 0, 2, data(i, n), 0, 2)
		// Its message was sent after the one that was received, and may arrive later.
		f.Until("completion", func() bool { return f.posted(1) == 0 })
	}
}

func (f *fixture) twoWaiters() {
	for i := range 300 {
		buf := make([]byte, 16)
		r := f.irecv(f.commsByRank[1], 0, 1, buf)
		var sts [2]pml.Status
		var errs [2]error
		var waits [2]func()
		for k := range waits {
			waits[k] = f.Go(func() { sts[k], errs[k] = r.wait(f.Context()) })
		}
		f.send(f.commsByRank[0], 1, 1, data(i, 16))
		got := 0
		for k, wait := range waits {
			wait()
			switch {
			case errs[k] == nil:
				got++
				f.compare(sts[k], nil, buf, data(i, 16), 0, 1)
			case !errors.Is(errs[k], framework.ErrClosed) && !errors.Is(errs[k], progress.ErrBusy):
				f.Check(errs[k])
			}
		}
		switch got {
		case 0: // The loser of a race may call again, because the status was not taken.
			f.got(r, buf, data(i, 16), 0, 1)
		case 2:
			f.Fatalf("round %d: both waiters got the status", i)
		}
	}
}
