package soak

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// The ring of ranks works, or both ends of a path without space get an error that names it. No rank
// hangs.
func TestSharedMemory_Shortage_ErrorOrSuccess(t *testing.T) {
	rooms, sizes := []int{192}, []int{3, 8}
	if *full {
		rooms, sizes = []int{128, 192, 256, 1024}, []int{3, 4, 8}
	}
	for _, kib := range rooms {
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%d ranks in %d KiB", n, kib), func(t *testing.T) {
				dir := needs.SmallTmpfs(t, kib<<10)
				errs := make([]error, n)
				job := mpitest.Job{Size: n, Params: map[string]string{"btl.shm.dir": dir, "btl.shm.fallback_dir": ""}}
				job.RunSessions(t, func(ctx context.Context) error {
					s, err := mpitest.Open(ctx)
					if err != nil {
						return nil // The user sees the error.
					}
					defer s.Close()
					world, err := s.Group(ctx, bootstrap.PsetWorld)
					if err != nil {
						return err
					}
					c, err := mpi.CommFromGroup(ctx, world, "ring")
					if err != nil {
						return nil
					}
					defer c.Close()
					errs[c.Rank()] = ringOnce(ctx, c)
					return nil
				})
				for rank, err := range errs {
					if errors.Is(err, context.DeadlineExceeded) || err != nil && !errors.Is(err, mpi.ErrTransport) {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
				t.Log(errs)
			})
		}
	}
}

// ringOnce sends a message around the ranks.
func ringOnce(ctx context.Context, c *mpi.Comm) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	send, err := c.Isend([]byte{byte(c.Rank())}, next, 0)
	if err != nil {
		return err
	}
	in := make([]byte, 1)
	if _, err := c.Recv(ctx, in, before, 0); err != nil {
		return err
	}
	if int(in[0]) != before {
		return fmt.Errorf("received %d from rank %d", in[0], before)
	}
	_, err = send.Wait(ctx)
	return err
}
