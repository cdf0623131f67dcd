package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
)

func TestBadArgumentsGetTheirErrors(t *testing.T) { ranks(t, 2, inWorld(arguments)) }

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

func TestMessagesOfAllSizesBothWays(t *testing.T) {
	for _, policy := range []string{"agree", "gather", "lazy"} {
		t.Run(policy, func(t *testing.T) { ranks(t, 2, inWorld(bothWays), "cid.policy="+policy) })
	}
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed)
	}
	return b
}

func bothWays(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	peer := 1 - c.Rank()
	for size := 0; size <= 8<<20; size = size*3 + 1 {
		send, recv := pattern(size, c.Rank()), make([]byte, size)
		want := mpi.Status{Source: peer, Tag: size, Bytes: size}
		st, err := c.Sendrecv(ctx, send, peer, size, recv, peer, mpi.AnyTag)
		if err != nil || st != want || !bytes.Equal(recv, pattern(size, peer)) {
			return fmt.Errorf("sendrecv of %d bytes: %+v, %v", size, st, err)
		}
		clear(recv)
		r, err := c.Irecv(recv, peer, size)
		if err != nil {
			return err
		}
		if err := c.Send(ctx, send, peer, size); err != nil {
			return err
		}
		if st, err := r.Wait(ctx); err != nil || st != want || !bytes.Equal(recv, pattern(size, peer)) {
			return fmt.Errorf("send of %d bytes: %+v, %v", size, st, err)
		}
		if st, err := c.Sendrecv(ctx, send, c.Rank(), 0, recv, c.Rank(), 0); err != nil || st.Bytes != size || !bytes.Equal(recv, send) {
			return fmt.Errorf("%d bytes to oneself: %+v, %v", size, st, err)
		}
	}
	// Elements, and as many both ways at once as there is room for requests.
	const n = 200
	reqs := make([]mpi.Request, 0, 2*n)
	in, out := make([][]float64, n), make([][]float64, n)
	for i := range n {
		in[i], out[i] = make([]float64, 500), make([]float64, 500)
		out[i][499] = float64(i)
		r, err := mpi.Irecv(c, in[i], peer, i)
		if err != nil {
			return err
		}
		s, err := mpi.Isend(c, out[i], peer, i)
		if err != nil {
			return err
		}
		reqs = append(reqs, r, s)
	}
	st := make([]mpi.Status, len(reqs))
	if err := mpi.WaitAll(ctx, reqs, st); err != nil {
		return err
	}
	for i := range n {
		if count, whole := mpi.Count[float64](st[2*i]); in[i][499] != float64(i) || count != 500 || !whole {
			return fmt.Errorf("message %d: %v, %d elements", i, in[i][499], count)
		}
	}
	return nil
}

func TestUnexpectedWildcardAndTruncatedMessages(t *testing.T) { ranks(t, 3, inWorld(unexpected)) }

