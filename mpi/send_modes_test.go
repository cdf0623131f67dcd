package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

var (
	none = mpi.Status{Source: mpi.AnySource, Tag: mpi.AnyTag}
	null = mpi.Status{Source: mpi.ProcNull, Tag: mpi.AnyTag}
)

func TestBsend_NoReceive_ReturnsAndIsLimited(t *testing.T) {
	ranks(t, 2, inWorld(bsend), "session.bsend_limit=1MiB")
}

func bsend(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	const size, tag = 100_000, 4
	if c.Rank() == 1 {
		// Nothing is received before rank 0 has seen its limit.
		var sent [1]int64
		if _, err := mpi.Recv(ctx, c, sent[:], 0, 1); err != nil {
			return err
		}
		buf := make([]byte, size)
		for i := range int(sent[0]) {
			if st, err := c.Recv(ctx, buf, 0, tag); err != nil || st.Bytes != size || !bytes.Equal(buf, pattern(size, i)) {
				return fmt.Errorf("message %d: %+v, %v", i, st, err)
			}
		}
		if err := c.Send(ctx, nil, 0, 2); err != nil {
			return err
		}
		for i := range 2 {
			if _, err := c.Recv(ctx, buf, 0, 5); err != nil || !bytes.Equal(buf, pattern(size, i)) {
				return fmt.Errorf("after Close: message %d: %v", i, err)
			}
		}
		return nil
	}
	var sent [1]int64
	buf := make([]byte, size)
	for {
		copy(buf, pattern(size, int(sent[0])))
		err := c.Bsend(ctx, buf, 1, tag)
		clear(buf) // it is ours again
		if err != nil {
			if err := wants("a full buffer", err, mpi.ErrPending); err != nil {
				return err
			}
			break
		}
		sent[0]++
	}
	if err := errors.Join(
		must(sent[0] >= 8 && sent[0] <= 30, "%d messages of %d bytes went into 1 MiB", sent[0], size),
		wants("a message that never fits", c.Bsend(ctx, make([]byte, 2<<20), 1, tag), mpi.ErrConfig),
		wants("a wrong rank", c.Bsend(ctx, nil, 2, tag), mpi.ErrRank), wants("a wrong tag", c.Bsend(ctx, nil, 1, -1), mpi.ErrTag),
		c.Bsend(ctx, nil, mpi.ProcNull, tag), mpi.Send(ctx, c, sent[:], 1, 1)); err != nil {
		return err
	}
	if _, err := c.Recv(ctx, nil, 1, 2); err != nil {
		return err
	}
	// There is room again, and the close of communicator and session loses nothing.
	for i := range 2 {
		if err := mpi.Bsend(ctx, c, pattern(size, i), 1, 5); err != nil {
			return err
		}
	}
	return nil
}

func TestMprobe_Message_IsNotReceivedElsewhere(t *testing.T) { ranks(t, 2, inWorld(mprobe)) }

