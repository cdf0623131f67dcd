package bench

import (
	"context"

	"github.com/ferrympi/ferry/mpi"
)

// together times what all ranks do together: f, and between each two of it what is
// not timed. The average is that of all ranks.
func (r *rank) together(ctx context.Context, size, batch, warmup int, f func(n int) error, between func() error) (Row, error) {
	l := r.o.loop(size, 1000, warmup, 100, 10)
	l.batch = batch
	s, err := l.time(f, between)
	if err != nil {
		return Row{}, err
	}
	return r.overAllRanks(ctx, s)
}

// barrier is osu_barrier's loop.
func (r *rank) barrier(ctx context.Context, _ int) (Row, error) {
	return r.together(ctx, 0, 10, 200, func(n int) error {
		for range n {
			if err := mpi.Barrier(ctx, r.comm); err != nil {
				return err
			}
		}
		return nil
	}, nil)
}

// elementBytes is the size of an element of allreduce: a float32, as in OSU's.
const elementBytes = 4

// allreduce is osu_allreduce's loop: a barrier, which is not timed, keeps the
// iterations apart.
func (r *rank) allreduce(ctx context.Context, size int) (Row, error) {
	send, recv := make([]float32, size/elementBytes), make([]float32, size/elementBytes)
	for i := range send {
		send[i], recv[i] = 1, 0
	}
	sum := mpi.Sum[float32]()
	return r.together(ctx, size, 1, 100,
		func(int) error { return mpi.Allreduce(ctx, r.comm, send, recv, sum) },
		func() error { return mpi.Barrier(ctx, r.comm) })
}

// dup times (*Comm).Dup.
func (r *rank) dup(ctx context.Context, _ int) (Row, error) {
	return r.communicators(ctx, func() (*mpi.Comm, error) { return r.comm.Dup(ctx) })
}

// create times CommFromGroup, again and again with the same tag.
func (r *rank) create(ctx context.Context, _ int) (Row, error) {
	group := r.comm.Group()
	return r.communicators(ctx, func() (*mpi.Comm, error) { return mpi.CommFromGroup(ctx, group, "ferry.bench.create") })
}

// communicators are made and closed; closing is not timed.
func (r *rank) communicators(ctx context.Context, newComm func() (*mpi.Comm, error)) (Row, error) {
	var c *mpi.Comm
	return r.together(ctx, 0, 1, 100,
		func(int) (err error) { c, err = newComm(); return err },
		func() error { return c.Close() })
}
