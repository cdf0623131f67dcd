package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

// streamJobs are the stacks over which streams are tested.
func streamJobs() map[string]mpitest.Job {
	return map[string]mpitest.Job{
		"ob1 shm":   {Params: map[string]string{"pml": "ob1", "btl": "self,shm"}},
		"ob1 tcp":   {Params: map[string]string{"pml": "ob1", "btl": "self,tcp"}},
		"cm memory": overMTL(mtltest.Options{}, "false"),
	}
}

// onStreamJobs runs a program of n ranks over each stack.
func onStreamJobs(t *testing.T, n int, f worldProgram) {
	t.Parallel()
	for name, job := range streamJobs() {
		job.Size = n
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job.RunSessions(t, inWorld(f))
		})
	}
}

// withNewStream makes a communicator over a new stream.
func withNewStream(ctx context.Context, s *mpi.Session, c *mpi.Comm) (*mpi.Comm, error) {
	stream, err := s.NewStream()
	if err != nil {
		return nil, err
	}
	return c.WithStream(ctx, stream)
}

// ring sends messages of several sizes to the next rank, and checks those of the rank before.
func ring(ctx context.Context, c *mpi.Comm, tag int) error {
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	for _, size := range []int{0, 8, 5000, 300_000} {
		out, in := bytes.Repeat([]byte{byte(c.Rank() + tag)}, size), make([]byte, size)
		if _, err := c.Sendrecv(ctx, out, next, tag, in, before, tag); err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
		if !bytes.Equal(in, bytes.Repeat([]byte{byte(before + tag)}, size)) {
			return fmt.Errorf("%d bytes with tag %d differ from those sent", size, tag)
		}
	}
	return nil
}

// sumOfRanks checks an allreduce.
func sumOfRanks(ctx context.Context, c *mpi.Comm) error {
	sum := make([]int, 1)
	if err := mpi.Allreduce(ctx, c, []int{c.Rank()}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	if want := c.Size() * (c.Size() - 1) / 2; sum[0] != want {
		return fmt.Errorf("sum of the ranks is %d, want %d", sum[0], want)
	}
	return nil
}

func TestStream_AllMembersOnStreams_ExchangeMessagesAndCollectives(t *testing.T) {
	onStreamJobs(t, 3, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		c, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		part, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		for _, x := range []*mpi.Comm{c, d, part, world} {
			if err := ring(ctx, x, 7); err != nil {
				return err
			}
			for range 3 { // the second opens shared memory
				if err := sumOfRanks(ctx, x); err != nil {
					return err
				}
			}
		}
		if got := c.Compare(world); got != mpi.Congruent {
			return fmt.Errorf("comparison with the parent: %v", got)
		}
		return errors.Join(part.Close(), d.Close(), c.Close())
	})
}

func TestStream_SomeMembersOnTheProcess_ExchangeMessages(t *testing.T) {
	onStreamJobs(t, 3, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		var stream *mpi.Stream
		if world.Rank() > 0 {
			var err error
			if stream, err = s.NewStream(); err != nil {
				return err
			}
		}
		mixed, err := world.WithStream(ctx, stream)
		if err != nil {
			return err
		}
		back, err := mixed.WithStream(ctx, nil)
		if err != nil {
			return err
		}
		for _, x := range []*mpi.Comm{mixed, back, world} {
			if err := errors.Join(ring(ctx, x, 3), sumOfRanks(ctx, x), sumOfRanks(ctx, x)); err != nil {
				return err
			}
		}
		return errors.Join(mixed.Close(), back.Close())
	})
}

func TestStream_GoroutinesOnSeveralStreams_ExchangeConcurrently(t *testing.T) {
	const streams, goroutines = 2, 2
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		var comms []*mpi.Comm
		for range streams {
			c, err := withNewStream(ctx, s, world)
			if err != nil {
				return err
			}
			comms = append(comms, c)
		}
		errs := make([]error, streams*goroutines)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				for round := range 5 {
					if errs[i] = ring(ctx, comms[i%streams], 100*i+round); errs[i] != nil {
						return
					}
				}
			})
		}
		all.Wait()
		for _, c := range comms {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	})
}

