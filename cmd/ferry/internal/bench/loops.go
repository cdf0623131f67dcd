package bench

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// window is how many messages bw and mbw_mr have under way at once (OSU's).
const window = 64

// batchOf returns the number of messages that are timed together, so that the clock
// costs less than 1 % of a small message.
func batchOf(size int) int {
	if size > largeMessage {
		return 10
	}
	return 100
}

// A loop is how often an operation is done. It is timed in batches.
type loop struct {
	iterations, warmupIterations int
	batchSize                    int // Iterations that are timed together.
	opsPerIteration              int
}

var epoch = time.Now()

// clock is the time since the program began. It reads one clock, as MPI_Wtime does in the
// peers' loops; time.Now reads two.
func clock() time.Duration { return time.Since(epoch) }

// time calls f with numbers of iterations, and returns their times. between,
// if not nil, follows each call and is not timed.
func (l loop) time(f func(n int) error, between func() error) (*sample, error) {
	s := newSample()
	for done := -l.warmupIterations; done < l.iterations; {
		n := min(l.batchSize, l.iterations-done)
		if done < 0 {
			n = min(l.batchSize, -done)
		}
		start := clock()
		if err := f(n); err != nil {
			return nil, err
		}
		if done >= 0 {
			s.add(clock()-start, l.opsPerIteration*n)
		}
		done += n
		if between == nil {
			continue
		}
		if err := between(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// latency is osu_latency's loop: half of the round trip of a ping-pong.
func (r *rank) latency(ctx context.Context, size int) (Row, error) {
	return r.latencyFrom(ctx, size, 1)
}

// latencyFrom is latency's loop, in which rank 0 receives from the given source. Rank
// 1 reads no clock.
func (r *rank) latencyFrom(ctx context.Context, size, source int) (Row, error) {
	if r.comm.Size() == 1 {
		return r.alone(ctx, size)
	}
	if r.comm.Rank() == 1 {
		l, _, pong, err := r.pingPong(ctx, size, 0, 0, 0)
		if err != nil {
			return Row{}, err
		}
		return Row{}, pong(l.warmupIterations + l.iterations)
	}
	l, ping, _, err := r.pingPong(ctx, size, 1, source, 0)
	if err != nil {
		return Row{}, err
	}
	s, err := l.time(ping, nil)
	if err != nil {
		return Row{}, err
	}
	return s.times(Row{Unit: "us"}, 1e-3), nil
}

// alone measures a message that a rank sends to itself.
func (r *rank) alone(ctx context.Context, size int) (Row, error) {
	l := r.o.loop(size, 10000, 100, 1000, 10)
	l.batchSize, l.opsPerIteration = batchOf(size), 1
	send, recv, err := r.buffers(size)
	if err != nil {
		return Row{}, err
	}
	s, err := l.time(func(n int) error {
		for range n {
			q, err := r.comm.Isend(send, 0, 0)
			if err == nil {
				_, err = r.comm.Recv(ctx, recv, 0, 0)
			}
			if err == nil {
				_, err = q.Wait(ctx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, nil)
	if err != nil {
		return Row{}, err
	}
	return s.times(Row{Unit: "us"}, 1e-3), nil
}

// multiLatency is osu_multi_lat's loop, ping-pongs of several pairs at once. Each pair is a
// rank of the first half and one of the second.
func (r *rank) multiLatency(ctx context.Context, size int) (Row, error) {
	half := r.comm.Size() / 2
	peer := (r.comm.Rank() + half) % (2 * half)
	l, f, pong, err := r.pingPong(ctx, size, peer, peer, 0)
	if err != nil {
		return Row{}, err
	}
	if r.comm.Rank() >= half {
		f = pong
	}
	s, err := l.time(f, nil)
	if err != nil {
		return Row{}, err
	}
	return r.overAllRanks(ctx, s)
}

// pingPong returns both sides of a ping-pong with a peer and a tag.
func (r *rank) pingPong(ctx context.Context, size, peer, source, tag int) (l loop, ping, pong func(n int) error, err error) {
	l = r.o.loop(size, 10000, 100, 1000, 10)
	l.batchSize, l.opsPerIteration = batchOf(size), 2
	send, recv, err := r.buffers(size)
	c := r.comm
	ping = func(n int) error {
		for range n {
			if err := c.Send(ctx, send, peer, tag); err != nil {
				return err
			}
			if _, err := c.Recv(ctx, recv, source, tag); err != nil {
				return err
			}
		}
		return nil
	}
	pong = func(n int) error {
		for range n {
			if _, err := c.Recv(ctx, recv, source, tag); err != nil {
				return err
			}
			if err := c.Send(ctx, send, peer, tag); err != nil {
				return err
			}
		}
		return nil
	}
	return l, ping, pong, err
}

// bandwidth is osu_bw's loop.
func (r *rank) bandwidth(ctx context.Context, size int) (Row, error) {
	s, err := r.windows(ctx, size)
	if err != nil || r.comm.Rank() != 0 {
		return Row{}, err
	}
	return s.rates(Row{Unit: "MB/s"}, float64(size)*window, 1e3), nil // bytes/ns are 1000 MB/s
}

// rate is osu_mbw_mr's loop: several pairs at once. Each figure is of the mean over the
// senders' times, as the average there.
func (r *rank) rate(ctx context.Context, size int) (Row, error) {
	s, err := r.windows(ctx, size)
	if err != nil {
		return Row{}, err
	}
	pairs := r.comm.Size() / 2
	f, err := r.averages(ctx, s, pairs)
	if err != nil || r.comm.Rank() != 0 {
		return Row{}, err
	}
	return f.rates(Row{Unit: "messages/s"}, float64(pairs)*window, 1e9), nil
}

// windows sends windows of messages from the first half of the ranks to the
// second. The sample counts windows, at the senders.
func (r *rank) windows(ctx context.Context, size int) (*sample, error) {
	transfer, err := r.windowsOn(r.comm, size)
	if err != nil {
		return nil, err
	}
	return transfer(ctx, r.o.windows(size))
}

// windowsOn returns windows on a communicator with the ranks of r.comm. Its buffers exist when it returns.
func (r *rank) windowsOn(c *mpi.Comm, size int) (func(ctx context.Context, l loop) (*sample, error), error) {
	const data, ack = 100, 101
	half := c.Size() / 2
	buf, err := r.buffer(size)
	if err != nil {
		return nil, err
	}
	reply := make([]byte, 4)
	reqs := make([]mpi.Request, window)
	if half == 0 { // alone
		other, sends := make([]byte, size), make([]mpi.Request, window)
		return func(ctx context.Context, l loop) (*sample, error) {
			return l.time(func(int) error {
				err := irecvs(c, reqs, other, 0, data)
				if err == nil {
					err = isends(c, sends, buf, 0, data)
				}
				if err == nil {
					err = mpi.WaitAll(ctx, sends, nil)
				}
				if err == nil {
					err = mpi.WaitAll(ctx, reqs, nil)
				}
				return err
			}, nil)
		}, nil
	}
	if c.Rank() < half {
		peer := c.Rank() + half
		return func(ctx context.Context, l loop) (*sample, error) {
			return l.time(func(int) error {
				if err := isends(c, reqs, buf, peer, data); err != nil {
					return err
				}
				if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
					return err
				}
				_, err := c.Recv(ctx, reply, peer, ack)
				return err
			}, nil)
		}, nil
	}
	peer := c.Rank() - half
	return func(ctx context.Context, l loop) (*sample, error) {
		for range l.warmupIterations + l.iterations {
			if err := irecvs(c, reqs, buf, peer, data); err != nil {
				return nil, err
			}
			if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
				return nil, err
			}
			if err := c.Send(ctx, reply, peer, ack); err != nil {
				return nil, err
			}
		}
		return newSample(), nil
	}, nil
}

// windows returns the loop of benchmarks that send windows of messages.
func (o *loopOptions) windows(size int) loop { return o.loop(size, 100, 10, 20, 2) }

func isends(c *mpi.Comm, reqs []mpi.Request, buf []byte, peer, tag int) (err error) {
	for w := range reqs {
		if reqs[w], err = c.Isend(buf, peer, tag); err != nil {
			return err
		}
	}
	return nil
}

func irecvs(c *mpi.Comm, reqs []mpi.Request, buf []byte, peer, tag int) (err error) {
	for w := range reqs {
		if reqs[w], err = c.Irecv(buf, peer, tag); err != nil {
			return err
		}
	}
	return nil
}

// bidirectional is osu_bibw's loop: both ranks send and receive a window at the
// same time, without acknowledgments.
func (r *rank) bidirectional(ctx context.Context, size int) (Row, error) {
	c := r.comm
	// Each way has its own tag.
	peer, out, in := 1-c.Rank(), 100+c.Rank(), 101-c.Rank()
	send, recv, err := r.buffers(size)
	if err != nil {
		return Row{}, err
	}
	sends, recvs := make([]mpi.Request, window), make([]mpi.Request, window)
	s, err := r.o.windows(size).time(func(int) error {
		if err := irecvs(c, recvs, recv, peer, in); err != nil {
			return err
		}
		if err := isends(c, sends, send, peer, out); err != nil {
			return err
		}
		if err := mpi.WaitAll(ctx, sends, nil); err != nil {
			return err
		}
		return mpi.WaitAll(ctx, recvs, nil)
	}, nil)
	if err != nil {
		return Row{}, err
	}
	return s.rates(Row{Unit: "MB/s"}, 2*float64(size)*window, 1e3), nil
}

// overAllRanks makes a row in us of the samples of all ranks, at rank 0. Each figure is
// the mean over the ranks. A barrier comes first, as in OSU's loops, because a rank that
// continued would take a processor from others in the last operation.
func (r *rank) overAllRanks(ctx context.Context, s *sample) (Row, error) {
	if err := mpi.Barrier(ctx, r.comm); err != nil {
		return Row{}, err
	}
	f, err := r.averages(ctx, s, r.comm.Size())
	if err != nil {
		return Row{}, err
	}
	return f.times(Row{Unit: "us"}, 1e-3), nil
}

// averages returns the mean of each figure over the samples of the ranks, at rank 0. Samples is the number of those that
// are not empty.
func (r *rank) averages(ctx context.Context, s *sample, samples int) (summary, error) {
	own := s.summary()
	all := summary{operationCount: own.operationCount}
	err := mpi.Reduce(ctx, r.comm, own.nsPerOperation[:], all.nsPerOperation[:], mpi.Sum[float64](), 0)
	for i := range all.nsPerOperation {
		all.nsPerOperation[i] /= float64(samples)
	}
	return all, err
}

// settle is how long the players wait until those that only wait have gone to sleep:
// 63 of them yield some milliseconds each before that.
const settle = 200 * time.Millisecond

// anyLatency is latency's loop between ranks 0 and 1, where rank 0 receives from
// any source.
func (r *rank) anyLatency(ctx context.Context) error {
	return r.amongOthers(ctx, mpi.AnySource, 1, r.comm.Size()-1)
}

// latencyAmongOthers is latency's loop with more connections of ranks 0 and 1.
// Ranks that do not connect leave, because they may have no transport.
func (r *rank) latencyAmongOthers(ctx context.Context) error {
	if r.comm.Rank() > max(1, r.o.connectedRanks) {
		return nil
	}
	return r.amongOthers(ctx, 1, 2, r.o.connectedRanks)
}

// amongOthers is latency's loop between ranks 0 and 1, where rank 0 receives from a source. The
// first --connected of the other ranks have sent a message to the players before. All others up to the
// last one are blocked in a receive until the end. There is no barrier, because it would connect
// more ranks.
func (r *rank) amongOthers(ctx context.Context, source, players, last int) error {
	const hello, bye = 2, 3
	c := r.comm
	connected := r.o.connectedRanks
	if connected == 0 {
		connected = c.Size() - 1
	}
	me := c.Rank()
	if me > 1 {
		for to := 0; to < players && me <= connected; to++ {
			if err := c.Send(ctx, nil, to, hello); err != nil {
				return err
			}
		}
		_, err := c.Recv(ctx, nil, 0, bye)
		return err
	}
	for peer := 2; peer <= connected && me < players; peer++ {
		if _, err := c.Recv(ctx, nil, peer, hello); err != nil {
			return err
		}
	}
	if me == 0 {
		time.Sleep(settle)
	}
	err := r.sizes(func(size int) error {
		return r.row(ctx, size, func() (Row, error) { return r.latencyFrom(ctx, size, source) })
	})
	for peer := 2; peer <= last && me == 0 && err == nil; peer++ {
		err = c.Send(ctx, nil, peer, bye)
	}
	return err
}

// together times f in all ranks. The calls of between are not timed. Each figure is the mean over the ranks.
func (r *rank) together(ctx context.Context, size, batch, warmup int, f func(n int) error, between func() error) (Row, error) {
	l := r.o.loop(size, 1000, warmup, 100, 10)
	l.batchSize = batch
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
