package mpi_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// valuesOfRanks are different values of ranks in one job, from files that change between
// reads or by mpi.WithParam.
var valuesOfRanks = []map[string]string{
	{},
	{"btl.shm.eager_limit": "1KiB", "btl.shm.ring_size": "64KiB", "pml.ob1.fragment_size": "8KiB", "btl.shm.single_copy": "off"},
	{"btl.shm.eager_limit": "64KiB", "btl.shm.single_copy": "cma", "btl.shm.cma_min": "0"},
	{"btl.shm.eager_limit": "2KiB", "btl.shm.ring_size": "256KiB", "btl.shm.single_copy": "memory", "btl.shm.memory_min": "0"},
}

func TestParams_RanksDiffer_MessagesArrive(t *testing.T) {
	t.Parallel()
	mpitest.Job{Size: len(valuesOfRanks), Options: func(rank int) (all []mpi.SessionOption) {
		for name, value := range valuesOfRanks[rank] {
			all = append(all, mpi.WithParam(name, value))
		}
		return all
	}}.RunSessions(t, inWorld(exchangeAllSizes))
}

// exchangeAllSizes sends messages of all sizes between all pairs of ranks, on each path, from ordinary and from allocated memory.
func exchangeAllSizes(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	for tag, size := range []int{1, 900, 1500, 5000, 40_000, 300_000, 1<<20 + 7} {
		m, err := mpi.AllocMem(s, size)
		if err != nil {
			return err
		}
		for _, out := range [][]byte{make([]byte, size), mpi.View[byte](m)} {
			copy(out, pattern(size, c.Rank()))
			in := make([][]byte, c.Size())
			var reqs []mpi.Request
			for peer := range c.Size() {
				in[peer] = make([]byte, size)
				recv, err := c.Irecv(in[peer], peer, tag)
				if err != nil {
					return err
				}
				send, err := c.Isend(out, peer, tag)
				if err != nil {
					return err
				}
				reqs = append(reqs, recv, send)
			}
			if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
				return err
			}
			for peer, got := range in {
				if err := kittest.Differ(got, pattern(size, peer)); err != nil {
					return fmt.Errorf("%d bytes from rank %d: %w", size, peer, err)
				}
			}
		}
		if err := mpi.Barrier(ctx, c); err != nil { // All members have read it.
			return err
		}
		if err := m.Close(); err != nil {
			return err
		}
	}
	return nil
}
