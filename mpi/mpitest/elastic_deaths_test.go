package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// errDead is the failure of a rank that a test lets fail.
var errDead = errors.New("out of luck")

// die returns the failure, and closes the session. The survivors have called outlive before, so that all have made the communicator.
func (m *member) die(ctx context.Context, survivors ...int) error {
	for _, rank := range survivors {
		if _, err := m.c.Recv(ctx, nil, rank, dying); err != nil {
			return err
		}
	}
	return errors.Join(errDead, m.c.Close(), m.s.Close())
}

// outlive lets ranks die.
func (m *member) outlive(ctx context.Context, ranks ...int) error {
	for _, rank := range ranks {
		if err := m.c.Send(ctx, nil, rank, dying); err != nil {
			return err
		}
	}
	return nil
}

const dying = 1 // The tag of outlive.

// repair replaces or removes members that have ended, with the first survivor as the requester.
func (m *member) repair(ctx context.Context, op mpi.PsetOp, args mpi.PsetArgs) error {
	isMember, err := m.change(ctx, map[bool]*step{true: {op: op, args: args}}[m.c.Rank() == 0])
	if !isMember {
		return fmt.Errorf("rank %d is not a member after the repair: %w", m.rank, err)
	}
	return err
}

func TestIntegrate_MemberDiesBefore_ChangeIsUndone(t *testing.T) {
	onStacks(t, mpitest.Job{Size: 3, MaxRanks: 4, Continue: true}, func(ctx context.Context) error {
		m, err := join(ctx)
		if err != nil {
			return err // The error of the rank with the undone change is expected.
		}
		if m.rank > 2 {
			return m.run(ctx, nil)
		}
		if m.rank == 0 {
			names, err := m.s.PsetOp(ctx, mpi.PsetGrow, []string{m.main}, mpi.PsetArgs{Add: 1, Name: "org.example.next"})
			if err != nil {
				return err
			}
			if err := m.s.PublishData(ctx, m.main, "delta", []byte(names[0])); err != nil {
				return err
			}
		}
		value, err := m.s.LookupData(ctx, m.main, "delta")
		if err != nil {
			return err
		}
		delta := string(value)
		if m.rank == 2 {
			return m.die(ctx, 0, 1)
		}
		if err := m.outlive(ctx, 2); err != nil {
			return err
		}
		for range 2 { // The second call comes after the end of the change.
			if _, err := m.s.Integrate(ctx, delta, ""); !errors.Is(err, mpi.ErrProcFailed) {
				return fmt.Errorf("rank %d: integrate: %w", m.rank, err)
			}
		}
		if _, err := m.s.Group(ctx, "org.example.next"); !errors.Is(err, mpi.ErrPset) {
			return fmt.Errorf("rank %d: the set of an undone change: %w", m.rank, err)
		}
		if err := m.survive(ctx, 1); err != nil {
			return err
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
			return m.die(ctx, 0, 2)
		}
		if m.rank > 3 {
			return nil
		}
		if err := m.outlive(ctx, 1, 3); err != nil {
			return err
		}
		for _, dead := range []int{1, 3} { // A rank that closes its session first may count as closed.
			if _, err := m.c.Recv(ctx, nil, dead, 0); !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, framework.ErrPeerClosed) {
				return fmt.Errorf("receive from rank %d, which failed: %w", dead, err)
			}
		}
		if err := m.survive(ctx, 2); err != nil {
			return err
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
