package bench

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// dup times (*Comm).Dup. Closing is not timed.
func (r *rank) dup(ctx context.Context, _ int) (Row, error) {
	return r.communicators(ctx, func() (*mpi.Comm, error) { return r.comm.Dup(ctx) })
}

// create times CommFromGroup, again and again with the same tag.
func (r *rank) create(ctx context.Context, _ int) (Row, error) {
	group := r.comm.Group()
	return r.communicators(ctx, func() (*mpi.Comm, error) { return mpi.CommFromGroup(ctx, group, "ferry.bench.create") })
}

func (r *rank) communicators(ctx context.Context, newComm func() (*mpi.Comm, error)) (Row, error) {
	iterations, warmup := r.o.loops(0, 1000, 100, 0, 0)
	s := newSample()
	for i := range warmup + iterations {
		start := time.Now()
		c, err := newComm()
		if err != nil {
			return Row{}, err
		}
		if i >= warmup {
			s.add(time.Since(start), 1)
		}
		if err := c.Close(); err != nil {
			return Row{}, err
		}
	}
	return r.overAllRanks(ctx, s)
}
