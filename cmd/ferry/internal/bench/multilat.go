package bench

import (
	"context"
	"time"
)

// multiLatency is osu_multi_lat's loop: ping-pongs of several pairs at once, a
// rank of the first half with one of the second.
func (r *rank) multiLatency(ctx context.Context, size int) (Row, error) {
	iterations, warmup := r.o.loops(size, 10000, 100, 1000, 10)
	send, recv, err := r.buffers(size)
	if err != nil {
		return Row{}, err
	}
	c := r.comm
	half := c.Size() / 2
	s := newSample()
	for done := -warmup; done < iterations; {
		n := min(batchOf(size), iterations-done)
		if done < 0 {
			n = -done
		}
		start := time.Now()
		for range n {
			if c.Rank() < half {
				if err := c.Send(ctx, send, c.Rank()+half, 1); err != nil {
					return Row{}, err
				}
				if _, err := c.Recv(ctx, recv, c.Rank()+half, 1); err != nil {
					return Row{}, err
				}
				continue
			}
			if _, err := c.Recv(ctx, recv, c.Rank()-half, 1); err != nil {
				return Row{}, err
			}
			if err := c.Send(ctx, send, c.Rank()-half, 1); err != nil {
				return Row{}, err
			}
		}
		if done >= 0 {
			s.add(time.Since(start), 2*n)
		}
		done += n
	}
	return r.overAllRanks(ctx, s)
}
