package bench

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// bidirectional is osu_bibw's loop: both ranks send and receive a window at the
// same time, and nobody acknowledges.
func (r *rank) bidirectional(ctx context.Context, size int) (Row, error) {
	iterations, warmup := r.o.loops(size, 100, 10, 20, 2)
	c := r.comm
	// Each way has its own tag.
	peer, out, in := 1-c.Rank(), 100+c.Rank(), 101-c.Rank()
	send, recv, err := r.buffers(size)
	if err != nil {
		return Row{}, err
	}
	sends, recvs := make([]mpi.Request, window), make([]mpi.Request, window)
	s := newSample()
	for i := range warmup + iterations {
		start := time.Now()
		for w := range recvs {
			var err error
			if recvs[w], err = c.Irecv(recv, peer, in); err != nil {
				return Row{}, err
			}
		}
		for w := range sends {
			var err error
			if sends[w], err = c.Isend(send, peer, out); err != nil {
				return Row{}, err
			}
		}
		if err := mpi.WaitAll(ctx, sends, nil); err != nil {
			return Row{}, err
		}
		if err := mpi.WaitAll(ctx, recvs, nil); err != nil {
			return Row{}, err
		}
		if i >= warmup {
			s.add(time.Since(start), 1)
		}
	}
	return s.rates(Row{Unit: "MB/s"}, 2*float64(size)*window, 1e3), nil
}
