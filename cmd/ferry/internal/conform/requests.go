package conform

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/mpi"
)

func requestCases() []Case {
	return []Case{
		{"request/null requests", "3.7.3", 1, nullRequests},
		{"request/wait and test use it up", "3.7.3", 1, usedUp},
		{"request/status without using it up", "3.7.6", 1, getStatus},
		{"request/wait for all, of which one fails", "3.7.5", 1, waitAll},
		{"request/wait for any", "3.7.5", 1, waitAny},
		{"request/wait for some", "3.7.5", 1, waitSome},
		{"request/test for all is all or nothing", "3.7.5", 1, testAll},
		{"request/cancel of a receive", "3.8.4", 1, cancel},
		{"request/cancel after the match does nothing", "3.8.4", 1, cancelTooLate},
		{"request/free of an active request", "3.7.3", 1, free},
		{"request/a context ends the wait only", "3.7.3", 1, contextOfWait},
		{"request/many at once", "3.7", 1, manyAtOnce},
	}
}

// start posts a receive from the left.
func (e Env) start(buf []byte, tag int) (mpi.Request, error) { return e.Comm.Irecv(buf, e.left(), tag) }

func nullRequests(ctx context.Context, _ Env) error {
	var zero mpi.Request
	st, err := zero.Wait(ctx)
	errs := []error{none("wait", st, err)}
	st, done, err := zero.Test()
	errs = append(errs, none("test", st, err), must(done, "test: pending"))
	st, done, err = zero.Status()
	errs = append(errs, none("status", st, err), must(done, "status: pending"))
	errs = append(errs, answers("cancel", zero.Cancel(), mpi.ErrClosed), answers("free", zero.Free(), mpi.ErrClosed))
	for _, list := range [][]mpi.Request{nil, {zero, zero}} {
		all := make([]mpi.Status, len(list))
		errs = append(errs, mpi.WaitAll(ctx, list, all))
		for _, st := range all {
			errs = append(errs, none("wait for all", st, nil))
		}
		ok, err := mpi.TestAll(list, nil)
		errs = append(errs, err, must(ok, "test for all: pending"))
		i, st, err := mpi.WaitAny(ctx, list)
		errs = append(errs, none("wait for any", st, err), must(i == mpi.Undefined, "wait for any: %d", i))
		i, st, ok, err = mpi.TestAny(list)
		errs = append(errs, none("test for any", st, err), must(ok && i == mpi.Undefined, "test for any: %d, %t", i, ok))
		n, err := mpi.WaitSome(ctx, list, make([]int, len(list)), nil)
		errs = append(errs, err, must(n == mpi.Undefined, "wait for some: %d", n))
	}
	return errors.Join(errs...)
}

func usedUp(ctx context.Context, e Env) error {
	for i := range 3 { // what is recycled too
		buf := make([]byte, 1)
		r, err := e.start(buf, i)
		if err != nil {
			return err
		}
		if _, done, err := r.Test(); done || err != nil {
			return fmt.Errorf("test before the send: %t, %v", done, err)
		}
		if err := mpi.Barrier(ctx, e.Comm); err != nil {
			return err
		}
		if err := e.Comm.Send(ctx, []byte{1}, e.right(), i); err != nil {
			return err
		}
		other := r // a copy is the same operation
		st, err := r.Wait(ctx)
		_, again := other.Wait(ctx)
		_, _, test := r.Test()
		if err := errors.Join(status("wait", st, err, e.left(), i, 1), answers("wait again", again, mpi.ErrClosed), answers("test again", test, mpi.ErrClosed),
			answers("cancel of it", r.Cancel(), mpi.ErrClosed), answers("free of it", r.Free(), mpi.ErrClosed)); err != nil {
			return err
		}
	}
	return nil
}

func getStatus(ctx context.Context, e Env) error {
	r, err := e.start(make([]byte, 4), 1)
	if err != nil {
		return err
	}
	if err := e.Comm.Send(ctx, []byte{1, 2}, e.right(), 1); err != nil {
		return err
	}
	for done := false; !done; {
		var st mpi.Status
		if st, done, err = r.Status(); err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if done {
			err = status("status", st, nil, e.left(), 1, 2)
		}
	}
	st, done, again := r.Status()
	last, waitErr := r.Wait(ctx)
	return errors.Join(err, status("status again", st, again, e.left(), 1, 2), must(done, "it is pending again"), status("wait", last, waitErr, e.left(), 1, 2))
}

