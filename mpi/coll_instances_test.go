package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// withHeap runs ranks that have a collective component with instances.
func withHeap(t *testing.T, h *colltest.Heap, n int, f mpitest.Program) {
	t.Helper()
	mpitest.Job{Size: n, Options: func(int) []mpi.SessionOption {
		reg := components.Standard()
		reg.Register(h.Component())
		return []mpi.SessionOption{mpi.WithRegistry(reg)}
	}}.Run(t, f)
	if _, left := h.OpenInstances(); left != 0 {
		t.Errorf("%d instances are open", left)
	}
}

// gathers runs the operations that the component offers, and others, blocking and nonblocking.
func gathers(ctx context.Context, c *mpi.Comm) error {
	n, me := c.Size(), c.Rank()
	var want []int
	for rank := range n {
		want = append(want, rank, -rank)
	}
	blocking, sum := make([]int, 2*n), []int{me}
	if err := errors.Join(mpi.Barrier(ctx, c), mpi.Allgather(ctx, c, []int{me, -me}, blocking), mpi.Allreduce(ctx, c, nil, sum, mpi.Sum[int]())); err != nil {
		return err
	}
	got, reqs := make([][]int, 20), make([]mpi.Request, 21)
	var err error
	for i := range got {
		got[i] = make([]int, 2*n)
		if reqs[i], err = mpi.Iallgather(c, []int{me, -me}, got[i]); err != nil {
			return err
		}
	}
	if reqs[20], err = mpi.Ibarrier(c); err != nil {
		return err
	}
	if err := errors.Join(mpi.Barrier(ctx, c), mpi.WaitAll(ctx, reqs, nil)); err != nil {
		return err
	}
	for _, g := range append(got, blocking) {
		if !slices.Equal(g, want) {
			return fmt.Errorf("allgather: %v, want %v", g, want)
		}
	}
	return must(sum[0] == n*(n-1)/2, "the sum is %d", sum[0])
}

func TestInstances_SecondCollective_OpensThem(t *testing.T) {
	var h colltest.Heap
	withHeap(t, &h, 4, func(ctx context.Context, world *mpi.Comm) error {
		for range 10 { // one collective each
			c, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(mpi.Barrier(ctx, c), c.Close()); err != nil {
				return err
			}
		}
		if opened, _ := h.OpenInstances(); opened != 0 {
			return fmt.Errorf("%d instances for communicators with a single collective", opened)
		}
		if err := gathers(ctx, world); err != nil {
			return err
		}
		c, err := world.Split(ctx, world.Rank()%2, 0)
		if err != nil {
			return err
		}
		if err := gathers(ctx, c); err != nil {
			return err
		}
		r, err := mpi.Ibarrier(c) // under way when it closes
		if err != nil {
			return err
		}
		err = c.Close()
		_, waited := r.Wait(ctx)
		return errors.Join(err, waited)
	})
	if opened, _ := h.OpenInstances(); opened != 8 {
		t.Errorf("%d instances, want one for each rank of the world and of its halves", opened)
	}
}

// Otherwise the members would run different algorithms.
func TestInstances_OneMemberFails_AllOmitComponent(t *testing.T) {
	for name, h := range map[string]*colltest.Heap{"open": {FailOpen: 2}, "join": {FailJoin: 3}} {
		t.Run(name, func(t *testing.T) {
			withHeap(t, h, 4, gathers)
		})
	}
}

// No message reports the failure to a member that waits in shared memory.
func TestInstances_CollectivesBreak_WaitsEnd(t *testing.T) {
	var h colltest.Heap
	withHeap(t, &h, 4, func(ctx context.Context, world *mpi.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := gathers(ctx, c); err != nil {
			return err
		}
		switch c.Rank() {
		case 0:
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			err = wants("a barrier", mpi.Barrier(short, c), mpi.ErrTimeout)
		case 1: // never comes
		case 2:
			r, start := mpi.Ibarrier(c)
			if start == nil {
				_, start = r.Wait(ctx)
			}
			err = wants("a nonblocking barrier", start, mpi.ErrBroken)
		case 3:
			err = wants("a barrier", mpi.Barrier(ctx, c), mpi.ErrBroken)
		}
		return errors.Join(err, mpi.Barrier(ctx, world))
	})
	if n, err := h.Withdrawn(); n != 3 || err != nil {
		t.Errorf("%d calls were withdrawn, want those of ranks 0, 2 and 3: %v", n, err)
	}
}

// Otherwise one member would post data that another one expects as a message.
func TestInstances_ThresholdsDiffer_AreOmitted(t *testing.T) {
	mpitest.Job{Size: 3, Options: func(rank int) []mpi.SessionOption {
		if rank != 1 {
			return nil
		}
		return []mpi.SessionOption{mpi.WithParam("coll.shm.most", "8KiB")}
	}}.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		buf := make([]byte, 16<<10)
		buf[0] = byte(c.Rank() + 1)
		for range 3 {
			if err := mpi.Bcast(ctx, c, buf, 0); err != nil {
				return err
			}
		}
		return must(buf[0] == 1, "%d came", buf[0])
	})
}

func TestPersistentCollective_AmongNeighbors_OpensNoInstance(t *testing.T) {
	t.Parallel()
	h := new(colltest.Heap)
	withHeap(t, h, 2, func(ctx context.Context, c *mpi.Comm) error {
		cart, err := mpi.NewCart(ctx, c, []int{2}, []bool{true}, false)
		if err != nil {
			return err
		}
		d, got := cart.Comm(), make([]int, 2)
		p, err := mpi.NeighborAllgatherInit(ctx, d, []int{c.Rank() + 1}, got)
		if err != nil {
			return err
		}
		if opened, _ := h.OpenInstances(); opened != 0 {
			return fmt.Errorf("%d instances were opened", opened)
		}
		if err := p.Start(); err != nil {
			return err
		}
		_, err = p.Wait(ctx)
		return errors.Join(err, must(got[0] == 2-c.Rank() && got[1] == got[0], "received %v", got), p.Free(), d.Close())
	})
}

func TestSessionClose_InstancesAwaitACollective_ClosesThem(t *testing.T) {
	var h colltest.Heap
	withHeap(t, &h, 2, func(ctx context.Context, world *mpi.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		if err := gathers(ctx, c); err != nil {
			return err
		}
		leaveCollective := mpi.HoldCollectives(c)
		err = c.Close()
		leaveCollective()
		return errors.Join(err, mpi.Barrier(ctx, world))
	})
}
