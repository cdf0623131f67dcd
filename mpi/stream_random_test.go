package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ferrympi/ferry/mpi"
)

// TestStream_RandomOperations_ReachAllMembers creates, uses and closes communicators of streams in several goroutines at once,
// while another one observes the session.
func TestStream_RandomOperations_ReachAllMembers(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for name, job := range streamJobs() {
		job.Size, job.Timeout = 3, 5*time.Minute // Many messages, with the race detector on a busy machine.
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job.RunSessions(t, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
				return useStreamsAtRandom(ctx, s, world, seed)
			}))
		})
	}
}

// useStreamsAtRandom performs the operations of a seed.
func useStreamsAtRandom(ctx context.Context, s *mpi.Session, world *mpi.Comm, seed uint64) error {
	observing, stop := context.WithCancel(ctx)
	observer := make(chan error, 1)
	go func() { observer <- observeStreams(observing, s, world) }()
	workers, inWorkers := errgroup.WithContext(ctx)
	var err error
	for i := range 3 {
		var c *mpi.Comm
		if c, err = world.Dup(ctx); err != nil {
			break
		}
		workers.Go(func() error {
			w := streamWorker{s: s, base: c, shared: rand.New(rand.NewPCG(seed, uint64(i)))}
			return errors.Join(w.run(inWorkers, 12), c.Close())
		})
	}
	err = errors.Join(err, workers.Wait())
	stop()
	return errors.Join(err, <-observer)
}

// observeStreams reads the state of a session until its context ends.
func observeStreams(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	for ticks := time.Tick(10 * time.Millisecond); ctx.Err() == nil; <-ticks {
		s.Stats()
		_, explained := s.Explain(ctx)
		_, inspected := c.Inspect()
		for _, err := range []error{explained, inspected} {
			if err != nil && ctx.Err() == nil && !errors.Is(err, mpi.ErrTimeout) { // On a busy machine an engine may not become free in time.
				return err
			}
		}
	}
	return nil
}

// streamWorker performs the same operations in all members.
type streamWorker struct {
	s    *mpi.Session
	base *mpi.Comm
	// With the same state in all members.
	shared *rand.Rand
	open   []*mpi.Comm
}

func (w *streamWorker) run(ctx context.Context, operations int) (err error) {
	for i := range operations {
		if err := w.operate(ctx); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	for len(w.open) > 0 {
		err = errors.Join(err, w.pick(true).Close())
	}
	return err
}

// pick returns an open communicator, and forgets it if it is to be closed.
func (w *streamWorker) pick(forget bool) *mpi.Comm {
	if len(w.open) == 0 {
		return nil
	}
	i := w.shared.IntN(len(w.open))
	c := w.open[i]
	if forget {
		w.open = append(w.open[:i], w.open[i+1:]...)
	}
	return c
}

func (w *streamWorker) operate(ctx context.Context) error {
	n := w.shared.IntN(6)
	if len(w.open) > 4 {
		n = 5
	}
	if len(w.open) == 0 {
		n = 0
	}
	switch n {
	case 0: // Some members pass a new stream, and the others none.
		onStream := w.shared.IntN(1 << w.base.Size())
		var stream *mpi.Stream
		if onStream>>w.base.Rank()&1 == 1 {
			var err error
			if stream, err = w.s.NewStream(); err != nil {
				return err
			}
		}
		c, err := w.base.WithStream(ctx, stream)
		w.open = append(w.open, c)
		return err
	case 1:
		c, err := w.pick(false).Dup(ctx)
		w.open = append(w.open, c)
		return err
	case 2:
		old := w.pick(false)
		c, err := old.Split(ctx, 0, w.shared.IntN(2)*-old.Rank())
		w.open = append(w.open, c)
		return err
	case 3:
		return ring(ctx, w.pick(false), w.shared.IntN(100))
	case 4:
		return sumOfRanks(ctx, w.pick(false))
	}
	return w.closePending(ctx)
}

// closePending closes a communicator with messages that have not arrived.
func (w *streamWorker) closePending(ctx context.Context) error {
	c := w.pick(true)
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	in := make([]byte, 200_000)
	out := make([]byte, 1+w.shared.IntN(len(in)))
	out[len(out)-1] = byte(c.Rank())
	sent, err := c.Isend(out, next, 1)
	if err != nil {
		return err
	}
	received, err := c.Irecv(in, before, 1)
	if err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	if err := mpi.WaitAll(ctx, []mpi.Request{sent, received}, nil); err != nil {
		return fmt.Errorf("after the close: %w", err)
	}
	if in[len(out)-1] != byte(before) {
		return fmt.Errorf("after the close: %d from rank %d", in[len(out)-1], before)
	}
	return nil
}
