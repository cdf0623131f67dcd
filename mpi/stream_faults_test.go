package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
)

func TestWithStream_GoroutineRank_IsUnsupported(t *testing.T) {
	t.Parallel()
	mpitest.Job{Size: 1, Goroutines: 2}.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		if _, err := c.WithStream(ctx, nil); !errors.Is(err, mpi.ErrUnsupported) {
			return fmt.Errorf("stream of a goroutine rank: %v", err)
		}
		return nil
	})
}

func TestWithStream_StreamOfAnotherSession_NamesBothSessions(t *testing.T) {
	ranks(t, 1, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		other, err := mpitest.Open(ctx)
		if err != nil {
			return err
		}
		stream, err := other.NewStream()
		if err != nil {
			return err
		}
		_, err = world.WithStream(ctx, stream)
		if !errors.Is(err, mpi.ErrConfig) || strings.Count(err.Error(), "session ") < 2 {
			return fmt.Errorf("stream of another session: %v", err)
		}
		if err := other.Close(); err != nil {
			return fmt.Errorf("session with an unused stream: %w", err)
		}
		if _, err := world.WithStream(ctx, stream); !errors.Is(err, mpi.ErrClosed) {
			return fmt.Errorf("stream of a closed session: %v", err)
		}
		if _, err := other.NewStream(); !errors.Is(err, mpi.ErrClosed) {
			return fmt.Errorf("new stream of a closed session: %v", err)
		}
		return sumOfRanks(ctx, world)
	}))
}

// limited is a transport that opens a number of times. Its first probe succeeds.
type limited struct {
	btl.Component
	opens, probes atomic.Int32
}

func (l *limited) Probe(ctx context.Context, params any) framework.Verdict {
	if l.probes.Add(1) > 1 {
		return framework.Unavailable("it was probed before", "")
	}
	return l.Component.Probe(ctx, params)
}

func (l *limited) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	if l.opens.Add(-1) < 0 {
		return nil, errors.New("all 65 contexts of the device are in use")
	}
	return l.Component.Open(ctx, env)
}

// onlyShm is a registry with another BTL in place of shm.
func onlyShm(shm btl.Component) *framework.Registry {
	reg := without(components.Standard(), func(kind framework.Kind, name string) bool { return kind == framework.BTL && name == "shm" })
	reg.Register(shm)
	return reg
}

