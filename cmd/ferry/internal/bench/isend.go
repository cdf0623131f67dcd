package bench

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// isend measures a message with a computing sender: the wait of its receiver, and the part of the
// transfer that overlaps with the computation.

// computing is how long the sender computes after Isend.
const computing = 20 * time.Millisecond

// isend compares the time of a receive with and without computation of the sender.
func (r *rank) isend(ctx context.Context, size int) (Row, error) {
	pure, err := r.received(ctx, size, 0)
	if err != nil {
		return Row{}, err
	}
	row, err := r.received(ctx, size, computing)
	row.ComputeTime, row.PureTime = float64(computing.Microseconds()), pure.Avg
	row.OverlapPercent = min(100, max(0, 100-(row.Avg-row.PureTime)/row.ComputeTime*100))
	return row, err
}

// received returns the time of rank 1's receive. Rank 0 computes for the given time between Isend and
// Wait.
func (r *rank) received(ctx context.Context, size int, compute time.Duration) (Row, error) {
	c := r.comm
	buf, err := r.buffer(size)
	if err != nil {
		return Row{}, err
	}
	l := r.o.loop(size, 100, 10, 50, 5)
	s, err := l.time(func(int) error {
		if c.Rank() == 1 {
			_, err := c.Recv(ctx, buf, 0, 0)
			return err
		}
		q, err := c.Isend(buf, 1, 0)
		if err != nil {
			return err
		}
		work(compute)
		_, err = q.Wait(ctx)
		return err
	}, func() error { return mpi.Barrier(ctx, c) })
	if err != nil {
		return Row{}, err
	}
	row := s.times(Row{Unit: "us"}, 1e-3)
	theirs := []float64{row.Avg, row.Min, row.P50, row.P99}
	err = mpi.Bcast(ctx, c, theirs, 1)
	row.Avg, row.Min, row.P50, row.P99 = theirs[0], theirs[1], theirs[2], theirs[3]
	return row, err
}
