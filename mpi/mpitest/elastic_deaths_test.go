package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// errDead is the failure of a rank that a test lets fail.
var errDead = errors.New("out of luck")

// die closes a rank's session and returns the failure.
func (m *member) die() error { return errors.Join(errDead, m.c.Close(), m.s.Close()) }

// repair replaces or removes the members that have ended, with the first survivor as the requester.
func (m *member) repair(ctx context.Context, op mpi.PsetOp, args mpi.PsetArgs) error {
	if err := m.survive(ctx); err != nil {
		return err
	}
	isMember, err := m.change(ctx, map[bool]*step{true: {op: op, args: args}}[m.c.Rank() == 0])
	if !isMember {
		return fmt.Errorf("rank %d is no member after the repair: %w", m.rank, err)
	}
	return err
}

func TestIntegrate_MemberDiesBefore_ChangeIsUndone(t *testing.T) {
	onStacks(t, mpitest.Job{Size: 3, MaxRanks: 4, Continue: true}, func(ctx context.Context) error {
		m, err := join(ctx)
		if err != nil {
			return err // That of the rank whose change is undone is excused.
		}
		if m.rank > 2 {
			return m.run(ctx, nil)
		}
		delta := ""
		if m.rank == 0 {
			names, err := m.s.PsetOp(ctx, mpi.PsetGrow, []string{m.main}, mpi.PsetArgs{Add: 1, Name: "org.example.next"})
			if err != nil {
				return err
			}
			delta = names[0]
		}
		if delta, err = m.share(ctx, delta); err != nil {
			return err
		}
		if m.rank == 2 {
			return m.die()
		}
		for range 2 { // The second call comes after the end of the change.
			if _, err := m.s.Integrate(ctx, delta, ""); !errors.Is(err, mpi.ErrProcFailed) {
				return fmt.Errorf("rank %d: integrate: %w", m.rank, err)
			}
		}
		if _, err := m.s.Group(ctx, "org.example.next"); !errors.Is(err, mpi.ErrPset) {
			return fmt.Errorf("rank %d: the set of an undone change: %w", m.rank, err)
		}
		if err := m.repair(ctx, mpi.PsetShrink, mpi.PsetArgs{}); err != nil {
			return err
		}
		return m.run(ctx, []step{{mpi.PsetGrow, mpi.PsetArgs{Add: 2}, 4}})
	})
}

func TestChange_MemberDiesAfterIntegration_NewSetHasFailed(t *testing.T) {
	onStacks(t, mpitest.Job{Size: 2, MaxRanks: 4, Continue: true}, grown(4, []step{{mpi.PsetGrow, mpi.PsetArgs{Add: 2}, 4}}, func(ctx context.Context, m *member) error {
		if m.rank == 1 || m.rank == 3 {
			return m.die()
		}
		if m.rank > 3 {
			return nil
		}
		_, err := m.c.Recv(ctx, nil, 1, 0)
		if !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("receive from a rank that failed: %w", err)
		}
		if _, err := m.c.Recv(ctx, nil, 3, 0); !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("receive from an added rank that failed: %w", err)
		}
		if m.rank == 0 {
			if _, err := m.s.PsetOp(ctx, mpi.PsetGrow, []string{m.main}, mpi.PsetArgs{Add: 1}); !errors.Is(err, mpi.ErrProcFailed) {
				return fmt.Errorf("grow of a set with failed members: %w", err)
			}
		}
		if err := m.repair(ctx, mpi.PsetReplace, mpi.PsetArgs{Add: 2}); err != nil {
			return err
		}
		return must(m.c.Size() == 4, "the repaired set has %d members", m.c.Size())
	}))
}

func must(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
