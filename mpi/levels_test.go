package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// inLevels runs a program of ranks on nodes, whose communicators are created in levels.
func inLevels(t *testing.T, size, nodes int, program func(context.Context) error, params map[string]string) {
	t.Helper()
	t.Parallel()
	job := mpitest.Job{Size: size, Nodes: nodes, Params: map[string]string{"bootstrap.roots_from": "0"}}
	for name, value := range params {
		job.Params[name] = value
	}
	job.RunSessions(t, program)
}

// Communicators of all ranks, of every second one and in the reverse order work, and so do their children.
func TestRoots_AnyStack_CommunicatorsWork(t *testing.T) {
	for name, params := range map[string]map[string]string{
		"ob1+shm+tcp":         nil,
		"no shared memory":    {"btl": "^shm"},
		"ids lazy":            {"cid.policy": "lazy"},
		"ids gather":          {"cid.policy": "gather"},
		"a node of one rank":  nil,
		"small rings for shm": {"btl.shm.ring_size": "4KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			size, nodes := 6, 3
			if name == "a node of one rank" {
				size, nodes = 3, 2
			}
			inLevels(t, size, nodes, inWorld(communicatorsOfLevels), params)
		})
	}
}

func communicatorsOfLevels(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	world := c.Group()
	second, err := world.RangeIncl([]mpi.Range{{First: 0, Last: world.Size() - 1, Stride: 2}})
	if err != nil {
		return err
	}
	reverse, err := world.RangeIncl([]mpi.Range{{First: world.Size() - 1, Last: 0, Stride: -1}})
	if err != nil {
		return err
	}
	for round := range 3 {
		for i, g := range []*mpi.Group{world, second, reverse} {
			if g.Rank() == mpi.Undefined {
				continue
			}
			if err := useCreated(ctx, g, fmt.Sprintf("group %d, round %d", i, round)); err != nil {
				return fmt.Errorf("group %d, round %d: %w", i, round, err)
			}
		}
		if err := mpi.Barrier(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// useCreated creates a communicator, and uses it and a duplicate.
func useCreated(ctx context.Context, g *mpi.Group, tag string) error {
	c, err := mpi.CommFromGroup(ctx, g, tag)
	if err != nil {
		return err
	}
	dup, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	for _, x := range []*mpi.Comm{c, dup} {
		ranks := make([]int, x.Size())
		if err := mpi.Allgather(ctx, x, []int{x.Rank()}, ranks); err != nil {
			return err
		}
		for i, rank := range ranks {
			if rank != i {
				return fmt.Errorf("ranks %v", ranks)
			}
		}
		buf := make([]byte, 100_000)
		next, before := (x.Rank()+1)%x.Size(), (x.Rank()+x.Size()-1)%x.Size()
		if _, err := x.Sendrecv(ctx, slices.Clone(buf), next, 3, buf, before, 3); err != nil {
			return err
		}
	}
	return errors.Join(dup.Close(), c.Close())
}

// Creations whose contexts end at random leave the session and the other communicators working.
func TestRoots_ContextsEnd_RestWorks(t *testing.T) {
	inLevels(t, 5, 3, inWorld(seed(t).endedCreations), map[string]string{"bootstrap.timeout": "20s"})
}

// Each member names the ranks that never call, wherever these are. If the processors are busy, it may name node roots instead, with a note.
func TestRoots_MemberNeverCalls_AllNameIt(t *testing.T) {
	for _, absent := range [][]int{{1}, {0}, {2}, {5}, {1, 4}, {2, 3}} {
		t.Run(fmt.Sprint(absent), func(t *testing.T) {
			// All ranks are ready before the first one calls, and keep their sessions open until the last call has failed.
			var ready, failed sync.WaitGroup
			ready.Add(6)
			failed.Add(6 - len(absent))
			inLevels(t, 6, 3, func(ctx context.Context) error { return lateInLevels(ctx, absent, &ready, &failed) }, map[string]string{"bootstrap.timeout": "8s"})
		})
	}
}

func lateInLevels(ctx context.Context, absent []int, ready, failed *sync.WaitGroup) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	ready.Done()
	ready.Wait()
	if !slices.Contains(absent, world.Rank()) {
		ending, hasEnding := ctx.Value(endingKey{}).(int)
		call := ctx
		if hasEnding && ending == world.Rank() {
			var cancel context.CancelFunc
			call, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
		}
		_, err = mpi.CommFromGroup(call, world, "late")
		failed.Done()
		if call != ctx {
			failed.Wait()
			return errors.Join(wants("the call", err, context.DeadlineExceeded), wants("the call", err, mpi.ErrTimeout), s.Close())
		}
		if hasEnding {
			absent = append(absent, ending)
		}
		m, ok := errors.AsType[*mpi.MissingError](err)
		if !ok || !errors.Is(err, mpi.ErrTimeout) || len(m.Missing) == 0 || len(m.Failed) > 0 {
			return fmt.Errorf("rank %d: %w, want the missing ranks", world.Rank(), err)
		}
		for _, p := range m.Missing {
			isNoted := p.Rank%2 == 0 && strings.Contains(err.Error(), "its node may wait")
			if !slices.Contains(absent, int(p.Rank)) && !isNoted {
				return fmt.Errorf("rank %d names rank %d: %w", world.Rank(), p.Rank, err)
			}
		}
	}
	failed.Wait()
	return s.Close()
}

// The deadline of one member's context ends its call. The others name it, and the rank that never calls.
func TestRoots_ContextHasDeadline_OthersNameTheMember(t *testing.T) {
	for _, ending := range []int{0, 2, 3, 5} {
		t.Run(fmt.Sprint(ending), func(t *testing.T) {
			var ready, failed sync.WaitGroup
			ready.Add(6)
			failed.Add(5)
			inLevels(t, 6, 3, func(ctx context.Context) error {
				if ctx.Value(endingKey{}) == nil {
					ctx = context.WithValue(ctx, endingKey{}, ending)
				}
				return lateInLevels(ctx, []int{1}, &ready, &failed)
			}, map[string]string{"bootstrap.timeout": "8s"})
		})
	}
}

// endingKey is the context key of a rank that ends its context early.
type endingKey struct{}

// A member that dies before or while others create a communicator is named by all of them.
func TestRoots_MemberDies_AllNameIt(t *testing.T) {
	for _, victim := range []int{0, 1, 2, 5} {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			var failed sync.WaitGroup
			failed.Add(5)
			inLevels(t, 6, 3, func(ctx context.Context) error {
				s, err := mpitest.Open(ctx)
				if err != nil {
					return err
				}
				world, err := s.Group(ctx, "mpi://WORLD")
				if err != nil {
					return err
				}
				if world.Rank() == victim {
					mpitest.Die(ctx)
				}
				_, err = mpi.CommFromGroup(ctx, world, "dies")
				failed.Done()
				failed.Wait()
				m, ok := errors.AsType[*mpi.MissingError](err)
				if !ok || !errors.Is(err, mpi.ErrProcFailed) || !slices.Equal(m.Failed, []framework.Proc{world.Members()[victim]}) {
					return fmt.Errorf("rank %d: %w, want the failure of %d", world.Rank(), err, victim)
				}
				return s.Close()
			}, nil)
		})
	}
}

// Members with another value of bootstrap.roots_from do not meet, and the error contains the parameter.
func TestRoots_ValuesDiffer_ErrorNamesParameter(t *testing.T) {
	t.Parallel()
	var failed sync.WaitGroup
	failed.Add(4)
	mpitest.Job{Size: 4, Nodes: 2, Params: map[string]string{"bootstrap.timeout": "1s"}, Options: func(rank int) []mpi.SessionOption {
		return []mpi.SessionOption{mpi.WithParam("bootstrap.roots_from", fmt.Sprint(rank/3))}
	}}.RunSessions(t, func(ctx context.Context) error {
		s, err := mpitest.Open(ctx)
		if err != nil {
			return err
		}
		world, err := s.Group(ctx, "mpi://WORLD")
		if err != nil {
			return err
		}
		_, err = mpi.CommFromGroup(ctx, world, "differ")
		failed.Done()
		failed.Wait()
		if err := must(errors.Is(err, mpi.ErrTimeout) && strings.Contains(err.Error(), "bootstrap.roots_from"), "error %v", err); err != nil {
			return err
		}
		return s.Close()
	})
}
