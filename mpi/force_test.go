package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

// All algorithms have the same result when they are forced for one communicator, in blocking and nonblocking forms, with several segments and with fewer
// elements than members.
func TestForce_Algorithms_HaveEqualResults(t *testing.T) {
	forces := []string{"",
		"bcast=tuned:binomial,reduce=tuned:rabenseifner,allreduce=tuned:rabenseifner,allgather=tuned:linear,alltoall=tuned:bruck,gather=tuned:binomial",
		"bcast=tuned:chain,reduce=tuned:chain,allreduce=tuned:ring,allgather=basic:ring,alltoall=tuned:pairs,reduce_scatter_block=tuned:halving",
		"bcast=tuned:scatter,allgather=basic:bruck,alltoall=tuned:linear,reduce_scatter_block=basic",
	}
	network := mtltest.NewMemory(mtltest.Options{})
	for _, pml := range []string{"ob1", "cm"} {
		t.Run(pml, func(t *testing.T) {
			t.Parallel()
			mpitest.Job{
				Size: 5, Params: map[string]string{"pml": pml},
				Options: func(int) []mpi.SessionOption {
					return []mpi.SessionOption{mpi.WithRegistry(withMTL(network.Component()))}
				},
			}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
				for _, force := range forces {
					c, err := mpi.CommFromGroup(ctx, world.Group(), "forced", mpi.WithCommParam("coll.force", force))
					if err != nil {
						return err
					}
					for _, count := range []int{1, 3, 20000} {
						for _, blocking := range []bool{true, false} {
							if err := every(ctx, c, count, blocking); err != nil {
								return fmt.Errorf("%s, %d elements, blocking %v: %w", force, count, blocking, err)
							}
						}
					}
					if err := c.Close(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// every runs operations with simple results. Element i of rank r is r+i.
func every(ctx context.Context, c *mpi.Comm, count int, blocking bool) error {
	n, sum := c.Size(), mpi.Sum[int]()
	mine := make([]int, n*count)
	for i := range mine {
		mine[i] = c.Rank() + i
	}
	send := mine[:count]
	root := n - 1
	bcast := slices.Clone(send)
	reduced, all, gathered, allgathered, swapped, scattered := make([]int, count), make([]int, count), make([]int, n*count), make([]int, n*count), make([]int, n*count), make([]int, count)
	var err error
	if blocking {
		err = errors.Join(mpi.Bcast(ctx, c, bcast, root), mpi.Reduce(ctx, c, send, reduced, sum, root), mpi.Allreduce(ctx, c, send, all, sum),
			mpi.Gather(ctx, c, send, gathered, root), mpi.Allgather(ctx, c, send, allgathered), mpi.Alltoall(ctx, c, mine, swapped),
			mpi.ReduceScatterBlock(ctx, c, mine, scattered, sum))
	} else {
		var requests []mpi.Request
		add := func(q mpi.Request, failed error) {
			requests, err = append(requests, q), errors.Join(err, failed)
		}
		add(mpi.Ibcast(c, bcast, root))
		add(mpi.Ireduce(c, send, reduced, sum, root))
		add(mpi.Iallreduce(c, send, all, sum))
		add(mpi.Igather(c, send, gathered, root))
		add(mpi.Iallgather(c, send, allgathered))
		add(mpi.Ialltoall(c, mine, swapped))
		add(mpi.IreduceScatterBlock(c, mine, scattered, sum))
		if err == nil {
			err = mpi.WaitAll(ctx, requests, nil)
		}
	}
	if err != nil {
		return err
	}
	for i := range count {
		total := n*(n-1)/2 + n*i
		switch {
		case bcast[i] != root+i:
			return fmt.Errorf("bcast: element %d is %d", i, bcast[i])
		case c.Rank() == root && reduced[i] != total || all[i] != total:
			return fmt.Errorf("reduce and allreduce: element %d is %d and %d, want %d", i, reduced[i], all[i], total)
		case scattered[i] != n*(n-1)/2+n*(c.Rank()*count+i):
			return fmt.Errorf("reduce_scatter_block: element %d is %d", i, scattered[i])
		}
		for r := range n {
			if at := r*count + i; c.Rank() == root && gathered[at] != r+i || allgathered[at] != r+i || swapped[at] != r+c.Rank()*count+i {
				return fmt.Errorf("gather, allgather, alltoall: element %d from rank %d is %d, %d, %d", i, r, gathered[at], allgathered[at], swapped[at])
			}
		}
	}
	return nil
}

// The check precedes all messages.
func TestForce_OfOneComm_IsChecked(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, world *mpi.Comm) error {
		_, err := mpi.CommFromGroup(ctx, world.Group(), "forced", mpi.WithCommParam("coll.force", "allreduce=tuned:rnig"))
		if !errors.Is(err, mpi.ErrConfig) {
			return fmt.Errorf("an unknown algorithm: %w", err)
		}
		return nil
	})
}