func TestNewStream_TransportIsFull_ReturnsItsLimitAndLeavesNothing(t *testing.T) {
	const streams = 64
	transport := &limited{Component: shm.OnHeap()}
	transport.opens.Store(1 + streams)
	s, err := mpi.OpenSession(t.Context(), mpi.WithRegistry(onlyShm(transport)), mpi.WithParam("pml", "ob1"))
	if err != nil {
		t.Fatal(err)
	}
	for range streams {
		if _, err := s.NewStream(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		_, err = s.NewStream()
		if !errors.Is(err, mpi.ErrUnsupported) || !strings.Contains(err.Error(), "all 65 contexts") {
			t.Errorf("new stream: %v", err)
		}
	}
	if err := s.Close(); err != nil { // goleak finds the rest
		t.Errorf("close: %v", err)
	}
}

// oncePML is a PML that opens once.
type oncePML struct {
	pml.Component
	opens atomic.Int32
}

func (c *oncePML) Unwrap() any { return c.Component }

func (c *oncePML) Open(ctx context.Context, env pml.Env) (pml.Module, error) {
	if c.opens.Add(1) > 1 {
		return nil, errors.New("the device has one endpoint")
	}
	return c.Component.Open(ctx, env)
}

func TestNewStream_PMLDoesNotOpenAgain_ReturnsItsReason(t *testing.T) {
	reg, standard := framework.NewRegistry(), components.Standard()
	for _, kind := range standard.Kinds() {
		for _, c := range standard.Components(kind) {
			if kind != framework.PML {
				reg.Register(c)
			}
		}
	}
	reg.Register(&oncePML{Component: ob1.Component()})
	s, err := mpi.OpenSession(t.Context(), mpi.WithRegistry(reg), mpi.WithParam("pml", "ob1"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.NewStream()
	if !errors.Is(err, mpi.ErrUnsupported) || errors.Is(err, mpi.ErrConfig) || !strings.Contains(err.Error(), "the device has one endpoint") {
		t.Errorf("new stream: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// The file system for segments has room for that of the process, and for some streams.
func TestNewStream_NoRoomForSegment_LeavesNothing(t *testing.T) {
	dir := needs.SmallTmpfs(t, 512<<10)
	segments := func() int {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	s, err := mpi.OpenSession(t.Context(), mpi.WithParam("pml", "ob1"), mpi.WithParam("btl", "self,shm"), mpi.WithParam("btl.shm.dir", dir), mpi.WithParam("btl.shm.fallback_dir", ""))
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for err == nil {
		if _, err = s.NewStream(); err == nil {
			open++
		}
	}
	before := segments()
	for range 2 {
		if _, err := s.NewStream(); !errors.Is(err, mpi.ErrUnsupported) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "no space") && !strings.Contains(err.Error(), "no room") {
			t.Errorf("stream %d: %v", open+1, err)
		}
	}
	if after := segments(); open == 0 || before != 1+open || after != before {
		t.Errorf("%d streams; %d segments after the first failure, and %d after others", open, before, after)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := segments(); n > 0 {
		t.Errorf("%d segments after Close", n)
	}
}

// brokenEnd is a transport that fails to close, except in the process.
type brokenEnd struct {
	btl.Component
	opens atomic.Int32
}

type brokenModule struct{ btl.Module }

func (m brokenModule) Unwrap() any { return m.Module }

func (m brokenModule) Close() error {
	return errors.Join(m.Module.Close(), errors.New("the device does not answer"))
}

func (b *brokenEnd) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	m, err := b.Component.Open(ctx, env)
	if b.opens.Add(1) > 1 && err == nil {
		m = brokenModule{m}
	}
	return m, err
}

func TestSessionClose_StreamHasEndedWithError_ReturnsIt(t *testing.T) {
	s, err := mpi.OpenSession(t.Context(), mpi.WithRegistry(onlyShm(&brokenEnd{Component: shm.OnHeap()})), mpi.WithParam("pml", "ob1"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := s.Group(t.Context(), "mpi://SELF")
	if err != nil {
		t.Fatal(err)
	}
	parent, err := mpi.CommFromGroup(t.Context(), self, "parent")
	if err != nil {
		t.Fatal(err)
	}
	c, err := withNewStream(t.Context(), s, parent)
	if err == nil {
		err = errors.Join(c.Close(), awaitStreams(t.Context(), s), parent.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "stream 1: ") || !strings.Contains(err.Error(), "the device does not answer") {
		t.Errorf("close of the session: %v", err)
	}
}

func TestSession_CloseWithOpenStreamCommunicator_NamesIt(t *testing.T) {
	ranks(t, 1, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		other, err := mpitest.Open(ctx)
		if err != nil {
			return err
		}
		self, err := other.Group(ctx, "mpi://SELF")
		if err != nil {
			return err
		}
		parent, err := mpi.CommFromGroup(ctx, self, "parent")
		if err != nil {
			return err
		}
		c, err := withNewStream(ctx, other, parent)
		if err != nil {
			return err
		}
		c.SetName("pressure")
		if err := parent.Close(); err != nil {
			return err
		}
		if err := other.Close(); !errors.Is(err, mpi.ErrPending) || !strings.Contains(err.Error(), `communicator "pressure" of stream 1`) {
			return fmt.Errorf("close with a stream's communicator: %v", err)
		}
		return errors.Join(sumOfRanks(ctx, c), c.Close(), other.Close())
	}))
}

func TestWithStream_ContextEnds_BreaksTheParentInAllMembers(t *testing.T) {
	ranks(t, 2, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		parent, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		stream, err := s.NewStream()
		if err != nil {
			return err
		}
		calling := ctx
		if world.Rank() == 0 {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			calling = ended
		}
		c, err := parent.WithStream(calling, stream)
		if err == nil {
			return errors.Join(errors.New("WithStream succeeded with a context that had ended"), c.Close())
		}
		if world.Rank() == 1 && !errors.Is(err, mpi.ErrBroken) {
			return fmt.Errorf("other member: %w", err)
		}
		if _, err := parent.Dup(ctx); !errors.Is(err, mpi.ErrBroken) {
			return fmt.Errorf("dup afterwards: %v", err)
		}
		c, err = world.WithStream(ctx, stream)
		if err != nil {
			return err
		}
		return errors.Join(ring(ctx, c, 1), c.Close(), parent.Close())
	}))
}

// onDyingJobs runs f in two of three ranks over each stack, while rank 2 dies.
func onDyingJobs(t *testing.T, f func(ctx context.Context, world, streams *mpi.Comm) error) {
	t.Parallel()
	for name, job := range streamJobs() {
		job.Size, job.Continue = 3, true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job.RunSessions(t, func(ctx context.Context) (err error) {
				s, err := mpitest.Open(ctx)
				if err != nil {
					return err
				}
				group, err := s.Group(ctx, "mpi://WORLD")
				if err != nil {
					return err
				}
				world, err := mpi.CommFromGroup(ctx, group, "test")
				if err != nil {
					return err
				}
				streams, err := withNewStream(ctx, s, world)
				if err != nil {
					return err
				}
				if err := sumOfRanks(ctx, streams); err != nil {
					return err
				}
				if world.Rank() == 2 { // The others have left the sum.
					for range 2 {
						if _, err := world.Recv(ctx, nil, mpi.AnySource, 99); err != nil {
							return err
						}
					}
					mpitest.Die(ctx)
				}
				if err := world.Send(ctx, nil, 2, 99); err != nil {
					return err
				}
				return errors.Join(f(ctx, world, streams), streams.Close(), world.Close(), s.Close())
			})
		})
	}
}

func TestStream_MemberDies_AllCommunicatorsReportIt(t *testing.T) {
	onDyingJobs(t, func(ctx context.Context, world, streams *mpi.Comm) error {
		for _, c := range []*mpi.Comm{streams, world} {
			if _, err := c.Recv(ctx, nil, 2, 9); !errors.Is(err, mpi.ErrProcFailed) {
				return fmt.Errorf("receive from a process that has died: %w", err)
			}
			if failed := c.Failed(); !slices.Equal(failed, []int{2}) {
				return fmt.Errorf("failed ranks: %v", failed)
			}
			if err := mpi.Barrier(ctx, c); !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrBroken) {
				return fmt.Errorf("barrier with a process that has died: %w", err)
			}
		}
		rest, err := streams.Shrink(ctx)
		if err != nil {
			return err
		}
		if rest.Size() != 2 {
			return fmt.Errorf("shrunk to %d members", rest.Size())
		}
		return errors.Join(ring(ctx, rest, 5), sumOfRanks(ctx, rest), sumOfRanks(ctx, rest), rest.Close())
	})
}

func TestWithStream_MemberDiesMeanwhile_OthersGetProcFailed(t *testing.T) {
	onDyingJobs(t, func(ctx context.Context, world, streams *mpi.Comm) error {
		for _, parent := range []*mpi.Comm{world, streams} {
			c, err := parent.WithStream(ctx, nil)
			if err == nil {
				return errors.Join(errors.New("WithStream succeeded without a member"), c.Close())
			}
			if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrBroken) {
				return err
			}
		}
		return nil
	})
}

func TestStream_Revoke_EndsReceivesOfOtherMembers(t *testing.T) {
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		c, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			err = c.Revoke()
		} else if _, err = c.Recv(ctx, nil, 0, 1); errors.Is(err, mpi.ErrRevoked) {
			err = nil
		}
		if err != nil {
			return err
		}
		flags, err := c.Agree(ctx, 3)
		if err != nil || flags != 3 {
			return fmt.Errorf("agreement on a revoked communicator: %d, %w", flags, err)
		}
		return errors.Join(c.Close(), ring(ctx, world, 1))
	})
}

