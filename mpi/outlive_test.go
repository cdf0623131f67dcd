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

// After Session.Close, transports are closed without a lock. Therefore Close waits for goroutines of the library that use them. Each test
// delays a call of such a goroutine.

// callDelay delays one call until Session.Close has returned, or for far longer than Close takes.
type callDelay struct {
	isDelayed atomic.Bool
	// Closed when the call starts.
	started chan struct{}
	// Closed when Session.Close has returned.
	closed chan struct{}
	// Whether the call was active when Session.Close returned.
	hasOutlived atomic.Bool
}

func newCallDelay() *callDelay {
	return &callDelay{started: make(chan struct{}), closed: make(chan struct{})}
}

// delayFirst delays the first caller.
func (d *callDelay) delayFirst() {
	if d.isDelayed.Swap(true) {
		return
	}
	close(d.started)
	select {
	case <-d.closed:
		d.hasOutlived.Store(true)
	case <-time.After(100 * time.Millisecond):
	}
}

// awaitStart blocks until the call has started.
func (d *callDelay) awaitStart(ctx context.Context) {
	select {
	case <-d.started:
	case <-ctx.Done():
	}
}

// noteDelay delays the first note.
type noteDelay struct {
	*injector
	*callDelay
}

func (c noteDelay) Note(p framework.Proc, nonce uint64, body []byte) error {
	c.delayFirst()
	inner, _ := framework.As[bootstrap.Noter](c.Client)
	return inner.Note(p, nonce, body)
}

// refusalDelay delays the first event of a communicator that is not the parent. It withholds events of the parent until then, so that
// the other member announces a communicator meanwhile.
type refusalDelay struct {
	*injector
	*callDelay
	ctx    context.Context
	parent *atomic.Pointer[mpi.Comm]
}

func (c refusalDelay) ReportBroken(id cid.Extended, members []framework.Proc, reason string) {
	if parent := c.parent.Load(); mpi.CommID(id.Bytes()) == parent.ID() {
		c.awaitStart(c.ctx)
	} else {
		c.delayFirst()
	}
	c.EventSource.ReportBroken(id, members, reason)
}

// testClose runs first and other as ranks 0 and 1. The client of rank 0 delays a call. The test fails if Session.Close of rank 0 returns before
// the end of this call.
func testClose(t *testing.T, delay *callDelay, client func(ctx context.Context, inner *injector) bootstrap.Client, first, other func(ctx context.Context, c *mpi.Comm) error) {
	t.Helper()
	firstClosed := make(chan struct{})
	mpitest.Job{Size: 2}.RunSessions(t, func(ctx context.Context) error {
		var opts []mpi.SessionOption
		isFirst := mpitest.Client(ctx).Identity().Proc.Rank == 0
		if isFirst {
			defer close(firstClosed)
			opts = append(opts, mpi.WithBootstrap(client(ctx, inject(mpitest.Client(ctx)))))
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
		if !isFirst {
			err = other(ctx, c)
			select {
			case <-firstClosed:
			case <-ctx.Done():
			}
			return errors.Join(err, c.Close(), s.Close())
		}
		err = errors.Join(first(ctx, c), c.Close(), s.Close())
		close(delay.closed)
		return err
	})
	if delay.hasOutlived.Load() {
		t.Error("Close returns before a goroutine of the library that uses the transports")
	}
}

func TestSessionClose_TickOfAgreeRuns_WaitsForIt(t *testing.T) {
	delay := newCallDelay()
	testClose(t, delay,
		func(_ context.Context, inner *injector) bootstrap.Client { return noteDelay{inner, delay} },
		func(ctx context.Context, c *mpi.Comm) error { return canceledAgree(ctx, c, delay) },
		func(context.Context, *mpi.Comm) error { return nil })
}

// canceledAgree calls Agree and cancels it during its first note.
func canceledAgree(ctx context.Context, c *mpi.Comm, note *callDelay) error {
	agreeCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		note.awaitStart(ctx)
		cancel()
	}()
	if _, err := c.Agree(agreeCtx, 1); !errors.Is(err, mpi.ErrCanceled) {
		return fmt.Errorf("agree: %w", err)
	}
	return nil
}

func TestSessionClose_RefusalOfAnnouncementRuns_WaitsForIt(t *testing.T) {
	delay := newCallDelay()
	var parent atomic.Pointer[mpi.Comm]
	testClose(t, delay,
		func(ctx context.Context, inner *injector) bootstrap.Client {
			return refusalDelay{inner, delay, ctx, &parent}
		},
		func(ctx context.Context, c *mpi.Comm) error {
			parent.Store(c)
			return canceledCreateGroup(ctx, c)
		},
		func(ctx context.Context, c *mpi.Comm) error {
			d, err := createReversed(ctx, c)
			if err != nil {
				return err
			}
			return d.Close()
		})
}

// canceledCreateGroup calls CreateGroup with a context that has ended.
func canceledCreateGroup(ctx context.Context, c *mpi.Comm) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := createReversed(ctx, c); !errors.Is(err, mpi.ErrCanceled) {
		return fmt.Errorf("create group: %w", err)
	}
	return nil
}

// createReversed creates a communicator whose id rank 1 announces.
func createReversed(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) {
	g, err := c.Group().Incl(1, 0)
	if err != nil {
		return nil, err
	}
	return c.CreateGroup(ctx, g, 1)
}