func unexpected(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	if c.Rank() != 0 {
		for i := range 100 {
			if err := c.Send(ctx, []byte{byte(c.Rank()), byte(i)}, 0, i%2); err != nil {
				return err
			}
		}
		if err := c.Send(ctx, pattern(100, 1), 0, 7); err != nil {
			return err
		}
		return mpi.Barrier(ctx, c)
	}
	buf := make([]byte, 2)
	// Odd tags first, though they came mixed: from one sender, in order.
	for i := 1; i < 100; i += 2 {
		if st, err := c.Recv(ctx, buf, 2, 1); err != nil || st.Bytes != 2 || buf[1] != byte(i) {
			return fmt.Errorf("tag 1: %v, %+v, %v", buf, st, err)
		}
	}
	next := map[int]byte{1: 0, 2: 0}
	for range 150 {
		st, err := c.Probe(ctx, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		if st.Tag == 7 { // only after all else of that sender
			break
		}
		got, err := c.Recv(ctx, buf, mpi.AnySource, mpi.AnyTag)
		if err != nil || got.Source != int(buf[0]) || got.Tag != int(buf[1])%2 {
			return fmt.Errorf("any: %v, %+v, %v", buf, got, err)
		}
		if got.Source == 1 && buf[1] != next[1] {
			return fmt.Errorf("message %d of rank 1 overtook %d", buf[1], next[1])
		}
		next[got.Source]++
	}
	for src := 1; src <= 2; src++ {
		for { // what is left before the long one
			st, ok, err := c.Iprobe(src, mpi.AnyTag)
			if err != nil {
				return err
			}
			if ok && st.Tag == 7 {
				break
			}
			if ok {
				if _, err := c.Recv(ctx, buf, src, st.Tag); err != nil {
					return err
				}
			}
			runtime.Gosched()
		}
		guard := bytes.Repeat([]byte{0xEE}, 64)
		st, err := c.Recv(ctx, guard[:32], src, 7)
		if err := errors.Join(wants("a message of 100 bytes into 32", err, mpi.ErrTruncate),
			must(st.Bytes == 100 && st.Source == src, "truncated: %+v", st),
			must(bytes.Equal(guard[:32], pattern(100, 1)[:32]), "the beginning is missing"),
			must(bytes.Equal(guard[32:], bytes.Repeat([]byte{0xEE}, 32)), "bytes beyond the buffer were written")); err != nil {
			return err
		}
	}
	return mpi.Barrier(ctx, c)
}

func TestContextsWithdrawOrEndTheWait(t *testing.T) { ranks(t, 2, inWorld(contexts)) }

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
		// A synchronous send that nobody receives is withdrawn: what comes next is
		// what the peer gets.
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

func TestRequests(t *testing.T) { ranks(t, 2, inWorld(requests)) }

func requests(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	peer := 1 - c.Rank()
	none := mpi.Status{Source: mpi.AnySource, Tag: mpi.AnyTag}
	null := mpi.Status{Source: mpi.ProcNull, Tag: mpi.AnyTag}
	var zero mpi.Request
	if st, err := zero.Wait(ctx); err != nil || st != none {
		return fmt.Errorf("zero request: %+v, %v", st, err)
	}
	if i, st, err := mpi.WaitAny(ctx, []mpi.Request{zero, zero}); err != nil || i != mpi.Undefined || st != none {
		return fmt.Errorf("WaitAny without requests: %d, %+v, %v", i, st, err)
	}
	if err := errors.Join(wants("cancel of nothing", zero.Cancel(), mpi.ErrClosed), wants("free of nothing", zero.Free(), mpi.ErrClosed)); err != nil {
		return err
	}
	for range 3 { // recycled ones too
		r, err := c.Irecv(nil, mpi.ProcNull, 0)
		if err != nil {
			return err
		}
		if st, done, err := r.Status(); err != nil || !done || st != null {
			return fmt.Errorf("ProcNull: %+v, %v, %v", st, done, err)
		}
		if st, err := r.Wait(ctx); err != nil || st != null {
			return fmt.Errorf("ProcNull: %+v, %v", st, err)
		}
		_, err = r.Wait(ctx)
		if err := wants("a used request", err, mpi.ErrClosed); err != nil {
			return err
		}
	}
	if st, err := c.Recv(ctx, nil, mpi.ProcNull, mpi.AnyTag); err != nil || st != null {
		return fmt.Errorf("receive from ProcNull: %+v, %v", st, err)
	}

	// WaitAny gives each of several once.
	const n = 40
	reqs := make([]mpi.Request, n)
	bufs := make([][1]byte, n)
	for i := range reqs {
		var err error
		if reqs[i], err = c.Irecv(bufs[i][:], peer, i); err != nil {
			return err
		}
	}
	copies := append([]mpi.Request(nil), reqs...)
	if done, err := mpi.TestAll(reqs, nil); done || err != nil {
		return fmt.Errorf("TestAll before any was sent: %v, %v", done, err)
	}
	if i, _, done, err := mpi.TestAny(reqs); done || err != nil || i != mpi.Undefined {
		return fmt.Errorf("TestAny before any was sent: %d, %v, %v", i, done, err)
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	for i := n - 1; i >= 0; i-- {
		if err := c.Send(ctx, []byte{byte(i)}, peer, i); err != nil {
			return err
		}
	}
	seen := map[int]bool{}
	for range n {
		i, st, err := mpi.WaitAny(ctx, reqs)
		if err != nil || seen[i] || st.Tag != i || bufs[i][0] != byte(i) {
			return fmt.Errorf("WaitAny: %d, %+v, %v", i, st, err)
		}
		seen[i] = true
	}
	if i, _, err := mpi.WaitAny(ctx, reqs); i != mpi.Undefined || err != nil {
		return fmt.Errorf("WaitAny after the last: %d, %v", i, err)
	}
	_, err := copies[3].Wait(ctx)
	if err := wants("a copy of a used request", err, mpi.ErrClosed); err != nil {
		return err
	}

	// Cancel and Free.
	r, err := c.Irecv(make([]byte, 1), peer, 900)
	if err != nil {
		return err
	}
	if err := r.Cancel(); err != nil {
		return err
	}
	if st, err := r.Wait(ctx); err != nil || !st.Canceled {
		return fmt.Errorf("canceled receive: %+v, %v", st, err)
	}
	s, err := c.Isend([]byte{1}, peer, 901)
	if err != nil {
		return err
	}
	if err := s.Free(); err != nil {
		return err
	}
	if err := wants("a second Free", s.Free(), mpi.ErrClosed); err != nil {
		return err
	}
	if _, err := c.Recv(ctx, make([]byte, 1), peer, 901); err != nil {
		return err
	}

	// WaitAll with one that fails, and with one that is still pending.
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

func TestManyGoroutinesShareACommunicator(t *testing.T) { ranks(t, 2, inWorld(goroutines)) }

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

func TestProcessesAllocateNothingInSteadyState(t *testing.T) { localtest.Run(t, 2, "allocations") }

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
		for range 2000 { // pools fill, queues grow
			run()
		}
		n := testing.AllocsPerRun(2000, run)
		if err != nil {
			return err
		}
		errs = append(errs, must(n == 0, "%s: %v allocations per message", k.name, n))
	}
	return errors.Join(errs...)
}
