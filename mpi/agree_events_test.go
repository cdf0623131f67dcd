package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// withEvents runs a program in each rank of a job. The program injects events into its client.
func withEvents(t *testing.T, job mpitest.Job, program func(ctx context.Context, c *mpi.Comm, client *injector) error) {
	t.Helper()
	job.RunSessions(t, func(ctx context.Context) error {
		client := inject(mpitest.Client(ctx))
		return worldProgram(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
			return program(ctx, c, client)
		}).over(func(ctx context.Context, opts ...mpi.SessionOption) (*mpi.Session, error) {
			return mpitest.Open(ctx, append(opts, mpi.WithBootstrap(client))...)
		})(ctx)
	})
}

// reports injects the event of the death of a member.
func (c *injector) reports(comm *mpi.Comm, rank int) {
	c.event(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: comm.Group().Members()[rank], Reason: "test"})
}

// One member has the report of a death, and another does not (open-mpi/ompi #13501).
func TestAgree_DeathIsReportedToOneMember_IsInFailedOfAll(t *testing.T) {
	for informed := range 3 {
		t.Run(fmt.Sprint(informed), func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{}, 3)
			withEvents(t, mpitest.Job{Size: 4}, func(ctx context.Context, c *mpi.Comm, client *injector) error {
				if c.Rank() == 3 { // It is alive. The others do not wait for it.
					for range 3 {
						<-done
					}
					return nil
				}
				defer func() { done <- struct{}{} }()
				if c.Rank() == informed {
					client.reports(c, 3)
				}
				value, err := c.Agree(ctx, 5)
				if value != 5 || !slices.Equal(failedRanks(err), []int{3}) || !slices.Equal(c.Failed(), []int{3}) {
					return fmt.Errorf("agree: %d %w, failed are %v", value, err, c.Failed())
				}
				d, err := c.Shrink(ctx)
				if err != nil {
					return err
				}
				defer d.Close()
				return isWhole(ctx, d, 0, 1, 2)
			})
		})
	}
}

func TestAgree_LauncherIsLost_ReturnsErrTransport(t *testing.T) {
	for _, isWaiting := range []bool{false, true} {
		t.Run(fmt.Sprint(isWaiting), func(t *testing.T) {
			t.Parallel()
			waits := make(chan struct{}, 4)
			job := mpitest.Job{Size: 2, Params: map[string]string{"bootstrap.on_loss": "continue"}}
			withEvents(t, job, func(ctx context.Context, c *mpi.Comm, client *injector) error {
				if isWaiting {
					// Rank 0 waits for rank 1 in both calls.
					if c.Rank() == 1 {
						<-waits
						<-waits
						return nil
					}
					defer func() { waits <- struct{}{} }()
					go client.event(bootstrap.Event{Kind: bootstrap.ServerLost, Reason: "test"})
				} else {
					client.event(bootstrap.Event{Kind: bootstrap.ServerLost, Reason: "test"})
				}
				_, agree := c.Agree(ctx, 1)
				_, shrink := c.Shrink(ctx)
				waits <- struct{}{}
				for what, err := range map[string]error{"agree": agree, "shrink": shrink} {
					if !errors.Is(err, mpi.ErrTransport) || !strings.Contains(err.Error(), "launcher") {
						return fmt.Errorf("%s: %w", what, err)
					}
				}
				return nil
			})
		})
	}
}

// withoutNotes is a client without the capability Noter.
type withoutNotes struct{ bootstrap.Client }

func TestAgree_ClientSendsNoNotes_ReturnsErrUnsupported(t *testing.T) {
	t.Parallel()
	mpitest.Job{Size: 2}.RunSessions(t, worldProgram(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
		_, agree := c.Agree(ctx, 1)
		_, shrink := c.Shrink(ctx)
		return errors.Join(wants("agree", agree, mpi.ErrUnsupported), wants("shrink", shrink, mpi.ErrUnsupported))
	}).over(func(ctx context.Context, opts ...mpi.SessionOption) (*mpi.Session, error) {
		return mpitest.Open(ctx, append(opts, mpi.WithBootstrap(withoutNotes{mpitest.Client(ctx)}))...)
	}))
}