func TestStream_WaitsOverSeveralStreams_Complete(t *testing.T) {
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		a, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		b, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		peer := 1 - world.Rank()
		comms := []*mpi.Comm{a, b, world}
		for round := range 10 {
			var reqs []mpi.Request
			for _, c := range comms {
				q, err := c.Irecv(make([]byte, 8), peer, round)
				if err != nil {
					return err
				}
				reqs = append(reqs, q)
			}
			for _, c := range comms {
				if err := c.Send(ctx, make([]byte, 8), peer, round); err != nil {
					return err
				}
			}
			switch round % 3 {
			case 0:
				err = mpi.WaitAll(ctx, reqs, nil)
			case 1:
				for range reqs {
					if _, _, err = mpi.WaitAny(ctx, reqs); err != nil {
						return err
					}
				}
			default:
				for left := len(reqs); left > 0; {
					_, _, done, testErr := mpi.TestAny(reqs)
					if testErr != nil {
						return testErr
					}
					if done {
						left--
					}
				}
			}
			if err != nil {
				return err
			}
		}
		return errors.Join(a.Close(), b.Close())
	})
}

func TestStream_LastCommunicatorCloses_EndsTheStream(t *testing.T) {
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		stream, err := s.NewStream()
		if err != nil {
			return err
		}
		c, err := world.WithStream(ctx, stream)
		if err != nil {
			return err
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(ring(ctx, d, 1), c.Close(), ring(ctx, d, 2)); err != nil {
			return err
		}
		more, err := world.WithStream(ctx, stream)
		if err != nil {
			return fmt.Errorf("with an open communicator: %w", err)
		}
		if err := errors.Join(ring(ctx, more, 1), d.Close(), more.Close()); err != nil {
			return err
		}
		if _, err := world.WithStream(ctx, stream); !errors.Is(err, mpi.ErrClosed) || !strings.Contains(err.Error(), "NewStream") {
			return fmt.Errorf("stream that has ended: %v", err)
		}
		return ring(ctx, world, 1)
	})
}