// waitAll: each has its own outcome, and the error is that of the one that fails.
func waitAll(ctx context.Context, e Env) error {
	reqs, bufs := make([]mpi.Request, 4), make([][]byte, 4)
	for i := range reqs {
		bufs[i] = make([]byte, 10*i) // the second is too short
		var err error
		if i == 2 {
			reqs[i], err = e.Comm.Irecv(nil, mpi.ProcNull, 0)
		} else {
			reqs[i], err = e.start(bufs[i], i)
		}
		if err != nil {
			return err
		}
	}
	for i, n := range []int{0, 11, 0, 30} {
		if i == 2 {
			continue
		}
		if err := e.Comm.Send(ctx, pattern(n, e.Comm.Rank(), i), e.right(), i); err != nil {
			return err
		}
	}
	st := make([]mpi.Status, 4)
	err := mpi.WaitAll(ctx, reqs, st)
	errs := []error{
		answers("wait for all", err, mpi.ErrTruncate), answers("the one that fails", st[1].Err, mpi.ErrTruncate),
		status("too short", st[1], nil, e.left(), 1, 11), status("first", st[0], st[0].Err, e.left(), 0, 0),
		null("null", st[2], st[2].Err), status("last", st[3], st[3].Err, e.left(), 3, 30),
		same("last", bufs[3], pattern(30, e.left(), 3)),
	}
	for i, r := range reqs {
		errs = append(errs, must(r == mpi.Request{}, "request %d is not null afterwards", i))
	}
	return errors.Join(errs...)
}

// several posts n receives, of which the peer sends last what was posted first.
func (e Env) several(ctx context.Context, n int) ([]mpi.Request, [][]byte, error) {
	reqs, bufs := make([]mpi.Request, n+1), make([][]byte, n) // one more is null
	for i := range bufs {
		bufs[i] = make([]byte, 1)
		var err error
		if reqs[i], err = e.start(bufs[i], i); err != nil {
			return nil, nil, err
		}
	}
	if err := mpi.Barrier(ctx, e.Comm); err != nil {
		return nil, nil, err
	}
	return reqs, bufs, nil
}

func (e Env) sendAll(ctx context.Context, n int) error {
	for i := n - 1; i >= 0; i-- {
		if err := e.Comm.Send(ctx, []byte{byte(i)}, e.right(), i); err != nil {
			return err
		}
	}
	return nil
}

func waitAny(ctx context.Context, e Env) error {
	const n = 20
	reqs, bufs, err := e.several(ctx, n)
	if err != nil {
		return err
	}
	if i, _, done, err := mpi.TestAny(reqs[:n]); err != nil || done && i == mpi.Undefined {
		return fmt.Errorf("test for any: %d, %t, %v", i, done, err)
	} else if done {
		return fmt.Errorf("request %d is complete before anything was sent", i)
	}
	if err := mpi.Barrier(ctx, e.Comm); err != nil {
		return err
	}
	if err := e.sendAll(ctx, n); err != nil {
		return err
	}
	seen := map[int]bool{}
	for range n {
		i, st, err := mpi.WaitAny(ctx, reqs)
		if err := errors.Join(status("any", st, err, e.left(), i, 1), must(!seen[i] && int(bufs[i][0]) == i, "request %d again", i)); err != nil {
			return err
		}
		seen[i] = true
	}
	i, st, err := mpi.WaitAny(ctx, reqs)
	return errors.Join(none("after the last", st, err), must(i == mpi.Undefined, "index %d after the last", i))
}

