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

// TestShortageOfSharedMemory: a ring of ranks works, or both ends of a path for which
// there is no room have an error that says so. Nobody waits for what can't come.
func TestShortageOfSharedMemory(t *testing.T) {
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
						return nil // an error that the user sees
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
					errs[c.Rank()] = ring(ctx, c)
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

// ring sends a message around.
func ring(ctx context.Context, c *mpi.Comm) error {
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
		return fmt.Errorf("rank %d sends %d", before, in[0])
	}
	_, err = send.Wait(ctx)
	return err
}
