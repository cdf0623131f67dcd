package bench

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// elementBytes is the size of an element of allreduce: a float32, as in OSU's.
const elementBytes = 4

// allreduce is osu_allreduce's loop: a barrier, which is not timed, keeps the
// iterations apart.
func (r *rank) allreduce(ctx context.Context, size int) (Row, error) {
	iterations, warmup := r.o.loops(size, 1000, 100, 100, 10)
	send, recv := make([]float32, size/elementBytes), make([]float32, size/elementBytes)
	for i := range send {
		send[i], recv[i] = 1, 0
	}
	sum := mpi.Sum[float32]()
	s := newSample()
	for i := range warmup + iterations {
		start := time.Now()
		if err := mpi.Allreduce(ctx, r.comm, send, recv, sum); err != nil {
			return Row{}, err
		}
		if i >= warmup {
			s.add(time.Since(start), 1)
		}
		if err := mpi.Barrier(ctx, r.comm); err != nil {
			return Row{}, err
		}
	}
	return r.overAllRanks(ctx, s)
}
