package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestJob_RankStaysAfterItLeft_IsNamed(t *testing.T) {
	r := &recorder{TB: t}
	r.run(func(t testing.TB) {
		mpitest.Job{Size: 2, Grace: 10 * time.Millisecond}.RunSessions(t, func(ctx context.Context) (err error) {
			s, err := mpitest.Open(ctx)
			if err != nil {
				return err
			}
			defer closing(&err, s)
			if mpitest.Client(ctx).Identity().Proc.Rank == 0 {
				names, err := s.PsetOp(ctx, mpi.PsetSub, []string{"mpi://WORLD"}, mpi.PsetArgs{Sub: 1})
				if err != nil {
					return err
				}
				if _, err := s.Integrate(ctx, names[0], ""); err != nil {
					return err
				}
				return s.FinishChange(ctx, names[0])
			}
			if _, err := s.ResourceChangeAsync("mpi://SELF").Wait(ctx); err != nil {
				return err
			}
			if _, err := s.Integrate(ctx, "mpi://SELF", ""); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
	})
	if len(r.failed) != 1 || !strings.HasPrefix(r.failed[0], "rank 1: it left by a change 10ms ago, and it has not returned: ") ||
		!strings.Contains(r.failed[0], "TestJob_RankStaysAfterItLeft_IsNamed") {
		t.Errorf("the report is: %s", r.text())
	}
}

func TestJob_UndoneRankIgnoresItsContext_IsNamed(t *testing.T) {
	release := make(chan struct{})
	r := &recorder{TB: t}
	r.run(func(t testing.TB) {
		job := mpitest.Job{Size: 1, MaxRanks: 2, Grace: 10 * time.Millisecond, Params: map[string]string{"bootstrap.timeout": "100ms"}}
		job.RunSessions(t, func(ctx context.Context) (err error) {
			if mpitest.Client(ctx).Identity().FirstRank > 0 {
				<-release
				return nil
			}
			s, err := mpitest.Open(ctx)
			if err != nil {
				return err
			}
			defer closing(&err, s)
			names, err := s.PsetOp(ctx, mpi.PsetGrow, []string{"mpi://WORLD"}, mpi.PsetArgs{Add: 1})
			if err != nil {
				return err
			}
			if _, err := s.Integrate(ctx, names[0], ""); !errors.Is(err, mpi.ErrTimeout) {
				return fmt.Errorf("integrate without the added rank: %w", err)
			}
			<-ctx.Done()
			close(release)
			return nil
		})
	})
	if len(r.failed) != 1 || !strings.HasPrefix(r.failed[0], "rank 1: its change was undone 10ms ago, and it has not returned: ") ||
		!strings.Contains(r.failed[0], "TestJob_UndoneRankIgnoresItsContext_IsNamed") {
		t.Errorf("the report is: %s", r.text())
	}
}

func TestJob_AddedRankFails_ChangeIsUndone(t *testing.T) {
	mpitest.Job{Size: 2, MaxRanks: 4}.RunSessions(t, func(ctx context.Context) (err error) {
		id := mpitest.Client(ctx).Identity()
		if id.FirstRank == 2 {
			if id.Proc.Rank == 2 {
				return errors.New("out of luck")
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		m, err := join(ctx)
		if err != nil {
			return err
		}
		if id.Proc.Rank == 0 {
			if names, err := m.s.PsetOp(ctx, mpi.PsetGrow, []string{m.main}, mpi.PsetArgs{Add: 2}); err == nil {
				_, err = m.s.Integrate(ctx, names[0], "")
				if !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("integrate: %w", err)
				}
			} else if !errors.Is(err, mpi.ErrProcFailed) { // The rank failed before the end of the operation.
				return err
			}
		}
		return m.run(ctx, []step{{mpi.PsetGrow, mpi.PsetArgs{Add: 2}, 4}})
	})
}

func TestJob_RankFails_FinishedChangeExcusesIt(t *testing.T) {
	for name, x := range map[string]struct {
		steps []step
		want  string
	}{
		"removed": {steps: []step{{mpi.PsetReplace, mpi.PsetArgs{Add: 1}, 3}}},
		"stays":   {want: "rank 2: out of luck"},
	} {
		r := &recorder{TB: t, name: name}
		r.run(func(t testing.TB) {
			mpitest.Job{Size: 3, MaxRanks: 3, Continue: true}.RunSessions(t, func(ctx context.Context) error {
				m, err := join(ctx)
				if err != nil {
					return err
				}
				if m.rank == 2 {
					return m.die(ctx, 0, 1)
				}
				if m.main == "mpi://WORLD" {
					if err := m.outlive(ctx, 2); err != nil {
						return err
					}
					if err := m.survive(ctx, 1); err != nil {
						return err
					}
				}
				return m.run(ctx, x.steps)
			})
		})
		if text := strings.Join(r.failed, "\n"); text != x.want {
			t.Errorf("%s: the report is: %s", name, r.text())
		}
	}
}

func TestJob_MaxRanksBelowSize_IsAnError(t *testing.T) {
	r := &recorder{TB: t}
	r.run(func(t testing.TB) { mpitest.Job{Size: 3, MaxRanks: 2}.Run(t, talk) })
	if len(r.failed) != 1 || !strings.Contains(r.failed[0], "a limit of 2 processes") {
		t.Errorf("the report is: %s", r.text())
	}
}

func closing(err *error, s *mpi.Session) { *err = errors.Join(*err, s.Close()) }