// endsOnceChecked is a context that ends after the first call of Err.
type endsOnceChecked struct {
	context.Context
	checks atomic.Int32
}

func (c *endsOnceChecked) Err() error {
	if c.checks.Add(1) == 1 {
		return nil
	}
	return context.Canceled
}

func (c *endsOnceChecked) Done() <-chan struct{} {
	ended := make(chan struct{})
	close(ended)
	return ended
}

func TestSessionFlushBuffer_StreamHasMessagesWithoutReceive_WaitsForThem(t *testing.T) {
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		const size = 1 << 20
		c, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			in := make([]byte, size)
			for i := range 2 {
				if _, err := world.Recv(ctx, nil, 0, 2); err != nil { // Rank 0 has seen a pending flush.
					return err
				}
				if _, err := c.Recv(ctx, in, 0, 1); err != nil || string(in) != string(pattern(size, i)) {
					return fmt.Errorf("message %d: %w", i, err)
				}
			}
			return c.Close()
		}
		for i := range 2 {
			if err := c.Bsend(ctx, pattern(size, i), 1, 1); err != nil {
				return err
			}
			q, err := c.IflushBuffer()
			if err != nil {
				return err
			}
			if i == 1 { // The stream ends after the message has left.
				if err := c.Close(); err != nil {
					return err
				}
			}
			if err := wants("FlushBuffer without a receive", s.FlushBuffer(&endsOnceChecked{Context: ctx}), mpi.ErrCanceled); err != nil {
				return err
			}
			if err := errors.Join(world.Send(ctx, nil, 1, 2), s.FlushBuffer(ctx)); err != nil {
				return err
			}
			if _, done, err := q.Test(); err != nil || !done {
				return fmt.Errorf("flush of the communicator after that of the session: %t, %w", done, err)
			}
		}
		return nil
	})
}

