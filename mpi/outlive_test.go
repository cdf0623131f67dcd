package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// closingClient delays its first call by a goroutine of the library: until Session.Close returns, or for far longer than Close
// takes.
type closingClient struct {
	*injector
	delaysNote bool
	isOwn      func(cid.Extended) bool // Communicators whose Broke is not delayed.

	isDelayed atomic.Bool
	entered   chan struct{}
	returned  chan struct{} // Closed when Session.Close has returned.
	outlived  atomic.Bool
}

func (c *closingClient) delay() {
	if c.isDelayed.Swap(true) {
		return
	}
	close(c.entered)
	select {
	case <-c.returned:
		c.outlived.Store(true)
	case <-time.After(100 * time.Millisecond):
	}
}

func (c *closingClient) Broke(id cid.Extended, members []framework.Proc, reason string) {
	if !c.delaysNote && !c.isOwn(id) {
		c.delay()
	}
	inner, _ := framework.As[bootstrap.EventSource](c.Client)
	inner.Broke(id, members, reason)
}

func (c *closingClient) Note(p framework.Proc, nonce uint64, body []byte) error {
	if c.delaysNote {
		c.delay()
	}
	inner, _ := framework.As[bootstrap.Noter](c.Client)
	return inner.Note(p, nonce, body)
}

// TestSessionClose_GoroutineOfTheLibraryRuns_WaitsForIt: after Close, transports are closed without a lock.
func TestSessionClose_GoroutineOfTheLibraryRuns_WaitsForIt(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, x := range map[string]struct {
		delaysNote bool
		first      func(ctx context.Context, c *mpi.Comm, entered <-chan struct{}) error // Of rank 0.
		other      func(ctx context.Context, c *mpi.Comm) error
	}{
		"refused announcement": {
			first: func(ctx context.Context, c *mpi.Comm, entered <-chan struct{}) error {
				g, err := c.Group().Incl(1, 0)
				if err != nil {
					return err
				}
				if _, err := c.CreateGroup(over, g, 1); !errors.Is(err, mpi.ErrCanceled) {
					return fmt.Errorf("create group: %w", err)
				}
				<-entered
				return nil
			},
			other: func(ctx context.Context, c *mpi.Comm) error {
				g, err := c.Group().Incl(1, 0)
				if err != nil {
					return err
				}
				d, err := c.CreateGroup(ctx, g, 1)
				if d != nil {
					defer d.Close()
				}
				if errors.Is(err, mpi.ErrBroken) { // The first announcement had no id, or the event came before the call.
					return nil
				}
				return err
			},
		},
		"tick of Agree": {
			delaysNote: true,
			first: func(ctx context.Context, c *mpi.Comm, entered <-chan struct{}) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				go func() {
					<-entered
					cancel()
				}()
				if _, err := c.Agree(ctx, 1); !errors.Is(err, mpi.ErrCanceled) {
					return fmt.Errorf("agree: %w", err)
				}
				return nil
			},
			other: func(context.Context, *mpi.Comm) error { return nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var client *closingClient
			over := make(chan struct{})
			mpitest.Job{Size: 2}.RunSessions(t, func(ctx context.Context) error {
				rank := mpitest.Client(ctx).Identity().Proc.Rank
				opts := []mpi.SessionOption{}
				if rank == 0 {
					defer close(over)
					client = &closingClient{
						injector: inject(mpitest.Client(ctx)), delaysNote: x.delaysNote,
						entered: make(chan struct{}), returned: make(chan struct{}),
					}
					opts = append(opts, mpi.WithBootstrap(client))
				}
				s, err := mpitest.Open(ctx, opts...)
				if err != nil {
					return err
				}
				world, err := s.Group(ctx, bootstrap.PsetWorld)
				if err != nil {
					return err
				}
				c, err := mpi.CommFromGroup(ctx, world, "test")
				if err != nil {
					return err
				}
				if rank == 1 {
					err = x.other(ctx, c)
					select {
					case <-over:
					case <-ctx.Done():
					}
					return errors.Join(err, c.Close(), s.Close())
				}
				client.isOwn = func(id cid.Extended) bool { return mpi.CommID(id.Bytes()) == c.ID() }
				err = errors.Join(x.first(ctx, c, client.entered), c.Close(), s.Close())
				close(client.returned)
				return err
			})
			if client.outlived.Load() {
				t.Error("Close returns before a goroutine of the library that uses the transports")
			}
		})
	}
}
