package conform

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/mpi"
)

func messageCases() []Case {
	return []Case{
		{"message/every size arrives whole", "3.2", 1, everySize},
		{"message/a message of no bytes", "3.2.1", 1, zeroBytes},
		{"message/modes of sends", "3.4", 1, modes},
		{"message/a synchronous send waits for its receive", "3.4", 2, synchronous},
		{"message/a buffered send does not wait", "3.6", 1, bufferedSend},
		{"message/to the process itself", "3.2.4", 1, toSelf},
		{"message/ProcNull", "3.10", 1, procNull},
		{"message/truncation", "3.2.5", 1, truncation},
		{"message/sendrecv in a ring", "3.11", 1, sendrecv},
		{"message/wrong arguments", "9.4", 1, arguments},
		{"message/count of elements", "3.2.5", 1, counts},
		{"message/all to all at once", "3.5", 1, allAtOnce},
	}
}

func everySize(ctx context.Context, e Env) error {
	c := e.Comm
	for i, n := range []int{1, 2, 7, 8, 63, 64, 65, 500, 4095, 4096, 4097, 8167, 8168, 8169, 8192, 20_000, 65_536, 200_001, 5 << 20} {
		in := make([]byte, n)
		st, err := c.Sendrecv(ctx, pattern(n, c.Rank(), i), e.right(), i, in, e.left(), i)
		what := fmt.Sprintf("%d bytes", n)
		if err := errors.Join(status(what, st, err, e.left(), i, n), same(what, in, pattern(n, e.left(), i))); err != nil {
			return err
		}
	}
	return nil
}

func zeroBytes(ctx context.Context, e Env) error {
	c := e.Comm
	reqs := make([]mpi.Request, 3)
	for i := range reqs {
		var err error
		if reqs[i], err = c.Isend(nil, e.right(), i); err != nil {
			return err
		}
	}
	for i := 2; i >= 0; i-- {
		st, err := c.Recv(ctx, make([]byte, i), e.left(), i)
		if err := status("empty message", st, err, e.left(), i, 0); err != nil {
			return err
		}
	}
	return mpi.WaitAll(ctx, reqs, nil)
}

// modes: all of them bring the message; a ready send finds its receive posted.
func modes(ctx context.Context, e Env) error {
	c := e.Comm
	for mode, send := range []func(context.Context, []byte, int, int) error{c.Send, c.Ssend, c.Bsend, c.Rsend} {
		for _, n := range []int{0, 100, 100_000} {
			in := make([]byte, n)
			r, err := c.Irecv(in, e.left(), mode)
			if err != nil {
				return err
			}
			if err := mpi.Barrier(ctx, c); err != nil { // every receive is posted
				return err
			}
			if err := send(ctx, pattern(n, c.Rank(), mode), e.right(), mode); err != nil {
				return fmt.Errorf("mode %d: %w", mode, err)
			}
			st, err := r.Wait(ctx)
			if err := errors.Join(status("mode", st, err, e.left(), mode, n), same("mode", in, pattern(n, e.left(), mode))); err != nil {
				return fmt.Errorf("mode %d: %w", mode, err)
			}
		}
	}
	return nil
}

