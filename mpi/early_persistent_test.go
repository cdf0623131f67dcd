package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// Rank 0 starts each operation, and calls nothing of the library for its communicator before rank 1 has completed it.
func TestPersistentCollective_PeerHasOnlyStarted_Completes(t *testing.T) {
	stacks := maps.Clone(stacksOfRevoke)
	stacks["segment of small slots"] = map[string]string{"coll.shm.area_size": "4KiB", "coll.force": forced("shm", "barrier", "bcast", "reduce", "allreduce", "scan", "gather", "allgather", "alltoall")}
	for name, params := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := jobOf(2, params)
			job.Timeout = 2 * time.Minute // Small slots take thousands of turns of both ranks.
			job.Run(t, startedOnly)
		})
	}
}

func startedOnly(ctx context.Context, c *mpi.Comm) error {
	for _, n := range []int{1, 2_000, 50_000} {
		send, recv, all, op := make([]byte, n), make([]byte, n), make([]byte, 2*n), mpi.Sum[byte]()
		for _, x := range []struct {
			name string
			init func() (*mpi.Persistent, error)
		}{
			{"barrier", func() (*mpi.Persistent, error) { return mpi.BarrierInit(ctx, c) }},
			{"bcast", func() (*mpi.Persistent, error) { return mpi.BcastInit(ctx, c, recv, 0) }},
			{"reduce", func() (*mpi.Persistent, error) { return mpi.ReduceInit(ctx, c, send, recv, op, 1) }},
			{"allreduce", func() (*mpi.Persistent, error) { return mpi.AllreduceInit(ctx, c, send, recv, op) }},
			{"scan", func() (*mpi.Persistent, error) { return mpi.ScanInit(ctx, c, send, recv, op) }},
			{"gather", func() (*mpi.Persistent, error) { return mpi.GatherInit(ctx, c, send, all, 1) }},
			{"allgather", func() (*mpi.Persistent, error) { return mpi.AllgatherInit(ctx, c, send, all) }},
			{"alltoall", func() (*mpi.Persistent, error) { return mpi.AlltoallInit(ctx, c, all, make([]byte, 2*n)) }},
		} {
			p, err := x.init()
			for range 20 { // More than a member may be ahead in a collective segment.
				if err = errors.Join(err, p.Start()); err == nil && c.Rank() == 0 {
					_, err = c.Recv(ctx, nil, 1, 0)
				}
				if err == nil {
					_, err = p.Wait(ctx)
				}
				if err == nil && c.Rank() == 1 {
					err = c.Send(ctx, nil, 0, 0)
				}
				if err != nil {
					return fmt.Errorf("%s of %d bytes: %w", x.name, n, err)
				}
			}
			if err := p.Free(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Every use of a started operation continues it, and the next start is the same operation.
func TestPersistentCollective_UsedByOtherCallsThanWait_Completes(t *testing.T) {
	ranks(t, 2, inWorld(func(ctx context.Context, _ *mpi.Session, world *mpi.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		in, out := []int{1}, []int{0}
		p, err := mpi.AllreduceInit(ctx, c, in, out, mpi.Sum[int]())
		if err != nil {
			return err
		}
		gone, end := context.WithCancel(ctx)
		end()
		for name, wait := range map[string]func() error{
			"test": func() error {
				for {
					if _, done, err := p.Test(); done || err != nil {
						return err
					}
				}
			},
			"request":  func() error { return second(p.Request().Wait(ctx)) },
			"wait all": func() error { return mpi.WaitAll(ctx, []mpi.Request{p.Request()}, nil) },
			"a second start": func() error {
				return errors.Join(wants("a second start", p.Start(), mpi.ErrPending), second(p.Wait(ctx)))
			},
			"a wait that ends": func() error {
				if _, err := p.Wait(gone); err != nil && !errors.Is(err, context.Canceled) {
					return err
				}
				return second(p.Wait(ctx)) // Of an inactive operation, if it was complete.
			},
		} {
			out[0] = 0
			for range 3 {
				if err := errors.Join(p.Start(), wait(), must(out[0] == 2, "the sum is %d", out[0])); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if err := mpi.Barrier(ctx, world); err != nil { // Members take the forms in different orders.
					return err
				}
			}
		}
		if err := p.Start(); err != nil {
			return err
		}
		if c.Rank() == 0 { // The communicator is closed, and its operation still completes.
			if err := errors.Join(c.Close(), world.Send(ctx, nil, 1, 0)); err != nil {
				return err
			}
		} else if _, err := world.Recv(ctx, nil, 0, 0); err != nil {
			return err
		}
		if _, err := p.Wait(ctx); err != nil {
			return err
		}
		if c.Rank() == 1 {
			err = c.Close()
		}
		return errors.Join(err, p.Free(), mpi.Barrier(ctx, world))
	}))
}

// Another goroutine closes the communicator.
func TestPersistentCollective_CommunicatorClosedDuringPollOfWait_EndsAfterOperation(t *testing.T) {
	ranks(t, 2, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		out := []int{0}
		p, err := mpi.AllreduceInit(ctx, c, []int{1}, out, mpi.Sum[int]())
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			err = errors.Join(mpi.Barrier(ctx, world), p.Start())
		} else if err = p.Start(); err == nil {
			end, isEarly := mpi.PollInWait(p)
			if !isEarly {
				return errors.New("the operation is in the engine")
			}
			closed := make(chan error, 1)
			go func() { closed <- c.Close() }()
			for range 1000 { // Close may return here.
				runtime.Gosched()
			}
			end()
			err = errors.Join(<-closed, must(mpi.HasEnding(s), "the communicator has ended before its operation"), mpi.Barrier(ctx, world))
		}
		if err != nil {
			return err
		}
		_, err = p.Wait(ctx)
		if c.Rank() == 1 {
			err = errors.Join(err, c.Close())
		}
		return errors.Join(err, must(out[0] == 2, "the sum is %d", out[0]), p.Free())
	}))
}
