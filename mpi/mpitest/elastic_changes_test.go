package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// Each rank grows and shrinks a separate set.
func TestJob_DisjointChanges_AreIndependent(t *testing.T) {
	const size = 3
	onStacks(t, mpitest.Job{Size: size, MaxRanks: 3 * size}, func(ctx context.Context) error {
		m, err := join(ctx)
		if err != nil {
			return err
		}
		if m.rank >= size {
			return m.run(ctx, nil)
		}
		names := make([]string, size)
		if m.rank == 0 {
			if names, err = m.s.PsetOp(ctx, mpi.PsetSplit, []string{m.main}, mpi.PsetArgs{Sizes: []int{1, 1, 1}}); err != nil {
				return err
			}
		}
		for i := range names {
			if names[i], err = m.share(ctx, names[i]); err != nil {
				return err
			}
		}
		own, err := m.s.PsetOp(ctx, mpi.PsetUnion, []string{names[m.rank]}, mpi.PsetArgs{})
		if err != nil {
			return err
		}
		m.main = own[0]
		if err := m.communicate(ctx); err != nil {
			return err
		}
		return m.run(ctx, []step{
			{mpi.PsetGrow, mpi.PsetArgs{Add: 2}, 3}, {mpi.PsetShrink, mpi.PsetArgs{Sub: 1}, 2},
			{mpi.PsetReplace, mpi.PsetArgs{Sub: 1, Add: 1}, 2}, {mpi.PsetShrink, mpi.PsetArgs{Sub: 1}, 1},
		})
	})
}

// provided is the program of the members of a change. Rank 1 provides a name.
func provided(ctx context.Context) error {
	m, err := join(ctx)
	if err != nil {
		return err
	}
	if m.rank == 2 {
		if m.main != "org.example.next" {
			return fmt.Errorf("the added rank has the main set %q", m.main)
		}
		return errors.Join(m.c.Close(), m.s.Close())
	}
	if m.rank == 0 {
		names, err := m.s.PsetOp(ctx, mpi.PsetGrow, []string{m.main}, mpi.PsetArgs{Add: 1, Name: "org.example.main"})
		if err != nil {
			return err
		}
		if err := m.s.PublishData(ctx, m.main, "delta", []byte(names[0])); err != nil {
			return err
		}
	}
	delta, err := m.s.LookupData(ctx, m.main, "delta")
	if err != nil {
		return err
	}
	provide := ""
	if m.rank == 1 {
		next, err := m.s.PsetOp(ctx, mpi.PsetUnion, []string{"org.example.main"}, mpi.PsetArgs{Name: "org.example.next"})
		if err != nil {
			return err
		}
		provide = next[0]
	}
	got, err := m.s.Integrate(ctx, string(delta), provide)
	if err != nil || got != (mpi.Integration{Pset: "org.example.next"}) {
		return fmt.Errorf("integrate: %+v, %w", got, err)
	}
	m.main = got.Pset
	if err := m.communicate(ctx); err != nil {
		return err
	}
	if m.rank == 1 {
		if err := m.s.FinishChange(ctx, string(delta)); err != nil { // Which another member requested.
			return err
		}
	}
	return errors.Join(m.c.Close(), m.s.Close())
}

func TestIntegrate_ProvidedName_IsTheMainSet(t *testing.T) {
	onStacks(t, mpitest.Job{Size: 2, MaxRanks: 3}, provided)
}

// asynchronous grows the job by one rank and back, with each call's Async form.
func asynchronous(ctx context.Context) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	main, isAdded := "mpi://WORLD", mpitest.Client(ctx).Identity().FirstRank > 0
	for i, step := range []step{{mpi.PsetGrow, mpi.PsetArgs{Add: 1}, 3}, {mpi.PsetShrink, mpi.PsetArgs{Sub: 1}, 2}} {
		if isAdded && i == 0 {
			main = "mpi://SELF"
		}
		arrival := s.ResourceChangeAsync(main)
		var operation *mpi.Future[[]string]
		isRequester := mpitest.Client(ctx).Identity().Proc.Rank == 0
		if isRequester {
			operation = s.PsetOpAsync(step.op, []string{main}, step.args)
		}
		change, err := arrival.Wait(ctx)
		if err != nil {
			return err
		}
		integration := s.IntegrateAsync(change.Delta, "")
		got, err := integration.Wait(ctx)
		if err != nil || got.Pset != change.Main || got.Terminate != (isAdded && i == 1) {
			return fmt.Errorf("integrate: %+v, %w", got, err)
		}
		if got.Terminate {
			break
		}
		before := main
		main = got.Pset
		if !isRequester {
			continue
		}
		names, err := operation.Wait(ctx)
		if err != nil || names[0] != change.Delta {
			return fmt.Errorf("operation: %q, %w", names, err)
		}
		if _, err := s.FinishChangeAsync(change.Delta).Wait(ctx); err != nil {
			return err
		}
		if i == 1 {
			if _, err := s.DeletePsetAsync(before).Wait(ctx); err != nil {
				return err
			}
		}
	}
	return s.Close()
}