func synchronous(ctx context.Context, e Env) error {
	c := e.Comm
	if c.Rank() > 1 {
		return nil
	}
	for _, n := range []int{0, 8, 100_000} {
		if c.Rank() == 1 {
			// The order of these is what tells: the message with tag 1 is here, and its
			// sender says with tag 2 that it was not complete.
			if _, err := c.Probe(ctx, 0, 1); err != nil {
				return err
			}
			if _, err := c.Recv(ctx, nil, 0, 2); err != nil {
				return err
			}
			if st, err := c.Recv(ctx, make([]byte, n), 0, 1); err != nil || st.Bytes != n {
				return fmt.Errorf("%+v, %v", st, err)
			}
			continue
		}
		r, err := c.Issend(make([]byte, n), 1, 1)
		if err != nil {
			return err
		}
		for range 100 {
			if _, done, err := r.Status(); done || err != nil {
				return fmt.Errorf("a synchronous send of %d bytes is complete before its receive, %w", n, err)
			}
		}
		if err := c.Send(ctx, nil, 1, 2); err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// bufferedSend: it returns although the receive comes only afterwards, and the
// buffer is the caller's at once.
func bufferedSend(ctx context.Context, e Env) error {
	c := e.Comm
	for i, n := range []int{8, 100_000} {
		out := pattern(n, c.Rank(), i)
		if err := c.Bsend(ctx, out, e.right(), i); err != nil {
			return err
		}
		clear(out)
	}
	for i, n := range []int{8, 100_000} {
		in := make([]byte, n)
		st, err := c.Recv(ctx, in, e.left(), i)
		if err := errors.Join(status("buffered", st, err, e.left(), i, n), same("buffered", in, pattern(n, e.left(), i))); err != nil {
			return err
		}
	}
	return nil
}

func toSelf(ctx context.Context, e Env) error {
	c, me := e.Comm, e.Comm.Rank()
	for i, n := range []int{0, 10, 10_000, 1 << 20} {
		in := make([]byte, n)
		r, err := c.Irecv(in, me, i)
		if err != nil {
			return err
		}
		if err := c.Ssend(ctx, pattern(n, me, i), me, i); err != nil {
			return err
		}
		st, err := r.Wait(ctx)
		if err := errors.Join(status("receive first", st, err, me, i, n), same("receive first", in, pattern(n, me, i))); err != nil {
			return err
		}
		clear(in)
		s, err := c.Isend(pattern(n, me, i+1), me, i)
		if err != nil {
			return err
		}
		st, err = c.Recv(ctx, in, mpi.AnySource, mpi.AnyTag)
		_, sendErr := s.Wait(ctx)
		if err := errors.Join(status("send first", st, err, me, i, n), same("send first", in, pattern(n, me, i+1)), sendErr); err != nil {
			return err
		}
	}
	return nil
}

func procNull(ctx context.Context, e Env) error {
	c, buf := e.Comm, []byte{1, 2, 3}
	errs := []error{
		c.Send(ctx, buf, mpi.ProcNull, 0), c.Ssend(ctx, buf, mpi.ProcNull, 0),
		c.Bsend(ctx, buf, mpi.ProcNull, 0), c.Rsend(ctx, buf, mpi.ProcNull, 0),
	}
	st, err := c.Recv(ctx, buf, mpi.ProcNull, mpi.AnyTag)
	errs = append(errs, null("receive", st, err), must(buf[0] == 1, "the buffer was written"))
	st, err = c.Probe(ctx, mpi.ProcNull, 5)
	errs = append(errs, null("probe", st, err))
	st, ok, err := c.Iprobe(mpi.ProcNull, 5)
	errs = append(errs, null("iprobe", st, err), must(ok, "iprobe: nothing"))
	m, st, err := c.Mprobe(ctx, mpi.ProcNull, 5)
	errs = append(errs, null("mprobe", st, err))
	if err == nil {
		st, err = m.Recv(ctx, buf)
		errs = append(errs, null("receive of the message", st, err))
	}
	for _, start := range []func() (mpi.Request, error){
		func() (mpi.Request, error) { return c.Isend(buf, mpi.ProcNull, 0) },
		func() (mpi.Request, error) { return c.Issend(buf, mpi.ProcNull, 0) },
		func() (mpi.Request, error) { return c.Irecv(buf, mpi.ProcNull, 0) },
	} {
		r, err := start()
		if err != nil {
			return err
		}
		st, done, err := r.Test()
		errs = append(errs, null("request", st, err), must(done, "a request with ProcNull is pending"))
	}
	st, err = c.Sendrecv(ctx, buf, mpi.ProcNull, 0, buf, mpi.ProcNull, 0)
	errs = append(errs, null("sendrecv", st, err))
	// One half of it.
	if e.right() != c.Rank() {
		dst, src := e.right(), e.left()
		if c.Rank() == c.Size()-1 {
			dst = mpi.ProcNull
		}
		if c.Rank() == 0 {
			src = mpi.ProcNull
		}
		st, err = c.Sendrecv(ctx, []byte{9}, dst, 7, buf, src, 7)
		if src == mpi.ProcNull {
			errs = append(errs, null("first of a line", st, err))
		} else {
			errs = append(errs, status("line", st, err, src, 7, 1))
		}
	}
	return errors.Join(errs...)
}

func truncation(ctx context.Context, e Env) error {
	c := e.Comm
	for i, n := range []int{10, 5000, 300_000} {
		for _, room := range []int{0, 1, n - 1} {
			s, err := c.Isend(pattern(n, c.Rank(), i), e.right(), i)
			if err != nil {
				return err
			}
			mem := make([]byte, n+8)
			st, err := c.Recv(ctx, mem[:room], e.left(), i)
			_, sendErr := s.Wait(ctx)
			if err := errors.Join(
				answers("receive that is too short", err, mpi.ErrTruncate), status("truncated", st, nil, e.left(), i, n),
				same("what fits", mem[:room], pattern(n, e.left(), i)[:room]), same("what is behind it", mem[room:], make([]byte, len(mem)-room)), sendErr); err != nil {
				return fmt.Errorf("%d bytes into %d: %w", n, room, err)
			}
		}
	}
	return nil
}

func sendrecv(ctx context.Context, e Env) error {
	c := e.Comm
	for _, n := range []int{1, 1 << 20} { // also where a plain send would wait
		for i := range 10 {
			in := make([]byte, n)
			st, err := c.Sendrecv(ctx, pattern(n, c.Rank(), i), e.right(), i, in, mpi.AnySource, i)
			if err := errors.Join(status("ring", st, err, e.left(), i, n), same("ring", in, pattern(n, e.left(), i))); err != nil {
				return err
			}
		}
	}
	return nil
}

func arguments(ctx context.Context, e Env) error {
	c := e.Comm
	buf := make([]byte, 1)
	recv := func(src, tag int) error { _, err := c.Recv(ctx, buf, src, tag); return err }
	_, isend := c.Isend(buf, c.Size(), 0)
	_, irecv := c.Irecv(buf, 0, -7)
	_, probe := c.Probe(ctx, c.Size(), 0)
	_, _, iprobe := c.Iprobe(0, c.TagMax()+1)
	_, _, mprobe := c.Mprobe(ctx, -9, 0)
	_, initSend := c.SendInit(buf, c.Size(), 0)
	_, initRecv := c.RecvInit(buf, 0, -9)
	return errors.Join(
		must(c.TagMax() >= 32767, "TagMax is %d; the standard says at least 32767", c.TagMax()),
		answers("send to a rank out of range", c.Send(ctx, buf, c.Size(), 0), mpi.ErrRank),
		answers("send to AnySource", c.Send(ctx, buf, mpi.AnySource, 0), mpi.ErrRank),
		answers("send with AnyTag", c.Send(ctx, buf, 0, mpi.AnyTag), mpi.ErrTag),
		answers("ssend with a tag out of range", c.Ssend(ctx, buf, 0, c.TagMax()+1), mpi.ErrTag),
		answers("bsend", c.Bsend(ctx, buf, -5, 0), mpi.ErrRank), answers("rsend", c.Rsend(ctx, buf, 0, -1), mpi.ErrTag),
		answers("receive from a rank out of range", recv(c.Size(), 0), mpi.ErrRank),
		answers("receive with a negative tag", recv(0, -1), mpi.ErrTag),
		answers("isend", isend, mpi.ErrRank), answers("irecv", irecv, mpi.ErrTag), answers("probe", probe, mpi.ErrRank),
		answers("iprobe", iprobe, mpi.ErrTag), answers("mprobe", mprobe, mpi.ErrRank),
		answers("send init", initSend, mpi.ErrRank), answers("receive init", initRecv, mpi.ErrTag),
		answers("a root out of range", mpi.Bcast(ctx, c, buf, c.Size()), mpi.ErrRank),
		answers("elements with pointers", mpi.Send(ctx, c, []*int{nil}, 0, 0), mpi.ErrType),
	)
}

func counts(ctx context.Context, e Env) error {
	c := e.Comm
	in := make([]float64, 10)
	st, err := mpi.Sendrecv(ctx, c, []float64{1, 2, 3}, e.right(), 0, in, e.left(), 0)
	n, whole := mpi.Count[float64](st)
	_, odd := mpi.Count[[5]byte](st)
	return errors.Join(status("elements", st, err, e.left(), 0, 24), must(n == 3 && whole, "%d elements, whole: %t", n, whole),
		must(!odd, "24 bytes count as a whole number of 5-byte elements"), must(in[2] == 3, "%v", in))
}

// allAtOnce: every rank sends to every rank, large and small, with nothing posted
// beforehand.
func allAtOnce(ctx context.Context, e Env) error {
	c := e.Comm
	var reqs []mpi.Request
	for to := range c.Size() {
		for i, n := range []int{10, 50_000} {
			r, err := c.Isend(pattern(n, c.Rank(), i), to, i)
			if err != nil {
				return err
			}
			reqs = append(reqs, r)
		}
	}
	for range c.Size() * 2 {
		in := make([]byte, 50_000)
		st, err := c.Recv(ctx, in, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		if err := same("message", in[:st.Bytes], pattern(st.Bytes, st.Source, st.Tag)); err != nil {
			return err
		}
	}
	return mpi.WaitAll(ctx, reqs, nil)
}
