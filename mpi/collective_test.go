package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

func TestCollectives_AllOperations_MatchReference(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { ranks(t, n, inWorld(collectives)) })
	}
}

// matrix has a multiplication that does not commute.
type matrix [2][2]uint64

func (a matrix) times(b matrix) (c matrix) {
	for i := range c {
		for j := range c[i] {
			c[i][j] = a[i][0]*b[0][j] + a[i][1]*b[1][j]
		}
	}
	return c
}

func collectives(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	product := mpi.NewOp(func(inout, in []matrix) {
		for i := range in {
			inout[i] = in[i].times(inout[i])
		}
	}, false)
	of := func(rank, i int) matrix { return matrix{{uint64(rank + 1), uint64(i)}, {1, uint64(rank)}} }
	for _, count := range []int{0, 1, 3, 5000} {
		send, want := make([]matrix, count), make([]matrix, count)
		for i := range send {
			send[i], want[i] = of(c.Rank(), i), of(0, i)
			for r := 1; r < c.Size(); r++ {
				want[i] = want[i].times(of(r, i))
			}
		}
		recv := make([]matrix, count)
		if err := mpi.Allreduce(ctx, c, send, recv, product); err != nil {
			return err
		}
		for i := range recv {
			if recv[i] != want[i] {
				return fmt.Errorf("allreduce of %d: element %d is %v, want %v", count, i, recv[i], want[i])
			}
		}
		for root := range c.Size() {
			var out []matrix
			in := send
			if c.Rank() == root {
				out = append([]matrix(nil), send...)
				in = nil // in place
			}
			if count == 0 {
				in, out = nil, nil
			}
			if err := mpi.Reduce(ctx, c, in, out, product, root); err != nil {
				return err
			}
			if err := mpi.Bcast(ctx, c, recv, root); err != nil {
				return err
			}
			for i := range out {
				if out[i] != want[i] || recv[i] != want[i] {
					return fmt.Errorf("reduce of %d to %d: element %d is %v, want %v", count, root, i, out[i], want[i])
				}
			}
		}
	}
	return mpi.Barrier(ctx, c)
}

func TestCollective_ContextEnds_BreaksCollectives(t *testing.T) { ranks(t, 2, inWorld(broken)) }

func broken(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	d, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		if err := wants("a barrier that no other member enters", mpi.Barrier(short, d), mpi.ErrTimeout); err != nil {
			return err
		}
		_, dup := d.Dup(ctx)
		_, split := d.Split(ctx, 0, 0)
		if err := errors.Join(wants("the next one", mpi.Barrier(ctx, d), mpi.ErrBroken),
			wants("dup", dup, mpi.ErrBroken), wants("split", split, mpi.ErrBroken)); err != nil {
			return err
		}
	}
	// Messages still pass, and other communicators are whole.
	peer := 1 - c.Rank()
	if _, err := d.Sendrecv(ctx, []byte{1}, peer, 0, make([]byte, 1), peer, 0); err != nil {
		return err
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	// The second of two goroutines in collectives of one communicator is refused.
	if c.Rank() == 0 {
		inside := make(chan error)
		go func() { inside <- mpi.Bcast(ctx, c, make([]byte, 1), 1) }()
		for waiting := false; !waiting; runtime.Gosched() {
			x, err := c.Inspect()
			if err != nil {
				return err
			}
			waiting = len(x.Posted) > 0
		}
		_, err := c.Dup(ctx)
		if err := errors.Join(wants("dup", err, mpi.ErrPending), wants("barrier", mpi.Barrier(ctx, c), mpi.ErrPending)); err != nil {
			return err
		}
		if err := c.Send(ctx, nil, 1, 1); err != nil {
			return err
		}
		if err := <-inside; err != nil {
			return err
		}
	} else {
		if _, err := c.Recv(ctx, nil, 0, 1); err != nil {
			return err
		}
		if err := mpi.Bcast(ctx, c, make([]byte, 1), 1); err != nil {
			return err
		}
	}
	return d.Close()
}

func TestOp_Panics_BreaksOnlyCollectives(t *testing.T) {
	ranks(t, 2, inWorld(panickedOperation))
}

// panickedOperation: the operation panics in rank 1, which recovers, as an HTTP server
// does for a handler; or ends its goroutine, as a test's Fatal does.
func panickedOperation(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	for _, end := range []func(){func() { panic("no such sum") }, runtime.Goexit} {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		sum := mpi.NewOp(func(inout, in []int) {
			if c.Rank() == 1 {
				end()
			}
			inout[0] += in[0]
		}, true)
		done := make(chan error)
		go func() {
			err := errors.New("it did not return")
			defer func() { recover(); done <- err }()
			err = mpi.Allreduce(ctx, d, []int{1}, make([]int, 1), sum)
		}()
		err = <-done
		if c.Rank() == 0 && err != nil {
			return fmt.Errorf("the other member: %w", err)
		}
		if c.Rank() == 1 {
			broken := mpi.Barrier(ctx, d)
			_, dup := d.Dup(ctx)
			if err := errors.Join(must(err != nil, "the panic was swallowed"),
				wants("the next one", broken, mpi.ErrBroken), wants("dup", dup, mpi.ErrBroken),
				must(strings.Contains(fmt.Sprint(broken), "allreduce: an operation or hook of the program panicked"), "%v", broken)); err != nil {
				return err
			}
		}
		peer := 1 - c.Rank()
		if _, err := d.Sendrecv(ctx, []byte{1}, peer, 0, make([]byte, 1), peer, 0); err != nil {
			return fmt.Errorf("a message: %w", err)
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	return nil
}