func TestFuture_WholeChanges_Complete(t *testing.T) {
	t.Parallel()
	mpitest.Job{Size: 2, MaxRanks: 3}.RunSessions(t, asynchronous)
}

func TestDeletePset_CreatorHasEnded_MemberDeletes(t *testing.T) {
	t.Parallel()
	mpitest.Job{Size: 3}.RunSessions(t, func(ctx context.Context) error {
		m, err := join(ctx)
		if err != nil {
			return err
		}
		if m.rank == 2 {
			if _, err := m.s.PsetOp(ctx, mpi.PsetUnion, []string{"mpi://WORLD"}, mpi.PsetArgs{Name: "org.example.all"}); err != nil {
				return err
			}
			if _, err := m.s.PsetOp(ctx, mpi.PsetSub, []string{"org.example.all"}, mpi.PsetArgs{Sub: 1, Name: "org.example.leave"}); err != nil {
				return err
			}
		}
		if err := mpi.Barrier(ctx, m.c); err != nil {
			return err
		}
		if m.rank == 1 {
			if err := m.s.DeletePset(ctx, "org.example.all"); !errors.Is(err, mpi.ErrPending) {
				return fmt.Errorf("delete of a set that a change uses: %w", err)
			}
		}
		if err := mpi.Barrier(ctx, m.c); err != nil {
			return err
		}
		if _, err := m.s.Integrate(ctx, "org.example.leave", ""); err != nil {
			return err
		}
		// The requester leaves. The server finishes the change when it has ended.
		switch m.rank {
		case 1:
			for {
				err := m.s.DeletePset(ctx, "org.example.all")
				if err == nil {
					break
				}
				if !errors.Is(err, mpi.ErrPending) && !errors.Is(err, mpi.ErrUnsupported) {
					return err
				}
			}
			if err := m.c.Send(ctx, nil, 0, 0); err != nil {
				return err
			}
		case 0:
			if _, err := m.c.Recv(ctx, nil, 1, 0); err != nil {
				return err
			}
			_, err := m.s.LookupData(ctx, "org.example.all", "key")
			if !errors.Is(err, mpi.ErrPset) || !strings.Contains(err.Error(), "rank 1") {
				return fmt.Errorf("a lookup does not name the deleting rank: %w", err)
			}
		}
		return errors.Join(m.c.Close(), m.s.Close())
	})
}

func TestSegments_OfRanksThatLeft_AreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	segments := func() (int, error) {
		files, err := os.ReadDir(dir)
		return len(files), err
	}
	mpitest.Job{Size: 1, MaxRanks: 4, Params: map[string]string{"btl.shm.dir": dir}}.RunSessions(t, func(ctx context.Context) error {
		m, err := join(ctx)
		if err != nil {
			return err
		}
		if m.rank > 0 {
			return m.run(ctx, nil)
		}
		alone, err := segments()
		if err != nil || alone == 0 {
			return fmt.Errorf("%d segments of one rank: %w", alone, err)
		}
		for range 3 {
			for _, x := range []step{{mpi.PsetGrow, mpi.PsetArgs{Add: 3}, 4}, {mpi.PsetShrink, mpi.PsetArgs{Sub: 3}, 1}} {
				if _, err := m.change(ctx, &x); err != nil {
					return err
				}
			}
			for n := 0; n != alone; { // Until the ranks that left have closed their sessions.
				if n, err = segments(); err != nil || ctx.Err() != nil {
					return fmt.Errorf("%d segments: %w", n, errors.Join(err, context.Cause(ctx)))
				}
			}
		}
		return m.run(ctx, nil)
	})
	if n, err := segments(); n != 0 || err != nil {
		t.Errorf("%d segments are left: %v", n, err)
	}
}
