package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// injector is a client with events that the test makes.
type injector struct {
	bootstrap.Client
	bootstrap.EventSource
	event func(bootstrap.Event)
	// Called after each group construct, if it is not nil.
	constructed func(tag string)
}

func inject(inner bootstrap.Client) *injector {
	events, _ := framework.As[bootstrap.EventSource](inner)
	return &injector{Client: inner, EventSource: events}
}

func (c *injector) Unwrap() any { return c.Client }

func (c *injector) Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (bootstrap.Constructed, error) {
	made, err := c.Client.Construct(ctx, group, tag, payload)
	if c.constructed != nil {
		c.constructed(tag)
	}
	return made, err
}

func (c *injector) OnEvent(f func(bootstrap.Event)) {
	c.event = f
	c.EventSource.OnEvent(f)
}

// reportDead reports the process itself dead.
func (c *injector) reportDead() {
	c.event(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: c.Identity().Proc, Reason: "it does not answer"})
}

// isolated checks that err names rank 1, which is this process.
func isolated(what string, err error) error {
	failed, ok := errors.AsType[*mpi.ProcFailedError](err)
	return must(ok && slices.Equal(failed.Ranks, []int{1}), "%s: error %v, want one that names rank 1", what, err)
}

// overIsolated runs program in a process that is reported dead when it calls report. Rank 0 makes no call meanwhile.
func overIsolated(t *testing.T, program func(ctx context.Context, s *mpi.Session, world *mpi.Comm, report func()) error) {
	t.Helper()
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{})
			var client *injector // Of rank 1.
			open := func(ctx context.Context, opts ...mpi.SessionOption) (*mpi.Session, error) {
				if inner := mpitest.Client(ctx); inner.Identity().Proc.Rank == 1 {
					client = inject(inner)
					opts = append(opts, mpi.WithBootstrap(client))
				}
				return mpitest.Open(ctx, opts...)
			}
			jobOf(2, params).RunSessions(t, worldProgram(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
				if world.Rank() == 0 {
					<-done
					return nil
				}
				defer close(done)
				return program(ctx, s, world, client.reportDead)
			}).over(open))
		})
	}
}

func TestReportedDead_PendingCalls_NameTheProcessItself(t *testing.T) {
	t.Parallel()
	overIsolated(t, func(ctx context.Context, s *mpi.Session, world *mpi.Comm, report func()) error {
		type result struct {
			name string
			err  error
		}
		results := make(chan result)
		for name, call := range pendingCalls {
			c, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			go func() { results <- result{name, call(ctx, c)} }()
		}
		waits := map[string]func(context.Context) error{}
		for _, name := range []string{"Irecv", "Irecv any", "Issend", "Ibarrier"} {
			c, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			if waits[name], err = nonblockingCalls[name](c); err != nil {
				return err
			}
		}
		construct := make(chan error)
		go func() {
			_, err := mpi.CommFromGroup(ctx, world.Group(), "not called by rank 0")
			construct <- err
		}()
		report()
		for range pendingCalls {
			r := <-results
			if err := isolated(r.name, r.err); err != nil {
				return err
			}
		}
		for name, wait := range waits {
			if err := isolated(name, wait(ctx)); err != nil {
				return err
			}
		}
		if err := wants("CommFromGroup", <-construct, mpi.ErrProcFailed); err != nil {
			return err
		}
		return must(slices.Equal(world.Failed(), []int{1}), "failed are %v", world.Failed())
	})
}

func TestReportedDead_LaterCalls_NameTheProcessItself(t *testing.T) {
	t.Parallel()
	overIsolated(t, func(ctx context.Context, s *mpi.Session, world *mpi.Comm, report func()) error {
		m, err := s.Group(ctx, "mpi://SELF")
		if err != nil {
			return err
		}
		report()
		if err := isolated("receive without a message", func() error { _, err := world.Recv(ctx, nil, 1, 0); return err }()); err != nil {
			return err
		}
		for name, call := range pendingCalls {
			if err := isolated(name, call(ctx, world)); err != nil {
				return err
			}
		}
		for name, call := range nonblockingCalls {
			if name == "RecvInit" || name == "SsendInit" {
				continue
			}
			wait, err := call(world)
			if err != nil {
				return err
			}
			if err := isolated(name, wait(ctx)); err != nil {
				return err
			}
		}
		if err := isolated("Revoke", world.Revoke()); err != nil {
			return err
		}
		_, err = world.Dup(ctx)
		if err := isolated("Dup", err); err != nil {
			return err
		}
		_, err = mpi.CommFromGroup(ctx, world.Group(), "again")
		if err := wants("CommFromGroup", err, mpi.ErrProcFailed); err != nil {
			return err
		}
		self, err := mpi.CommFromGroup(ctx, m, "self")
		if err != nil {
			return fmt.Errorf("CommFromGroup of the process alone: %w", err)
		}
		return errors.Join(wants("Barrier of the process alone", mpi.Barrier(ctx, self), mpi.ErrProcFailed), self.Close())
	})
}
