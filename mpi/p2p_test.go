package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
)

func TestP2P_InvalidArguments_ReturnTheirErrors(t *testing.T) { ranks(t, 2, inWorld(arguments)) }

func arguments(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	buf := make([]byte, 8)
	send := func(dst, tag int) error { return c.Send(ctx, buf, dst, tag) }
	recv := func(src, tag int) error { _, err := c.Recv(ctx, buf, src, tag); return err }
	var errs []error
	check := func(what string, err, sentinel error) { errs = append(errs, wants(what, err, sentinel)) }
	check("send to rank 2 of 2", send(2, 0), mpi.ErrRank)
	check("send to rank -7", send(-7, 0), mpi.ErrRank)
	check("send to AnySource", send(mpi.AnySource, 0), mpi.ErrRank)
	check("send with tag -1", send(0, -1), mpi.ErrTag)
	check("send with AnyTag", send(0, mpi.AnyTag), mpi.ErrTag)
	check("send with a tag over TagMax", send(0, c.TagMax()+1), mpi.ErrTag)
	check("receive from rank 2 of 2", recv(2, 0), mpi.ErrRank)
	check("receive with tag -3", recv(0, -3), mpi.ErrTag)
	check("receive with a tag over TagMax", recv(0, c.TagMax()+1), mpi.ErrTag)
	check("ssend", c.Ssend(ctx, buf, 9, 0), mpi.ErrRank)
	check("rsend", c.Rsend(ctx, buf, 7, 0), mpi.ErrRank)
	errs = append(errs, mpi.Rsend(ctx, c, []int{1}, mpi.ProcNull, 0))
	_, err := c.Isend(buf, 9, 0)
	check("isend", err, mpi.ErrRank)
	_, err = c.Issend(buf, 0, -1)
	check("issend", err, mpi.ErrTag)
	_, err = c.Irecv(buf, 9, 0)
	check("irecv", err, mpi.ErrRank)
	_, err = c.Sendrecv(ctx, buf, 0, 0, nil, 9, 0)
	check("sendrecv from rank 9", err, mpi.ErrRank)
	_, err = c.Sendrecv(ctx, buf, 0, -1, nil, 0, 0)
	check("sendrecv with tag -1", err, mpi.ErrTag)
	_, err = c.Probe(ctx, 9, 0)
	check("probe", err, mpi.ErrRank)
	_, _, err = c.Iprobe(0, -5)
	check("iprobe", err, mpi.ErrTag)
	_, err = c.Transport(2)
	check("transport", err, mpi.ErrRank)
	check("a root out of range", mpi.Bcast(ctx, c, buf, 2), mpi.ErrRank)
	check("a negative root", mpi.Reduce(ctx, c, buf, buf, mpi.Sum[byte](), -1), mpi.ErrRank)
	check("an element with pointers", mpi.Send(ctx, c, []string{"x"}, 0, 0), mpi.ErrType)
	check("elements with uintptr", mpi.Bcast(ctx, c, []uintptr{1}, 0), mpi.ErrType)
	check("a result that is too short", mpi.Allreduce(ctx, c, make([]int, 2), make([]int, 1), mpi.Sum[int]()), mpi.ErrTruncate)
	check("the zero Op", mpi.Allreduce(ctx, c, make([]int, 1), make([]int, 1), mpi.Op[int]{}), mpi.ErrUnsupported)
	check("an operation without a function", mpi.Allreduce(ctx, c, make([]int, 1), make([]int, 1), mpi.NewOp[int](nil, true)), mpi.ErrUnsupported)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// None of that has broken anything.
	if err := send(c.Rank(), c.TagMax()); err != nil {
		return err
	}
	if err := recv(c.Rank(), c.TagMax()); err != nil {
		return err
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	d, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	_, recvErr := d.Recv(ctx, buf, 0, 0)
	_, irecvErr := d.Irecv(buf, 0, 0)
	_, dupErr := d.Dup(ctx)
	_, splitErr := d.Split(ctx, 0, 0)
	return errors.Join(
		wants("send on a closed communicator", d.Send(ctx, buf, 0, 0), mpi.ErrClosed),
		wants("receive", recvErr, mpi.ErrClosed), wants("irecv", irecvErr, mpi.ErrClosed),
		wants("dup", dupErr, mpi.ErrClosed), wants("split", splitErr, mpi.ErrClosed),
		wants("barrier", mpi.Barrier(ctx, d), mpi.ErrClosed),
		wants("a second Close", d.Close(), mpi.ErrClosed),
	)
}

// pattern returns n bytes that differ by seed and by place, again after 64 KiB.
func pattern(n, seed int) []byte {
	const period = 1 << 16
	b := make([]byte, n)
	for i := range min(n, period) {
		b[i] = byte(i*7 + i>>8*13 + seed)
	}
	for have := period; have < n; have *= 2 {
		copy(b[have:], b[:have])
	}
	return b
}

func TestContext_Ends_WithdrawsOrEndsWait(t *testing.T) { ranks(t, 2, inWorld(contexts)) }

func contexts(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	cause := errors.New("the user's cause")
	if c.Rank() == 0 {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, err := c.Recv(short, make([]byte, 8), 1, 0)
		if err := errors.Join(wants("receive past its deadline", err, mpi.ErrTimeout), wants("receive", err, context.DeadlineExceeded)); err != nil {
			return err
		}
		_, err = c.Probe(short, mpi.AnySource, 0)
		if err := wants("probe past its deadline", err, mpi.ErrTimeout); err != nil {
			return err
		}
		canceled, stop := context.WithCancelCause(ctx)
		stop(cause)
		_, err = c.Recv(canceled, make([]byte, 8), 1, 0)
		if err := errors.Join(wants("canceled receive", err, mpi.ErrCanceled), wants("canceled receive", err, cause)); err != nil {
			return err
		}
		// A synchronous send without a receive is withdrawn. The peer receives the next message.
		if err := wants("unmatched ssend", c.Ssend(short, []byte("withdrawn"), 1, 5), mpi.ErrTimeout); err != nil {
			return err
		}
		if err := c.Send(ctx, []byte("kept"), 1, 5); err != nil {
			return err
		}
		_, err = c.Sendrecv(short, []byte("perhaps"), 1, 8, make([]byte, 8), 1, 99)
		if err := wants("sendrecv without its receive", err, mpi.ErrTimeout); err != nil {
			return err
		}
		if err := c.Send(ctx, nil, 1, 6); err != nil {
			return err
		}
		// The context of Wait ends the wait only.
		buf := make([]byte, 8)
		r, err := c.Irecv(buf, 1, 1)
		if err != nil {
			return err
		}
		st, err := r.Wait(canceled)
		if err := errors.Join(wants("wait", err, mpi.ErrCanceled), must(st.Source == mpi.AnySource, "status %+v", st)); err != nil {
			return err
		}
		if err := mpi.Barrier(ctx, c); err != nil {
			return err
		}
		if st, err := r.Wait(ctx); err != nil || st.Bytes != 3 {
			return fmt.Errorf("second wait: %+v, %v", st, err)
		}
		return nil
	}
	buf := make([]byte, 16)
	if _, err := c.Recv(ctx, buf, 0, 6); err != nil {
		return err
	}
	if st, err := c.Recv(ctx, buf, 0, 5); err != nil || string(buf[:st.Bytes]) != "kept" {
		return fmt.Errorf("after a withdrawn send: %q, %v", buf[:st.Bytes], err)
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	return c.Send(ctx, []byte("end"), 0, 1)
}

func TestWaitAll_ContextEnds_PendingStayActive(t *testing.T) {
	ranks(t, 2, inWorld(requests))
}

func requests(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	peer := 1 - c.Rank()
	small, _ := c.Irecv(make([]byte, 1), peer, 902)
	good, _ := c.Irecv(make([]byte, 8), peer, 903)
	late, err := c.Irecv(make([]byte, 8), peer, 904)
	if err != nil {
		return err
	}
	for tag := 902; tag <= 903; tag++ {
		if err := c.Send(ctx, make([]byte, 8), peer, tag); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	reqs, st := []mpi.Request{late, small, good}, make([]mpi.Status, 3)
	err = mpi.WaitAll(short, reqs, st)
	if err := errors.Join(
		wants("WaitAll", err, mpi.ErrTimeout), wants("WaitAll", err, mpi.ErrTruncate),
		wants("the pending one", st[0].Err, mpi.ErrPending),
		wants("the truncated one", st[1].Err, mpi.ErrTruncate), must(st[1].Bytes == 8, "truncated: %+v", st[1]),
		must(st[2].Err == nil && st[2].Bytes == 8, "the good one: %+v", st[2]),
	); err != nil {
		return err
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	if err := c.Send(ctx, make([]byte, 2), peer, 904); err != nil {
		return err
	}
	if err := mpi.WaitAll(ctx, reqs, st); err != nil || st[0].Bytes != 2 || st[1] != none {
		return fmt.Errorf("WaitAll again: %+v, %v", st, err)
	}
	return wants("too few statuses", mpi.WaitAll(ctx, reqs, st[:1]), mpi.ErrTruncate)
}

func TestComm_ManyGoroutines_MessagesArrive(t *testing.T) { ranks(t, 2, inWorld(goroutines)) }

func goroutines(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	const n, rounds = 50, 40
	peer := 1 - c.Rank()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for g := range n {
		wg.Go(func() {
			buf := make([]byte, 4096)
			for round := range rounds {
				size := (g*rounds + round) % len(buf)
				if g%2 == c.Rank() {
					errs[g] = c.Send(ctx, pattern(size, g), peer, g)
				} else if st, err := c.Recv(ctx, buf, peer, g); err != nil || !bytes.Equal(buf[:st.Bytes], pattern(size, g)) {
					errs[g] = fmt.Errorf("goroutine %d round %d: %+v, %v", g, round, st, err)
				}
				if errs[g] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestP2P_SteadyState_DoesNotAllocate(t *testing.T) { localtest.Run(t, 2, "allocations") }

func allocations(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	peer := 1 - c.Rank()
	send, recv := make([]byte, 64), make([]byte, 64)
	reqs := make([]mpi.Request, 4)
	st := make([]mpi.Status, 4)
	done := make([]int, 4)
	x, y := []float64{1}, []float64{0}
	column := mpi.Vector(8, 4, 8)
	psend, err := c.SendInit(send, peer, 6)
	if err != nil {
		return err
	}
	precv, err := c.RecvInit(recv, peer, 6)
	if err != nil {
		return err
	}
	op := mpi.Sum[float64]()
	kinds := []struct {
		name string
		step func() error
	}{
		{"Send and Recv", func() error {
			if c.Rank() == 0 {
				if err := c.Send(ctx, send, peer, 0); err != nil {
					return err
				}
				_, err := c.Recv(ctx, recv, peer, 0)
				return err
			}
			if _, err := c.Recv(ctx, recv, mpi.AnySource, mpi.AnyTag); err != nil {
				return err
			}
			return c.Send(ctx, send, peer, 0)
		}},
		{"generic Sendrecv", func() error {
			_, err := mpi.Sendrecv(ctx, c, x, peer, 1, y, peer, 1)
			return err
		}},
		{"Isend, Irecv and Wait", func() error {
			r, err := c.Irecv(recv, peer, 2)
			if err != nil {
				return err
			}
			s, err := c.Isend(send, peer, 2)
			if err != nil {
				return err
			}
			if _, err := s.Wait(ctx); err != nil {
				return err
			}
			_, err = r.Wait(ctx)
			return err
		}},
		{"Isendrecv", func() error {
			q, err := c.Isendrecv(send, peer, 3, recv, peer, 3)
			if err == nil {
				_, err = q.Wait(ctx)
			}
			return err
		}},
		{"persistent requests", func() error {
			if err := errors.Join(precv.Start(), psend.Start()); err != nil {
				return err
			}
			if _, err := psend.Wait(ctx); err != nil {
				return err
			}
			_, err := precv.Wait(ctx)
			return err
		}},
		{"a layout", func() error {
			r, err := c.IrecvLayout(recv, column, peer, 7)
			if err != nil {
				return err
			}
			if err := c.SendLayout(ctx, send, column, peer, 7); err != nil {
				return err
			}
			_, err = r.Wait(ctx)
			return err
		}},
		{"WaitSome", func() error {
			reqs[0], _ = c.Irecv(recv, peer, 8)
			reqs[1], _ = c.Isend(send, peer, 8)
			for left := 2; left > 0; {
				n, err := mpi.WaitSome(ctx, reqs[:2], done, st)
				if err != nil {
					return err
				}
				left -= n
			}
			return nil
		}},
		{"WaitAll", func() error {
			for i := range reqs {
				var err error
				if i%2 == 0 {
					reqs[i], err = c.Irecv(recv, peer, 3)
				} else {
					reqs[i], err = c.Isend(send, peer, 3)
				}
				if err != nil {
					return err
				}
			}
			return mpi.WaitAll(ctx, reqs, st)
		}},
		{"WaitAny", func() error {
			reqs[0], _ = c.Irecv(recv, peer, 4)
			reqs[1], _ = c.Isend(send, peer, 4)
			for range 2 {
				if _, _, err := mpi.WaitAny(ctx, reqs[:2]); err != nil {
					return err
				}
			}
			return nil
		}},
		{"Iprobe", func() error {
			if _, _, err := c.Iprobe(mpi.AnySource, 5); err != nil {
				return err
			}
			_, err := c.Sendrecv(ctx, send, peer, 5, recv, peer, 5)
			return err
		}},
		{"ProcNull", func() error {
			r, err := c.Isend(send, mpi.ProcNull, 0)
			if err != nil {
				return err
			}
			_, err = r.Wait(ctx)
			return err
		}},
		{"Barrier and Allreduce", func() error {
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
			return mpi.Allreduce(ctx, c, x, y, op)
		}},
	}
	var errs []error
	for _, k := range kinds {
		var err error
		run := func() {
			if err == nil {
				err = k.step()
			}
		}
		const rounds = 400
		for range rounds { // pools fill, queues grow
			run()
		}
		n := testing.AllocsPerRun(rounds, run)
		if err != nil {
			return err
		}
		errs = append(errs, must(n == 0, "%s: %v allocations per message", k.name, n))
	}
	return errors.Join(errs...)
}
