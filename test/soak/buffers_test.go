package soak

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

var overTCP = map[string]string{"pml": "cm", "pml.cm.shared_memory": "false", "mtl.ofi.provider_include": "tcp;ofi_rxm"}

// Another member breaks the collectives during the broadcast, and the root reuses its buffer.
func TestBcast_CollectivesBroken_NoWrongData(t *testing.T) {
	needs.Time(t)
	overNetwork(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		mpitest.Job{Size: 3, Params: overTCP}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
			c, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			b := make([]byte, 64<<20)
			for i := 0; c.Rank() == 0 && i < len(b); i++ {
				b[i] = 1
			}
			if err := mpi.Barrier(ctx, world); err != nil {
				return err
			}
			if c.Rank() == 1 {
				time.Sleep(after)
				err = mpi.Barrier(over, c)
			} else {
				err = mpi.Bcast(ctx, c, b, 0)
			}
			switch {
			case c.Rank() == 0:
				clear(b)
			case c.Rank() == 2 && err == nil && bytes.IndexByte(b, 0) >= 0:
				return errors.New("Bcast succeeded with wrong contents")
			}
			return mpi.Barrier(ctx, world)
		})
	}
}

// Half of a message has arrived when the session closes. Wait returns an error, and the buffer is
// reused.
func TestSessionClose_PartialMessage_BufferIsNotWritten(t *testing.T) {
	needs.Time(t)
	overNetwork(t)
	for range 4 {
		mpitest.Job{Size: 2, Params: overTCP}.RunSessions(t, func(ctx context.Context) error {
			s, err := mpitest.Open(ctx)
			if err != nil {
				return err
			}
			defer s.Close()
			world, err := s.Group(ctx, bootstrap.PsetWorld)
			if err != nil {
				return err
			}
			c, err := mpi.CommFromGroup(ctx, world, "half")
			if err != nil {
				return err
			}
			defer c.Close()
			b := make([]byte, 128<<20)
			if c.Rank() == 1 {
				for i := range b {
					b[i] = 1
				}
				_ = c.Send(ctx, b, 0, 7) // Nil, or an error because the other one has closed.
				return nil
			}
			q, err := c.Irecv(b, 1, 7)
			if err != nil {
				return err
			}
			for b[0] == 0 {
				if _, _, err := c.Iprobe(1, 9); err != nil {
					return err
				}
			}
			ended := make(chan error, 1)
			go func() {
				_, err := q.Wait(context.Background())
				clear(b)
				time.Sleep(100 * time.Millisecond)
				if err != nil && bytes.IndexByte(b, 1) >= 0 {
					ended <- errors.New("the buffer was written after Wait had returned")
				}
				ended <- nil
			}()
			return errors.Join(c.Close(), s.Close(), <-ended)
		})
	}
}
