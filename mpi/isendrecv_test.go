package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/pml"
)

func TestIsendrecv_Cancel_WithdrawsUnmatchedMessages(t *testing.T) {
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobOf(2, params).Run(t, cancelExchange)
		})
	}
	t.Run("goroutine ranks", func(t *testing.T) {
		_, parent := singleton(t)
		tc, err := mpi.NewThreadComm(t.Context(), parent, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tc.Run(t.Context(), cancelExchange), tc.Close()); err != nil {
			t.Error(err)
		}
	})
}

func cancelExchange(ctx context.Context, c *mpi.Comm) error {
	peer, in := 1-c.Rank(), []byte{7}
	// The receive is withdrawn. The send may have left.
	q, err := c.Isendrecv([]byte{1}, peer, 1, in, peer, 2)
	if err != nil {
		return err
	}
	if err := q.Cancel(); err != nil {
		return err
	}
	st, err := q.Wait(ctx)
	if err != nil && !errors.Is(err, mpi.ErrCanceled) || !st.Canceled || in[0] != 7 {
		return fmt.Errorf("withdrawn receive: %+v, %v, contents %v", st, err, in)
	}
	if _, err := q.Wait(ctx); !errors.Is(err, mpi.ErrClosed) {
		return fmt.Errorf("a second Wait: %v", err)
	}
	left := []bool{err != nil}
	if _, err := mpi.SendrecvReplace(ctx, c, left, peer, 4, peer, 4); err != nil {
		return err
	}
	if _, isHere, err := c.Iprobe(peer, 1); err != nil || isHere != left[0] {
		return fmt.Errorf("the message of the peer is here: %t, and has left: %t; %v", isHere, left[0], err)
	}
	if left[0] {
		if _, err := c.Recv(ctx, in, peer, 1); err != nil {
			return err
		}
	}
	// The receive is withdrawn, and its message goes to another one.
	if q, err = c.IsendrecvReplace([]byte{2}, mpi.ProcNull, 0, mpi.AnySource, 3); err != nil {
		return err
	}
	if err := q.Cancel(); err != nil {
		return err
	}
	// A network completes the withdrawal later. Before that the receive may match a message.
	if st, err := q.Wait(ctx); err != nil || !st.Canceled {
		return fmt.Errorf("a receive from any source: %+v, %v", st, err)
	}
	if err := errors.Join(mpi.Barrier(ctx, c), c.Send(ctx, []byte{3}, peer, 3)); err != nil {
		return err
	}
	_, err = c.Recv(ctx, in, mpi.AnySource, 3)
	return errors.Join(err, must(in[0] == 3, "received %d", in[0]), mpi.Barrier(ctx, c))
}

// The exchange completes unseen after Free, and its memory is used by later ones.
func TestIsendrecv_FreedWhileItIsPending_CompletesUnseen(t *testing.T) {
	ranks(t, 2, inWorld(freeExchange))
}

func freeExchange(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	peer := 1 - c.Rank()
	for i := range 20 {
		size := 10 << i % 15
		buf, in := pattern(size, c.Rank()), make([]byte, size)
		q, err := c.IsendrecvReplace(buf, peer, 1, peer, 1)
		if err != nil {
			return err
		}
		if err := q.Free(); err != nil {
			return err
		}
		st, err := c.Sendrecv(ctx, []byte{byte(i)}, peer, 2, in, peer, 2)
		if err != nil || st.Bytes != 1 || in[0] != byte(i) {
			return fmt.Errorf("round %d: %+v, %v", i, st, err)
		}
		if r, err := c.Isendrecv(pattern(size, i), peer, 3, in, peer, 3); err != nil {
			return err
		} else if _, err := r.Wait(ctx); err != nil || string(in) != string(pattern(size, i)) {
			return fmt.Errorf("round %d: the exchange after a freed one: %v", i, err)
		}
	}
	return nil
}

// A hang report names the operations of an exchange as waited for.
func TestInspect_PendingExchange_IsWaitedFor(t *testing.T) {
	_, c := singleton(t)
	q, err := c.Isendrecv(nil, mpi.ProcNull, 0, nil, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := q.Wait(ctx)
		ended <- err
	}()
	for {
		runtime.Gosched()
		x, err := c.Inspect()
		if err != nil {
			t.Fatal(err)
		}
		if len(x.Posted) == 1 && x.Posted[0].Wait == pml.AwaitedLater {
			break
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, mpi.ErrCanceled) {
		t.Errorf("Wait: %v", err)
	}
	if err := q.Cancel(); err != nil {
		t.Error(err)
	}
	if st, err := q.Wait(t.Context()); err != nil || !st.Canceled {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestFlushBuffer_MessagesWithoutReceive_WaitsForThem(t *testing.T) {
	ranks(t, 2, inWorld(flush))
}

func flush(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	const size = 1 << 20
	if c.Rank() == 1 {
		if _, err := c.Recv(ctx, nil, 0, 2); err != nil { // Rank 0 has seen a pending flush.
			return err
		}
		in := make([]byte, size)
		for i := range 2 {
			if _, err := c.Recv(ctx, in, 0, 1); err != nil || string(in) != string(pattern(size, i)) {
				return fmt.Errorf("message %d: %v", i, err)
			}
		}
		return nil
	}
	d, err := c.CreateGroup(ctx, must2(c.Group().Incl(0)), 5)
	if err != nil {
		return err
	}
	for i := range 2 {
		if err := c.Bsend(ctx, pattern(size, i), 1, 1); err != nil {
			return err
		}
	}
	q, err := c.IflushBuffer()
	if err != nil {
		return err
	}
	_, done, err := q.Test()
	short, cancel := context.WithCancel(ctx)
	cancel()
	if err := errors.Join(err, must(!done, "the flush is complete before the receives"), d.FlushBuffer(ctx), d.Close(),
		wants("FlushBuffer of a closed communicator", d.FlushBuffer(ctx), mpi.ErrClosed),
		wants("FlushBuffer of the session", s.FlushBuffer(short), mpi.ErrCanceled), q.Cancel()); err != nil {
		return err
	}
	if _, done, err := q.Test(); done || err != nil {
		return fmt.Errorf("the flush after Cancel: %t, %v", done, err)
	}
	if err := c.Send(ctx, nil, 1, 2); err != nil {
		return err
	}
	if err := s.FlushBuffer(ctx); err != nil {
		return err
	}
	_, done, err = q.Test()
	return errors.Join(err, must(done, "the flush is pending after that of the session"), c.FlushBuffer(ctx))
}

func must2[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
