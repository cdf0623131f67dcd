package bench

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// window is how many messages bw and mbw_mr have under way at once (OSU's).
const window = 64

// batchOf returns how many messages are timed together: reading the clock then
// costs less than 1 % of a small message.
func batchOf(size int) int {
	if size > largeMessage {
		return 10
	}
	return 100
}

// latency is osu_latency's loop: half of the round trip of a ping-pong.
func (r *rank) latency(ctx context.Context, size int) (Row, error) {
	return r.pingPong(ctx, size, 1)
}

// pingPong is latency's loop, in which rank 0 receives from the given source.
func (r *rank) pingPong(ctx context.Context, size, source int) (Row, error) {
	iterations, warmup := r.o.loops(size, 10000, 100, 1000, 10)
	send, recv, err := r.buffers(size)
	if err != nil {
		return Row{}, err
	}
	s := newSample()
	c := r.comm
	switch c.Rank() {
	case 0:
		for done := -warmup; done < iterations; {
			n := min(batchOf(size), iterations-done)
			if done < 0 {
				n = -done
			}
			start := time.Now()
			for range n {
				if err := c.Send(ctx, send, 1, 0); err != nil {
					return Row{}, err
				}
				if _, err := c.Recv(ctx, recv, source, 0); err != nil {
					return Row{}, err
				}
			}
			if done >= 0 {
				s.add(time.Since(start), 2*n)
			}
			done += n
		}
		return s.times(Row{Unit: "us"}, 1e-3), nil
	case 1:
		for range warmup + iterations {
			if _, err := c.Recv(ctx, recv, 0, 0); err != nil {
				return Row{}, err
			}
			if err := c.Send(ctx, send, 0, 0); err != nil {
				return Row{}, err
			}
		}
	}
	return Row{}, nil
}

// bandwidth is osu_bw's loop.
func (r *rank) bandwidth(ctx context.Context, size int) (Row, error) {
	s, err := r.windows(ctx, size)
	if err != nil || r.comm.Rank() != 0 {
		return Row{}, err
	}
	return s.rates(Row{Unit: "MB/s"}, float64(size)*window, 1e3), nil // bytes/ns are 1000 MB/s
}

// rate is osu_mbw_mr's loop: several pairs at once. The average is over the mean
// of the senders' times, as there; the rest is rank 0's, times the pairs.
func (r *rank) rate(ctx context.Context, size int) (Row, error) {
	s, err := r.windows(ctx, size)
	if err != nil {
		return Row{}, err
	}
	mine, total := []int64{int64(s.sum)}, make([]int64, 1)
	if err := mpi.Reduce(ctx, r.comm, mine, total, mpi.Sum[int64](), 0); err != nil || r.comm.Rank() != 0 {
		return Row{}, err
	}
	pairs := r.comm.Size() / 2
	row := s.rates(Row{Unit: "messages/s"}, float64(pairs)*window, 1e9)
	row.Avg = float64(pairs) * window * float64(s.ops) / (float64(total[0]) / float64(pairs)) * 1e9
	return row, nil
}

// windows sends windows of messages from the first half of the ranks to the
// second. The sample counts windows, at the senders.
func (r *rank) windows(ctx context.Context, size int) (*sample, error) {
	const data, ack = 100, 101
	iterations, warmup := r.o.loops(size, 100, 10, 20, 2)
	c := r.comm
	half := c.Size() / 2
	buf, err := r.buffer(size)
	if err != nil {
		return nil, err
	}
	reply := make([]byte, 4)
	reqs := make([]mpi.Request, window)
	s := newSample()
	for i := range warmup + iterations {
		start := time.Now()
		if c.Rank() < half {
			peer := c.Rank() + half
			for w := range reqs {
				var err error
				if reqs[w], err = c.Isend(buf, peer, data); err != nil {
					return nil, err
				}
			}
			if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
				return nil, err
			}
			if _, err := c.Recv(ctx, reply, peer, ack); err != nil {
				return nil, err
			}
			if i >= warmup {
				s.add(time.Since(start), 1)
			}
			continue
		}
		peer := c.Rank() - half
		for w := range reqs {
			var err error
			if reqs[w], err = c.Irecv(buf, peer, data); err != nil {
				return nil, err
			}
		}
		if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
			return nil, err
		}
		if err := c.Send(ctx, reply, peer, ack); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// barrier is osu_barrier's loop. The average is over all ranks.
func (r *rank) barrier(ctx context.Context, _ int) (Row, error) {
	const batch = 10
	iterations, warmup := r.o.loops(0, 1000, 200, 0, 0)
	s := newSample()
	for done := -warmup; done < iterations; {
		n := min(batch, iterations-done)
		if done < 0 {
			n = -done
		}
		start := time.Now()
		for range n {
			if err := mpi.Barrier(ctx, r.comm); err != nil {
				return Row{}, err
			}
		}
		if done >= 0 {
			s.add(time.Since(start), n)
		}
		done += n
	}
	return r.overAllRanks(ctx, s)
}

// overAllRanks makes a row in us of what all ranks have timed: the average is
// that of all, the rest is the caller's.
func (r *rank) overAllRanks(ctx context.Context, s *sample) (Row, error) {
	mine, total := []int64{int64(s.sum)}, make([]int64, 1)
	if err := mpi.Reduce(ctx, r.comm, mine, total, mpi.Sum[int64](), 0); err != nil {
		return Row{}, err
	}
	row := s.times(Row{Unit: "us"}, 1e-3)
	row.Avg = float64(total[0]) / float64(r.comm.Size()) / float64(s.ops) * 1e-3
	return row, nil
}
