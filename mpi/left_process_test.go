package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// An operation with a process that has closed its session ends with an error, with and without earlier messages.
func TestOperation_AfterPeerClosed_ReturnsError(t *testing.T) {
	b := make([]byte, 1<<20)
	before := map[string]func(ctx context.Context, c *mpi.Comm) error{
		"nothing": func(context.Context, *mpi.Comm) error { return nil },
		"both": func(ctx context.Context, c *mpi.Comm) error {
			_, err := c.Sendrecv(ctx, []byte{1}, 1-c.Rank(), 0, make([]byte, 1), 1-c.Rank(), 0)
			return err
		},
		"only it sends": func(ctx context.Context, c *mpi.Comm) error {
			if c.Rank() == 1 {
				return c.Send(ctx, []byte{1}, 0, 0)
			}
			_, err := c.Recv(ctx, make([]byte, 1), 1, 0)
			return err
		},
		"it only receives": func(ctx context.Context, c *mpi.Comm) error {
			if c.Rank() == 0 {
				return c.Send(ctx, []byte{1}, 1, 0)
			}
			_, err := c.Recv(ctx, make([]byte, 1), 0, 0)
			return err
		},
	}
	before["collectives in shared memory"] = func(ctx context.Context, c *mpi.Comm) error {
		return errors.Join(mpi.Barrier(ctx, c), mpi.Barrier(ctx, c), mpi.Barrier(ctx, c))
	}
	late := map[string]func(ctx context.Context, c *mpi.Comm) error{
		"recv":       func(ctx context.Context, c *mpi.Comm) error { _, err := c.Recv(ctx, b[:1], 1, 0); return err },
		"probe":      func(ctx context.Context, c *mpi.Comm) error { _, err := c.Probe(ctx, 1, 0); return err },
		"mprobe":     func(ctx context.Context, c *mpi.Comm) error { _, _, err := c.Mprobe(ctx, 1, 0); return err },
		"ssend":      func(ctx context.Context, c *mpi.Comm) error { return c.Ssend(ctx, b[:1], 1, 0) },
		"large send": func(ctx context.Context, c *mpi.Comm) error { return c.Send(ctx, b, 1, 0) },
		"barrier":    func(ctx context.Context, c *mpi.Comm) error { return mpi.Barrier(ctx, c) },
		"small sends": func(ctx context.Context, c *mpi.Comm) error {
			for {
				if err := c.Send(ctx, b[:1], 1, 0); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
			}
		},
	}
	for first, before := range before {
		for name, op := range late {
			t.Run(first+"/"+name, func(t *testing.T) {
				t.Parallel()
				closed := make(chan struct{})
				mpitest.Job{Size: 2}.RunSessions(t, func(ctx context.Context) error {
					s, err := mpitest.Open(ctx)
					if err != nil {
						return err
					}
					defer s.Close()
					world, err := s.Group(ctx, bootstrap.PsetWorld)
					if err != nil {
						return err
					}
					c, err := mpi.CommFromGroup(ctx, world, "late")
					if err != nil {
						return err
					}
					if err := before(ctx, c); err != nil {
						return err
					}
					if c.Rank() == 1 {
						defer close(closed)
						return errors.Join(c.Close(), s.Close())
					}
					<-closed
					began := time.Now()
					err = op(ctx, c)
					if !errors.Is(err, framework.ErrPeerClosed) || !errors.Is(err, mpi.ErrTransport) || !strings.Contains(err.Error(), "the peer has closed its session") {
						return fmt.Errorf("after %v: %v", time.Since(began), err)
					}
					return errors.Join(c.Close(), s.Close())
				})
			})
		}
	}
}