func waitSome(ctx context.Context, e Env) error {
	const n = 20
	reqs, bufs, err := e.several(ctx, n)
	if err != nil {
		return err
	}
	done, st := make([]int, n+1), make([]mpi.Status, n+1)
	if k, err := mpi.TestSome(reqs, done, st); err != nil || k != 0 {
		return fmt.Errorf("test for some before anything was sent: %d, %v", k, err)
	}
	if err := mpi.Barrier(ctx, e.Comm); err != nil {
		return err
	}
	if err := e.sendAll(ctx, n); err != nil {
		return err
	}
	seen := map[int]bool{}
	for len(seen) < n {
		k, err := mpi.WaitSome(ctx, reqs, done, st)
		if err != nil || k < 1 {
			return fmt.Errorf("wait for some: %d, %v", k, err)
		}
		for j, i := range done[:k] {
			if err := errors.Join(status("some", st[j], st[j].Err, e.left(), i, 1), must(!seen[i] && int(bufs[i][0]) == i, "request %d again", i)); err != nil {
				return err
			}
			seen[i] = true
		}
	}
	k, err := mpi.WaitSome(ctx, reqs, done, st)
	return errors.Join(err, must(k == mpi.Undefined, "%d after the last", k))
}

func testAll(ctx context.Context, e Env) error {
	const n = 5
	reqs, _, err := e.several(ctx, n)
	if err != nil {
		return err
	}
	before := append([]mpi.Request(nil), reqs...)
	if done, err := mpi.TestAll(reqs, nil); done || err != nil {
		return fmt.Errorf("before anything was sent: %t, %v", done, err)
	}
	for i := range reqs {
		if reqs[i] != before[i] {
			return fmt.Errorf("request %d has changed although not all are complete", i)
		}
	}
	if err := mpi.Barrier(ctx, e.Comm); err != nil {
		return err
	}
	if err := e.sendAll(ctx, n); err != nil {
		return err
	}
	st := make([]mpi.Status, n+1)
	for done := false; !done; {
		if done, err = mpi.TestAll(reqs, st); err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	for i := range n {
		err = errors.Join(err, status("all", st[i], st[i].Err, e.left(), i, 1))
	}
	return errors.Join(err, none("null", st[n], st[n].Err))
}

func cancel(ctx context.Context, e Env) error {
	for _, src := range []int{e.left(), mpi.AnySource} {
		buf := []byte{7}
		r, err := e.Comm.Irecv(buf, src, 3)
		if err != nil {
			return err
		}
		if err := r.Cancel(); err != nil {
			return err
		}
		st, err := r.Wait(ctx)
		if err := errors.Join(err, must(st.Canceled, "not canceled: %+v", st), must(buf[0] == 7, "the buffer was written")); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(ctx, e.Comm); err != nil {
		return err
	}
	// Messages go to receives that are alive.
	if err := e.Comm.Send(ctx, []byte{1}, e.right(), 3); err != nil {
		return err
	}
	st, err := e.Comm.Recv(ctx, make([]byte, 1), mpi.AnySource, 3)
	return status("the next receive", st, err, e.left(), 3, 1)
}

func cancelTooLate(ctx context.Context, e Env) error {
	for i, n := range []int{10, 100_000} {
		in := make([]byte, n)
		r, err := e.start(in, i)
		if err != nil {
			return err
		}
		s, err := e.Comm.Issend(pattern(n, e.Comm.Rank(), i), e.right(), i)
		if err != nil {
			return err
		}
		if _, err := s.Wait(ctx); err != nil { // the right neighbour's receive has matched
			return err
		}
		if err := mpi.Barrier(ctx, e.Comm); err != nil { // and so has this rank's
			return err
		}
		cancelErr := r.Cancel()
		st, err := r.Wait(ctx)
		if err := errors.Join(cancelErr, status("wait", st, err, e.left(), i, n), same("message", in, pattern(n, e.left(), i))); err != nil {
			return err
		}
	}
	return nil
}

// free: the operation goes on; what it does is seen in another way.
func free(ctx context.Context, e Env) error {
	for i, n := range []int{10, 100_000} {
		s, err := e.Comm.Isend(pattern(n, e.Comm.Rank(), i), e.right(), i)
		if err != nil {
			return err
		}
		in := make([]byte, n)
		if err := errors.Join(s.Free(), answers("free again", s.Free(), mpi.ErrClosed)); err != nil {
			return err
		}
		st, err := e.Comm.Recv(ctx, in, e.left(), i)
		if err := errors.Join(status("message", st, err, e.left(), i, n), same("message", in, pattern(n, e.left(), i))); err != nil {
			return err
		}
	}
	return nil
}

func contextOfWait(ctx context.Context, e Env) error {
	cause := errors.New("the user's cause")
	ended, stop := context.WithCancelCause(ctx)
	stop(cause)
	in := make([]byte, 1)
	r, err := e.start(in, 2)
	if err != nil {
		return err
	}
	_, err = r.Wait(ended)
	_, recv := e.Comm.Recv(ended, in, e.left(), 99)
	if err := errors.Join(answers("wait", err, mpi.ErrCanceled), answers("wait", err, cause), answers("receive", recv, cause)); err != nil {
		return err
	}
	if err := mpi.Barrier(ctx, e.Comm); err != nil {
		return err
	}
	if err := e.Comm.Send(ctx, []byte{5}, e.right(), 2); err != nil {
		return err
	}
	st, err := r.Wait(ctx)
	return errors.Join(status("second wait", st, err, e.left(), 2, 1), must(in[0] == 5, "contents %v", in))
}

func manyAtOnce(ctx context.Context, e Env) error {
	const n = 500
	reqs := make([]mpi.Request, 2*n)
	in := make([]int64, n)
	for i := range n {
		var err error
		if reqs[2*i], err = mpi.Irecv(e.Comm, in[i:i+1], e.left(), i%7); err != nil {
			return err
		}
		if reqs[2*i+1], err = mpi.Isend(e.Comm, []int64{int64(i)}, e.right(), i%7); err != nil {
			return err
		}
	}
	if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
		return err
	}
	for i, x := range in {
		if x != int64(i) {
			return fmt.Errorf("receive %d got message %d", i, x)
		}
	}
	return nil
}

func persistentCases() []Case {
	return []Case{
		{"persistent/started again and again", "3.9", 1, persistent},
		{"persistent/inactive ones", "3.9", 1, inactive},
		{"memory/messages out of AllocMem's memory", "9.2", 1, allocated},
	}
}

func persistent(ctx context.Context, e Env) error {
	c := e.Comm
	for _, n := range []int{8, 100_000} {
		out, in := make([]byte, n), make([]byte, n)
		for _, start := range []func([]byte, int, int) (*mpi.Persistent, error){c.SendInit, c.SsendInit} {
			s, err := start(out, e.right(), 6)
			if err != nil {
				return err
			}
			r, err := c.RecvInit(in, e.left(), 6)
			if err != nil {
				return err
			}
			for i := range 20 {
				copy(out, pattern(n, c.Rank(), i)) // what it holds at the start is sent
				if err := errors.Join(r.Start(), s.Start(), answers("start of an active one", r.Start(), mpi.ErrPending)); err != nil {
					return err
				}
				st, err := r.Wait(ctx)
				_, sendErr := s.Wait(ctx)
				if err := errors.Join(status("receive", st, err, e.left(), 6, n), sendErr, same("receive", in, pattern(n, e.left(), i))); err != nil {
					return fmt.Errorf("round %d: %w", i, err)
				}
			}
			if err := errors.Join(s.Free(), r.Free(), answers("start of a freed one", s.Start(), mpi.ErrClosed)); err != nil {
				return err
			}
		}
	}
	return nil
}

func inactive(ctx context.Context, e Env) error {
	r, err := e.Comm.RecvInit(make([]byte, 1), e.left(), 1)
	if err != nil {
		return err
	}
	st, err := r.Wait(ctx)
	errs := []error{none("wait", st, err)}
	st, done, err := r.Test()
	errs = append(errs, none("test", st, err), must(done, "test: pending"))
	p, err := e.Comm.SendInit(nil, mpi.ProcNull, 1)
	if err != nil {
		return err
	}
	errs = append(errs, p.Start())
	st, err = p.Wait(ctx)
	return errors.Join(append(errs, null("ProcNull", st, err), p.Free(), r.Free(), answers("free again", r.Free(), mpi.ErrClosed))...)
}

func allocated(ctx context.Context, e Env) error {
	m, err := mpi.AllocMem(e.Session, 3<<20)
	if err != nil {
		return err
	}
	out := mpi.View[byte](m)
	if len(out) != 3<<20 || !bytes.Equal(out, make([]byte, 3<<20)) {
		return fmt.Errorf("%d bytes, or not zero", len(out))
	}
	for i, n := range []int{8, 40_000, 2 << 20} {
		from := out[i : i+n] // a part of it
		copy(from, pattern(n, e.Comm.Rank(), i))
		in := make([]byte, n)
		st, err := e.Comm.Sendrecv(ctx, from, e.right(), i, in, e.left(), i)
		if err := errors.Join(status("message", st, err, e.left(), i, n), same("message", in, pattern(n, e.left(), i))); err != nil {
			return err
		}
	}
	return errors.Join(m.Close(), answers("close again", m.Close(), mpi.ErrClosed))
}

func layoutCases() []Case {
	return []Case{
		{"layout/vector to bytes and back", "5.1.2", 1, vectors},
		{"layout/indexed to vector", "5.1.2", 1, indexed},
		{"layout/what makes no sense", "5.1", 1, badLayouts},
	}
}

func vectors(ctx context.Context, e Env) error {
	c := e.Comm
	for _, blocks := range []int{1, 10, 3000} {
		l := mpi.Vector(blocks, 24, 40)
		mem := pattern(l.Extent(), c.Rank(), blocks)
		in := bytes.Repeat([]byte{0xEE}, l.Extent())
		s, err := c.IsendLayout(mem, l, e.right(), 1)
		if err != nil {
			return err
		}
		flat := make([]byte, l.Size())
		st, err := c.Recv(ctx, flat, e.left(), 1)
		if err := status("vector to bytes", st, err, e.left(), 1, l.Size()); err != nil {
			return err
		}
		if _, err := s.Wait(ctx); err != nil {
			return err
		}
		b, err := c.Isend(flat, e.right(), 2)
		if err != nil {
			return err
		}
		st, err = c.RecvLayout(ctx, in, l, e.left(), 2)
		if _, err := b.Wait(ctx); err != nil {
			return err
		}
		// It went round by two ranks.
		origin := (e.left() + c.Size() - 1) % c.Size()
		want := bytes.Repeat([]byte{0xEE}, l.Extent())
		theirs := pattern(l.Extent(), origin, blocks)
		for i := range want {
			if i%40 < 24 {
				want[i] = theirs[i]
			}
		}
		if err := errors.Join(status("bytes to vector", st, err, e.left(), 2, l.Size()), same("vector", in, want)); err != nil {
			return fmt.Errorf("%d blocks: %w", blocks, err)
		}
	}
	return nil
}

func indexed(ctx context.Context, e Env) error {
	c := e.Comm
	from := mpi.Indexed(mpi.Block{Offset: 50, Bytes: 10}, mpi.Block{Offset: 0, Bytes: 20}, mpi.Block{Offset: 30, Bytes: 6})
	to := mpi.Vector(4, 9, 11)
	s, err := c.IsendLayout(pattern(from.Extent(), c.Rank(), 0), from, e.right(), 1)
	if err != nil {
		return err
	}
	in := make([]byte, to.Extent())
	st, err := c.RecvLayout(ctx, in, to, e.left(), 1)
	if _, err := s.Wait(ctx); err != nil {
		return err
	}
	theirs := pattern(from.Extent(), e.left(), 0)
	message := append(append(append([]byte(nil), theirs[50:60]...), theirs[:20]...), theirs[30:36]...)
	want := make([]byte, to.Extent())
	for i, b := range message {
		want[i/9*11+i%9] = b
	}
	return errors.Join(status("indexed", st, err, e.left(), 1, 36), same("indexed", in, want))
}

func badLayouts(ctx context.Context, e Env) error {
	c := e.Comm
	overlap := mpi.Indexed(mpi.Block{Offset: 0, Bytes: 8}, mpi.Block{Offset: 4, Bytes: 8})
	_, err := c.RecvLayout(ctx, make([]byte, 100), overlap, e.left(), 1)
	_, short := c.RecvLayout(ctx, make([]byte, 10), mpi.Vector(2, 8, 16), e.left(), 1)
	return errors.Join(answers("receive into blocks that overlap", err, mpi.ErrUnsupported), answers("receive into a short buffer", short, mpi.ErrTruncate),
		answers("send out of a short buffer", c.SendLayout(ctx, make([]byte, 10), mpi.Vector(2, 8, 16), e.right(), 1), mpi.ErrTruncate))
}
