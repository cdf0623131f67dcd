package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// closingClient delays its first note: until Session.Close returns, or for far longer than Close takes.
type closingClient struct {
	*injector

	isDelayed atomic.Bool
	entered   chan struct{}
	returned  chan struct{} // Closed when Session.Close has returned.
	outlived  atomic.Bool
}

func (c *closingClient) Note(p framework.Proc, nonce uint64, body []byte) error {
	if !c.isDelayed.Swap(true) {
		close(c.entered)
		select {
		case <-c.returned:
			c.outlived.Store(true)
		case <-time.After(100 * time.Millisecond):
		}
	}
	inner, _ := framework.As[bootstrap.Noter](c.Client)
	return inner.Note(p, nonce, body)
}

// TestSessionClose_TickOfAgreeRuns_WaitsForIt: after Close, transports are closed without a lock.
func TestSessionClose_TickOfAgreeRuns_WaitsForIt(t *testing.T) {
	var client *closingClient
	over := make(chan struct{})
	mpitest.Job{Size: 2}.RunSessions(t, func(ctx context.Context) error {
		opts := []mpi.SessionOption{}
		isFirst := mpitest.Client(ctx).Identity().Proc.Rank == 0
		if isFirst {
			defer close(over)
			client = &closingClient{injector: inject(mpitest.Client(ctx)), entered: make(chan struct{}), returned: make(chan struct{})}
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
		if !isFirst {
			select {
			case <-over:
			case <-ctx.Done():
			}
			return errors.Join(c.Close(), s.Close())
		}
		err = errors.Join(canceledAgree(ctx, c, client.entered), c.Close(), s.Close())
		close(client.returned)
		return err
	})
	if client.outlived.Load() {
		t.Error("Close returns before a goroutine of the library that uses the transports")
	}
}

// canceledAgree calls Agree and cancels it during its first note.
func canceledAgree(ctx context.Context, c *mpi.Comm, noteStarted <-chan struct{}) error {
	agreeCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-noteStarted:
		case <-ctx.Done():
		}
		cancel()
	}()
	if _, err := c.Agree(agreeCtx, 1); !errors.Is(err, mpi.ErrCanceled) {
		return fmt.Errorf("agree: %w", err)
	}
	return nil
}