func TestStream_ProcessesAreDisconnected_StreamsWorkOn(t *testing.T) {
	t.Parallel()
	for name, job := range streamJobs() {
		job.Size = 2
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job.RunSessions(t, func(ctx context.Context) error {
				client := inject(mpitest.Client(ctx))
				open := func(ctx context.Context, opts ...mpi.SessionOption) (*mpi.Session, error) {
					return mpitest.Open(ctx, append(opts, mpi.WithBootstrap(client))...)
				}
				return worldProgram(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
					c, err := withNewStream(ctx, s, world)
					if err != nil {
						return err
					}
					if world.Rank() == 1 {
						client.event(bootstrap.Event{Kind: bootstrap.PeerUnreachable, Proc: world.Group().Members()[0], Reason: "test"})
						if _, err := world.Recv(ctx, nil, 0, 5); !errors.Is(err, mpi.ErrTransport) {
							return fmt.Errorf("receive of the process: %w", err)
						}
					}
					for i := range 3 {
						if err := ring(ctx, c, i); err != nil {
							return fmt.Errorf("exchange of the streams: %w", err)
						}
					}
					return errors.Join(sumOfRanks(ctx, c), c.Close())
				}).over(open)(ctx)
			})
		})
	}
}

// Rank 1 performs the collectives of WithStream with numbers that it does not send.
func TestWithStream_MemberSendsWrongNumbers_IsTransportError(t *testing.T) {
	for name, numbers := range map[string][]int64{
		"negative stream": {-1}, "large stream": {1 << 40}, "negative length": {1, 2, -1}, "large length": {1, 2, 1 << 40},
	} {
		t.Run(name, func(t *testing.T) {
			ranks(t, 2, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
				if world.Rank() == 0 {
					_, err := world.WithStream(ctx, nil)
					return must(errors.Is(err, mpi.ErrTransport) && strings.Contains(err.Error(), "rank 1 has sent"), "with stream: %v", err)
				}
				for _, n := range numbers {
					if err := mpi.Allgather(ctx, world, []int64{n}, make([]int64, 2)); err != nil && !errors.Is(err, mpi.ErrBroken) {
						return err
					}
				}
				return nil
			}))
		})
	}
}

func TestMemory_CloseWithOperationOfStream_IsPending(t *testing.T) {
	job := streamJobs()["ob1 shm"]
	job.Size = 2
	job.RunSessions(t, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		const size = 1 << 20
		c, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			_, err := world.Recv(ctx, nil, 0, 1)
			return errors.Join(err, c.Send(ctx, pattern(size, 1), 0, 2), c.Close())
		}
		memory, err := mpi.AllocMem(s, size)
		if err != nil {
			return err
		}
		in := mpi.View[byte](memory)
		q, err := c.Irecv(in, 1, 2)
		if err != nil {
			return err
		}
		if err := wants("close of memory that a stream receives into", memory.Close(), mpi.ErrPending); err != nil {
			return err
		}
		if err := world.Send(ctx, nil, 1, 1); err != nil {
			return err
		}
		_, err = q.Wait(ctx)
		if string(in) != string(pattern(size, 1)) {
			err = errors.Join(err, errors.New("the message differs"))
		}
		return errors.Join(err, memory.Close(), c.Close())
	}))
}

// The inbox of a process has room for two senders, which are two streams of the other one, or a stream and the process.
func TestStream_InboxOfPeerIsFull_BothGetTheLimit(t *testing.T) {
	params := map[string]string{"pml": "ob1", "btl": "self,shm", "btl.shm.max_peers": "2"}
	mpitest.Job{Size: 2, Params: params}.RunSessions(t, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		errs := []error{ring(ctx, world, 1)}
		for i := range 3 {
			var stream *mpi.Stream
			var err error
			if world.Rank() == 1 {
				if stream, err = s.NewStream(); err != nil {
					return err
				}
			}
			c, err := world.WithStream(ctx, stream)
			if err != nil {
				return err
			}
			err = ring(ctx, c, 2)
			if i == 0 {
				errs = append(errs, err)
			} else if !errors.Is(err, mpi.ErrTransport) || !strings.Contains(err.Error(), "raise btl.shm.max_peers") || strings.Contains(err.Error(), "up: stream") {
				return fmt.Errorf("stream %d: %w", i+1, err)
			}
			defer c.Close()
		}
		return errors.Join(append(errs, ring(ctx, world, 3))...)
	}))
}