func mprobe(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	sizes := []int{0, 10, 1 << 20}
	if c.Rank() == 0 {
		var reqs []mpi.Request
		for range 2 {
			for i, size := range sizes {
				r, err := c.Isend(pattern(size, i), 1, 3)
				if err != nil {
					return err
				}
				reqs = append(reqs, r)
			}
		}
		return errors.Join(mpi.WaitAll(ctx, reqs, nil), mpi.Barrier(ctx, c))
	}
	if err := probesOfProcNull(ctx, c); err != nil {
		return err
	}
	if m, _, ok, err := c.Improbe(0, 77); m != nil || ok || err != nil {
		return fmt.Errorf("improbe of nothing: %v, %v", ok, err)
	}

	// The first three are claimed, then received last of all, backwards.
	var claimed []*mpi.Message
	for i, size := range sizes {
		m, st, err := c.Mprobe(ctx, mpi.AnySource, mpi.AnyTag)
		if err != nil || st.Source != 0 || st.Tag != 3 || st.Bytes != size {
			return fmt.Errorf("mprobe %d: %+v, %v", i, st, err)
		}
		claimed = append(claimed, m)
	}
	for i, size := range sizes {
		buf := make([]byte, size)
		if st, err := c.Recv(ctx, buf, 0, 3); err != nil || st.Bytes != size || !bytes.Equal(buf, pattern(size, i)) {
			return fmt.Errorf("a receive past claimed messages, %d: %+v, %v", i, st, err)
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel() // The context cannot withdraw a matched message.
	long := make([]byte, sizes[2])
	r, err := claimed[2].Irecv(long)
	if err != nil {
		return err
	}
	if st, err := r.Wait(ctx); err != nil || st.Bytes != len(long) || !bytes.Equal(long, pattern(len(long), 2)) {
		return fmt.Errorf("claimed large message: %+v, %v", st, err)
	}
	short := make([]byte, 4)
	st, err := claimed[1].Recv(canceled, short)
	_, again := claimed[1].Recv(ctx, short)
	_, againI := claimed[1].Irecv(short)
	if err := errors.Join(wants("a short buffer", err, mpi.ErrTruncate), must(st.Bytes == 10 && bytes.Equal(short, pattern(4, 1)), "truncated: %+v", st),
		wants("a second receive", again, mpi.ErrClosed), wants("a second receive", againI, mpi.ErrClosed)); err != nil {
		return err
	}
	if st, err := mpi.Mrecv(ctx, claimed[0], []int64{}); err != nil || st.Bytes != 0 {
		return fmt.Errorf("claimed empty message: %+v, %v", st, err)
	}
	_, err = mpi.Mrecv(ctx, claimed[0], []string{})
	_, err2 := mpi.Imrecv(claimed[0], []*int{})
	var nothing *mpi.Message
	_, err3 := nothing.Recv(ctx, nil)
	_, _, err4 := c.Mprobe(ctx, 5, 0)
	if err := errors.Join(wants("pointers", err, mpi.ErrType), wants("pointers", err2, mpi.ErrType), wants("no message", err3, mpi.ErrClosed), wants("a wrong rank", err4, mpi.ErrRank)); err != nil {
		return err
	}
	return mpi.Barrier(ctx, c)
}

// probesOfProcNull receives the messages that probes of ProcNull find.
func probesOfProcNull(ctx context.Context, c *mpi.Comm) error {
	m, st, err := c.Mprobe(ctx, mpi.ProcNull, 3)
	if err != nil || st != null {
		return fmt.Errorf("ProcNull: %+v, %v", st, err)
	}
	if st, err := m.Recv(ctx, nil); err != nil || st != null {
		return fmt.Errorf("ProcNull: %+v, %v", st, err)
	}
	_, err = m.Recv(ctx, nil)
	if err := wants("a second receive from ProcNull", err, mpi.ErrClosed); err != nil {
		return err
	}
	nullMessage, _, ok, err := c.Improbe(mpi.ProcNull, 3)
	if err != nil || !ok {
		return fmt.Errorf("improbe of ProcNull: %v, %v", ok, err)
	}
	r, err := nullMessage.Irecv(nil)
	if err != nil {
		return err
	}
	if st, err := r.Wait(ctx); err != nil || st != null {
		return fmt.Errorf("irecv from ProcNull: %+v, %v", st, err)
	}
	return nil
}

func TestPersistent_Completed_StartsAgain(t *testing.T) { ranks(t, 2, inWorld(persistent)) }

func persistent(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	peer := 1 - c.Rank()
	out, in := make([]int64, 1000), make([]int64, 1000)
	send, err := mpi.SendInit(c, out, peer, 1)
	if err != nil {
		return err
	}
	ssend, err := mpi.SsendInit(c, out[:1], peer, 2)
	if err != nil {
		return err
	}
	recv, err := mpi.RecvInit(c, in, peer, mpi.AnyTag)
	if err != nil {
		return err
	}
	if st, err := recv.Wait(ctx); err != nil || st != none {
		return fmt.Errorf("wait for an inactive one: %+v, %v", st, err)
	}
	if st, done, err := send.Test(); err != nil || !done || st != none {
		return fmt.Errorf("test of an inactive one: %+v, %v, %v", st, done, err)
	}
	for round := range 50 {
		s := send
		if round%2 == 1 {
			s = ssend
		}
		out[0] = int64(round) // The contents at Start are sent.
		if err := startAndWait(ctx, recv, s, round%3 == 0); err != nil {
			return err
		}
		if in[0] != int64(round) || recv.Request() != (mpi.Request{}) {
			return fmt.Errorf("round %d: got %d", round, in[0])
		}
	}
	return canceledAndFreed(ctx, c, send, recv)
}

// startAndWait starts both operations and waits for them.
func startAndWait(ctx context.Context, recv, send *mpi.Persistent, together bool) error {
	if err := errors.Join(recv.Start(), send.Start()); err != nil {
		return err
	}
	if err := wants("start of an active one", recv.Start(), mpi.ErrPending); err != nil {
		return err
	}
	if together {
		return mpi.WaitAll(ctx, []mpi.Request{recv.Request(), send.Request()}, nil)
	}
	if _, err := send.Wait(ctx); err != nil {
		return err
	}
	for {
		if _, done, err := recv.Test(); done || err != nil {
			return err
		}
		runtime.Gosched()
	}
}

// canceledAndFreed cancels and frees active and inactive operations.
func canceledAndFreed(ctx context.Context, c *mpi.Comm, send, recv *mpi.Persistent) error {
	// The context of Wait ends the wait only; Cancel ends the operation.
	if err := recv.Start(); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err := recv.Wait(short)
	if err := errors.Join(wants("wait", err, mpi.ErrTimeout), wants("start", recv.Start(), mpi.ErrPending), recv.Request().Cancel()); err != nil {
		return err
	}
	if st, err := recv.Wait(ctx); err != nil || !st.Canceled {
		return fmt.Errorf("canceled: %+v, %v", st, err)
	}
	// Both ranks are past their canceled receive before anything is sent.
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	// An active request is freed. Its operation still completes.
	if err := errors.Join(recv.Start(), recv.Free(), send.Start()); err != nil {
		return err
	}
	if _, err := send.Wait(ctx); err != nil {
		return err
	}
	nothing, err := c.SendInit(nil, mpi.ProcNull, 0)
	if err != nil {
		return err
	}
	for range 2 {
		if err := nothing.Start(); err != nil {
			return err
		}
		if st, err := nothing.Wait(ctx); err != nil || st != null {
			return fmt.Errorf("ProcNull: %+v, %v", st, err)
		}
	}
	_, waitErr := recv.Wait(ctx)
	_, _, testErr := recv.Test()
	_, initErr := c.SendInit(nil, 9, 0)
	_, tagErr := c.RecvInit(nil, 0, -7)
	_, typeErr := mpi.SendInit(c, []any{1}, 0, 0)
	var zero mpi.Persistent
	if err := errors.Join(wants("wait after Free", waitErr, mpi.ErrClosed), wants("test after Free", testErr, mpi.ErrClosed),
		wants("start after Free", recv.Start(), mpi.ErrClosed), wants("a second Free", recv.Free(), mpi.ErrClosed),
		wants("a wrong rank at Init", initErr, mpi.ErrRank), wants("a wrong tag at Init", tagErr, mpi.ErrTag),
		wants("pointers at Init", typeErr, mpi.ErrType), wants("the zero one", zero.Start(), mpi.ErrClosed), send.Free()); err != nil {
		return err
	}
	d, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	late, err := d.SendInit(nil, 1-c.Rank(), 0)
	return errors.Join(err, d.Close(), wants("start on a closed communicator", late.Start(), mpi.ErrClosed))
}

func TestWaitSome_SeveralComplete_TakesAll(t *testing.T) { ranks(t, 2, inWorld(some)) }

func some(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	const n = 30
	done, st := make([]int, n), make([]mpi.Status, n)
	if k, err := mpi.WaitSome(ctx, nil, nil, nil); k != mpi.Undefined || err != nil {
		return fmt.Errorf("no requests: %d, %v", k, err)
	}
	if k, err := mpi.TestSome(make([]mpi.Request, 2), done, nil); k != mpi.Undefined || err != nil {
		return fmt.Errorf("inactive requests: %d, %v", k, err)
	}
	peer := 1 - c.Rank()
	reqs := make([]mpi.Request, n)
	bufs := make([][1]byte, n)
	for i := range reqs {
		var err error
		if reqs[i], err = c.Irecv(bufs[i][:], peer, i); err != nil {
			return err
		}
	}
	_, fewIndices := mpi.TestSome(reqs, done[:1], st)
	_, fewStatuses := mpi.WaitSome(ctx, reqs, done, st[:1])
	if err := errors.Join(wants("too few indices", fewIndices, mpi.ErrTruncate), wants("too few statuses", fewStatuses, mpi.ErrTruncate)); err != nil {
		return err
	}
	if k, err := mpi.TestSome(reqs, done, st); k != 0 || err != nil {
		return fmt.Errorf("TestSome before any was sent: %d, %v", k, err)
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	k, err := mpi.WaitSome(short, reqs, done, st)
	if err := errors.Join(wants("WaitSome past its deadline", err, mpi.ErrTimeout), must(k == 0, "%d are complete", k), mpi.Barrier(ctx, c)); err != nil {
		return err
	}
	for i := n - 1; i >= 0; i-- {
		if err := c.Send(ctx, make([]byte, 1+i%2), peer, i); err != nil { // every other one is too long
			return err
		}
	}
	var all []int
	for {
		k, err := mpi.WaitSome(ctx, reqs, done, st)
		if k == mpi.Undefined {
			if err != nil {
				return err
			}
			break
		}
		failed := false
		for j, i := range done[:k] {
			if st[j].Tag != i || st[j].Source != peer || st[j].Bytes != 1+i%2 || errors.Is(st[j].Err, mpi.ErrTruncate) != (i%2 == 1) {
				return fmt.Errorf("request %d: %+v", i, st[j])
			}
			failed = failed || i%2 == 1
		}
		if errors.Is(err, mpi.ErrTruncate) != failed {
			return fmt.Errorf("%v: %w", done[:k], err)
		}
		all = append(all, done[:k]...)
	}
	slices.Sort(all)
	for i := range n {
		if all[i] != i {
			return fmt.Errorf("each request once: %v", all)
		}
	}
	return mpi.Barrier(ctx, c)
}

func TestRequest_SessionClosed_ReturnsErrClosed(t *testing.T) {
	noLeak(t)
	s, c := singleton(t)
	old, err := c.Irecv(make([]byte, 1), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Wait(t.Context()); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("wait after the last session: %v", err)
	}
}

func TestWait_RequestsOfTwoSessions_Complete(t *testing.T) {
	s, c := singleton(t)
	old, err := c.Irecv(make([]byte, 1), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, c = singleton(t)
	fresh, err := c.Irecv(make([]byte, 1), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	reqs := []mpi.Request{old, fresh}
	if done, err := mpi.TestAll(reqs, nil); done || err != nil {
		t.Errorf("TestAll: %v, %v", done, err)
	}
	if i, _, err := mpi.WaitAny(t.Context(), reqs); i != 0 || !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("WaitAny: %d, %v", i, err)
	}
	if err := c.Send(t.Context(), []byte{1}, 0, 0); err != nil {
		t.Fatal(err)
	}
	if i, _, err := mpi.WaitAny(t.Context(), reqs); i != 1 || err != nil {
		t.Errorf("WaitAny: %d, %v", i, err)
	}
}
