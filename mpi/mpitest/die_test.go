package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// outliveDeath checks the death of a rank in another member.
func outliveDeath(ctx context.Context, c *mpi.Comm, dead int) error {
	if _, err := c.Recv(ctx, nil, dead, 7); !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("receive from rank %d, which has died: %w", dead, err)
	}
	if failed := c.Failed(); !slices.Equal(failed, []int{dead}) {
		return fmt.Errorf("failed ranks %v, want %d", failed, dead)
	}
	return nil
}

func TestDie_OneRank_OthersGetProcFailedAndContinue(t *testing.T) {
	for _, x := range stacks() {
		for _, dead := range []int{0, 2} {
			t.Run(fmt.Sprint(x.name, dead), func(t *testing.T) {
				t.Parallel()
				testDeath(t, x.job(mpitest.Job{Size: 3}), dead)
			})
		}
	}
}

func testDeath(t *testing.T, job mpitest.Job, dead int) {
	isAlive := make([]bool, 3)
	job.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		if err := exchange(ctx, c); err != nil {
			return err
		}
		if c.Rank() == dead { // The others have left the exchange.
			for range 2 {
				if _, err := c.Recv(ctx, nil, mpi.AnySource, dying); err != nil {
					return err
				}
			}
			mpitest.Die(ctx)
		}
		if err := c.Send(ctx, nil, dead, dying); err != nil {
			return err
		}
		if err := outliveDeath(ctx, c, dead); err != nil {
			return err
		}
		other := 3 - dead - c.Rank()
		if _, err := c.Sendrecv(ctx, nil, other, 1, nil, other, 1); err != nil {
			return err
		}
		isAlive[c.Rank()] = true
		return nil
	})
	if alive := []bool{dead != 0, true, dead != 2}; !slices.Equal(isAlive, alive) {
		t.Errorf("rank %d dies: ends of the program %v, want %v", dead, isAlive, alive)
	}
}

func TestDie_GoroutineRank_ItsProcessDies(t *testing.T) {
	mpitest.Job{Size: 2, Goroutines: 2}.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		switch c.Rank() {
		case 2:
			mpitest.Die(ctx)
		case 3:
			<-ctx.Done()
			return ctx.Err()
		}
		if _, err := c.Recv(ctx, nil, 3, 7); !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("receive from rank 3: %w", err)
		}
		return nil
	})
}

func TestDie_SessionAndCommunicatorsAreOpen_AreClosed(t *testing.T) {
	onStacks(t, mpitest.Job{Size: 2}, func(ctx context.Context) error {
		s, err := mpitest.Open(ctx)
		if err != nil {
			return err
		}
		world, err := s.Group(ctx, "mpi://WORLD")
		if err != nil {
			return err
		}
		c, err := mpi.CommFromGroup(ctx, world, "world")
		if err != nil {
			return err
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			if _, err := d.Irecv(make([]byte, 1), mpi.AnySource, 1); err != nil {
				return err
			}
			mpitest.Die(ctx)
		}
		return errors.Join(outliveDeath(ctx, d, 1), d.Close(), c.Close(), s.Close())
	})
}

func TestDie_ThreadCommIsOpen_IsNamed(t *testing.T) {
	r := &recorder{TB: t}
	var threads *mpi.ThreadComm
	var s *mpi.Session
	r.run(func(t testing.TB) {
		mpitest.Job{Size: 1}.RunSessions(t, func(ctx context.Context) (err error) {
			if s, err = mpitest.Open(ctx); err != nil {
				return err
			}
			self, err := s.Group(ctx, "mpi://SELF")
			if err != nil {
				return err
			}
			c, err := mpi.CommFromGroup(ctx, self, t.Name())
			if err != nil {
				return err
			}
			if threads, err = mpi.NewThreadComm(ctx, c, 2); err != nil {
				return err
			}
			mpitest.Die(ctx)
			return nil
		})
	})
	if !strings.Contains(r.text(), "close it by deferred functions") {
		t.Errorf("the report is: %s", r.text())
	}
	if err := errors.Join(threads.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

func TestDie_Example_Passes(t *testing.T) {
	ExampleDie()
	exampleOfDie(t)
}
