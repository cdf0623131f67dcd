package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// inLevels runs ranks on nodes. Their communicators are created in levels.
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

// A child uses members for the first time after the communicator with the table has been closed.
func TestRoots_ParentClosed_ChildReachesMembers(t *testing.T) {
	for name, params := range map[string]map[string]string{"shared": nil, "no shared memory": {"btl": "^shm"}} {
		t.Run(name, func(t *testing.T) {
			inLevels(t, 6, 3, childOfClosed, params)
		})
	}
}

func childOfClosed(ctx context.Context) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, world, "parent")
	if err != nil {
		return err
	}
	size := c.Size()
	reverse, err := c.Split(ctx, 0, size-c.Rank())
	if err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	c = nil
	for range 3 {
		runtime.GC()
	}
	for step := range size {
		buf := make([]byte, 8)
		if _, err := reverse.Sendrecv(ctx, []byte{byte(reverse.Rank())}, (reverse.Rank()+step)%size, 1, buf, (reverse.Rank()+size-step)%size, 1); err != nil {
			return err
		}
		if int(buf[0]) != (reverse.Rank()+size-step)%size {
			return fmt.Errorf("message of rank %d in step %d", buf[0], step)
		}
	}
	return errors.Join(reverse.Close(), s.Close())
}

// Creations whose contexts end at random leave the session and the other communicators working.
func TestRoots_ContextsEnd_RestWorks(t *testing.T) {
	inLevels(t, 5, 3, inWorld(seed(t).endedCreations), map[string]string{"bootstrap.timeout": "20s"})
}

// Each member names the ranks that never call, and no other one, wherever these are.
func TestRoots_MemberNeverCalls_AllNameIt(t *testing.T) {
	for _, absent := range [][]int{{1}, {0}, {2}, {5}, {1, 4}, {2, 3}} {
		t.Run(fmt.Sprint(absent), func(t *testing.T) { lateCreations(t, &lateCreation{absent: absent, ending: -1}) })
	}
}

// lateCreation is a creation of six ranks on three nodes. Some of them never call.
type lateCreation struct {
	absent []int
	// Rank with a context that ends early, or -1.
	ending int

	// All ranks are ready before the first one calls, and keep their sessions open until the last call has failed.
	ready, failed sync.WaitGroup
	// An error names the root of a node that waits for another member.
	hasNotes atomic.Bool
}

// lateCreations runs a creation until no error has a note. A root names another root if its deadline at level 1 passes before the other one has reported
// the deadline of level 0, which is a sixteenth of bootstrap.timeout earlier. A machine that delays processes by that time gets a longer timeout.
func lateCreations(t *testing.T, c *lateCreation) {
	t.Parallel()
	for _, timeout := range []string{"8s", "32s", "128s"} {
		c.ready.Add(6)
		c.failed.Add(6 - len(c.absent))
		c.hasNotes.Store(false)
		mpitest.Job{Size: 6, Nodes: 3, Params: map[string]string{"bootstrap.roots_from": "0", "bootstrap.timeout": timeout}}.RunSessions(t, c.call)
		if t.Failed() || !c.hasNotes.Load() {
			return
		}
		t.Logf("with a timeout of %s, an error names the root of another node", timeout)
	}
	t.Error("errors name roots of nodes that wait for another member")
}

// call is the part of a rank.
func (c *lateCreation) call(ctx context.Context) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	c.ready.Done()
	c.ready.Wait()
	if !slices.Contains(c.absent, world.Rank()) {
		call := ctx
		if c.ending == world.Rank() {
			var cancel context.CancelFunc
			call, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
		}
		_, err = mpi.CommFromGroup(call, world, "late")
		c.failed.Done()
		if call == ctx {
			err = c.check(err)
		} else {
			err = errors.Join(wants("the call", err, context.DeadlineExceeded), wants("the call", err, mpi.ErrTimeout))
		}
		if err != nil {
			return fmt.Errorf("rank %d: %w", world.Rank(), err)
		}
	}
	c.failed.Wait()
	return s.Close()
}

// check checks the names in the error of a member.
func (c *lateCreation) check(err error) error {
	m, ok := errors.AsType[*mpi.MissingError](err)
	if !ok || !errors.Is(err, mpi.ErrTimeout) || len(m.Missing) == 0 || len(m.Failed) > 0 {
		return fmt.Errorf("%w, want the missing ranks", err)
	}
	for _, p := range m.Missing {
		rank := int(p.Rank)
		switch {
		case slices.Contains(c.absent, rank) || rank == c.ending:
		case rank%2 == 0 && strings.Contains(err.Error(), "its node may wait"):
			c.hasNotes.Store(true)
		default:
			return fmt.Errorf("rank %d is named: %w", rank, err)
		}
	}
	return nil
}

// The deadline of one member's context ends its call. The others name it, and the rank that never calls.
func TestRoots_ContextHasDeadline_OthersNameTheMember(t *testing.T) {
	for _, ending := range []int{0, 2, 3, 5} {
		t.Run(fmt.Sprint(ending), func(t *testing.T) { lateCreations(t, &lateCreation{absent: []int{1}, ending: ending}) })
	}
}

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

// The tables of a communicator that was created in levels have no records of streams, and are freed with it.
func TestRoots_StreamsOfSomeMembers_Work(t *testing.T) {
	inLevels(t, 6, 3, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		parent, err := mpi.CommFromGroup(ctx, world.Group(), "parent")
		if err != nil {
			return err
		}
		var comms []*mpi.Comm
		for i := range 3 { // No member, every second one, and all.
			var stream *mpi.Stream
			if i == 2 || i == 1 && parent.Rank()%2 == 1 {
				if stream, err = s.NewStream(); err != nil {
					return err
				}
			}
			c, err := parent.WithStream(ctx, stream)
			if err != nil {
				return err
			}
			comms = append(comms, c)
		}
		if err := errors.Join(parent.Close(), mpi.Barrier(ctx, world)); err != nil {
			return err
		}
		runtime.GC()
		var errs []error
		for _, c := range comms {
			errs = append(errs, ring(ctx, c, 1), sumOfRanks(ctx, c), sumOfRanks(ctx, c), c.Close())
		}
		return errors.Join(errs...)
	}), nil)
}