func TestStream_ManyInTurn_ReuseTheirNames(t *testing.T) {
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		for i := range 20 {
			var stream *mpi.Stream
			if i%3 != world.Rank() { // otherwise the process itself, which meets many streams
				var err error
				if stream, err = s.NewStream(); err != nil {
					return err
				}
				if name := stream.String(); i%4 == 0 && name != "stream 1" {
					return fmt.Errorf("the only stream is %s", name)
				}
			}
			c, err := world.WithStream(ctx, stream)
			if err != nil {
				return fmt.Errorf("stream %d: %w", i, err)
			}
			if err := errors.Join(ring(ctx, c, i), sumOfRanks(ctx, c), sumOfRanks(ctx, c), c.Close()); err != nil {
				return fmt.Errorf("stream %d: %w", i, err)
			}
			if i%4 == 3 {
				if err := awaitStreams(ctx, s); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// awaitStreams returns when the streams of the process have ended.
func awaitStreams(ctx context.Context, s *mpi.Session) error {
	for strings.Contains(mpi.Queues(s), "\nstream ") { // Not the peers that are streams.
		select {
		case <-ctx.Done():
			return fmt.Errorf("streams have not ended: %s", mpi.Queues(s))
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func TestStream_PendingOperationsOfClosedCommunicator_Complete(t *testing.T) {
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		c, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			in := make([]byte, 8)
			q, err := c.Irecv(in, 1, 1)
			if err != nil {
				return err
			}
			if err := errors.Join(c.Close(), world.Send(ctx, nil, 1, 1)); err != nil {
				return err
			}
			_, err = q.Wait(ctx)
			return err
		}
		if _, err := world.Recv(ctx, nil, 0, 1); err != nil {
			return err
		}
		return errors.Join(c.Send(ctx, make([]byte, 8), 0, 1), c.Close())
	})
}

func TestStream_MatchedMessageOfClosedCommunicator_KeepsTheStream(t *testing.T) {
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		stream, err := s.NewStream()
		if err != nil {
			return err
		}
		c, err := world.WithStream(ctx, stream)
		if err != nil {
			return err
		}
		sizes := []int{8, 300_000}
		if world.Rank() == 0 {
			for i, n := range sizes {
				if _, err := c.Isend(pattern(n, i), 1, 1); err != nil {
					return err
				}
			}
			return errors.Join(c.Close(), mpi.Barrier(ctx, world))
		}
		var messages []*mpi.Message
		for range sizes {
			m, _, err := c.Mprobe(ctx, 0, 1)
			if err != nil {
				return err
			}
			messages = append(messages, m)
		}
		if err := c.Close(); err != nil {
			return err
		}
		if !mpi.HasPending(stream) {
			return errors.New("the stream ends before its messages are received")
		}
		for i, m := range messages {
			in := make([]byte, sizes[i])
			if _, err := m.Recv(ctx, in); err != nil || string(in) != string(pattern(len(in), i)) {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		return errors.Join(awaitStreams(ctx, s), mpi.Barrier(ctx, world))
	})
}

func TestStream_Reports_NameTheStream(t *testing.T) {
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		c, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		peer := 1 - world.Rank()
		q, err := c.Irecv(make([]byte, 8), peer, 77)
		if err != nil {
			return err
		}
		if err := ring(ctx, c, 1); err != nil {
			return err
		}
		if text := mpi.Queues(s); !strings.Contains(text, "(stream 1)") || !strings.Contains(text, "tag 77") {
			return fmt.Errorf("no receive of the stream in the queues: %s", text)
		}
		if x, err := c.Inspect(); err != nil || len(x.Posted) != 1 {
			return fmt.Errorf("inspection: %+v, %w", x, err)
		}
		x, err := s.Explain(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(x.Pairs, func(p mpi.Pair) bool {
			return p.FromStream == 1 && p.ToStream == 1 && p.ToRank == peer && p.Transport != ""
		}) {
			return fmt.Errorf("no route of the stream: %v", x)
		}
		if !slices.ContainsFunc(s.Stats().Peers, func(p mpi.PeerStats) bool {
			return p.Stream == 1 && p.PeerStream == 1 && p.Sent > 0 && p.Proc == world.Group().Members()[peer]
		}) {
			return fmt.Errorf("no counts of the stream: %+v", s.Stats())
		}
		if err := mpi.Barrier(ctx, world); err != nil {
			return err
		}
		if err := c.Send(ctx, make([]byte, 8), peer, 77); err != nil {
			return err
		}
		_, err = q.Wait(ctx)
		return errors.Join(err, c.Close())
	})
}

// Constructs on a stream make ids for further communicators.
func TestStream_ConstructWaits_IsInTheDump(t *testing.T) {
	job := streamJobs()["ob1 shm"]
	job.Size = 2
	job.RunSessions(t, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		c, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			_, err := world.Recv(ctx, nil, 0, 1)
			return errors.Join(err, mpi.ConstructOf(ctx, c, "more ids"), c.Close())
		}
		done := make(chan error, 1)
		go func() { done <- mpi.ConstructOf(ctx, c, "more ids") }()
		for !strings.Contains(mpi.Queues(s), `stream 1:
  waits for the others to create "more ids" with 2 processes`) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("the dump has no construct: %s", mpi.Queues(s))
			case <-time.After(time.Millisecond):
			}
		}
		return errors.Join(world.Send(ctx, nil, 1, 1), <-done, c.Close())
	}))
}

// Goroutine ranks over a stream exchange messages within a process and between processes, and the stream ends after them.
func TestStream_ThreadCommunicator_WorksAndEndsWithIt(t *testing.T) {
	const goroutines = 2
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		c, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		tc, err := mpi.NewThreadComm(ctx, c, goroutines)
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		for round := range 2 {
			err := tc.Run(ctx, func(ctx context.Context, rank *mpi.Comm) error {
				if rank.Size() != goroutines*world.Size() {
					return fmt.Errorf("%d ranks", rank.Size())
				}
				d, err := rank.Dup(ctx)
				if err != nil {
					return err
				}
				return errors.Join(ring(ctx, d, round), sumOfRanks(ctx, d), sumOfRanks(ctx, d), d.Close())
			})
			if err != nil {
				return err
			}
		}
		if !strings.Contains(mpi.Queues(s), "\nstream 1:") {
			return errors.New("the stream has ended before its thread communicator")
		}
		return errors.Join(ring(ctx, world, 3), tc.Close(), awaitStreams(ctx, s))
	})
}
