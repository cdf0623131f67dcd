package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

// failingSends is an MTL. Sends of an armed process fail some polls after their start, like sends to an unreachable host. Its receives stay pending.
type failingSends struct {
	mtl.Component
	armed *atomic.Bool
}

func (f failingSends) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	m, err := f.Component.Open(ctx, env)
	return &failingModule{Module: m, armed: f.armed}, err
}

type failingModule struct {
	mtl.Module
	armed   *atomic.Bool
	pending []*mtl.Op
	polls   int
}

func (m *failingModule) Unwrap() any { return m.Module }

func (m *failingModule) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (bool, error) {
	if !m.armed.Load() {
		return m.Module.Send(op, to, e, buf, mode)
	}
	m.pending, m.polls = append(m.pending, op), 0
	return false, nil
}

// Cancel ignores the sends of this module.
func (m *failingModule) Cancel(op *mtl.Op) {
	for _, p := range m.pending {
		if p == op {
			return
		}
	}
	m.Module.Cancel(op)
}

func (m *failingModule) Poll() int {
	const pollsToFailure = 1000
	if m.polls++; len(m.pending) > 0 && m.polls > pollsToFailure {
		op := m.pending[0]
		m.pending = m.pending[1:]
		op.Result = mtl.Result{Err: &framework.TransportError{Component: "failing sends", Op: "send", Err: errUnreachable}}
		op.Owner.Done(op)
		return 1
	}
	return m.Module.Poll()
}

var errUnreachable = errors.New("unreachable")

// The peers have sent nothing, so that the
// receives of the operation wait.
func TestFailingSend_OfOperationThatReceives_EndsIt(t *testing.T) {
	one := func() []byte { return make([]byte, 1) }
	operations := map[string]func(context.Context, *mpi.Comm, int) error{
		"sendrecv": func(ctx context.Context, c *mpi.Comm, peer int) error {
			_, err := c.Sendrecv(ctx, one(), peer, 1, one(), peer, 1)
			return err
		},
		"sendrecv of a long message": func(ctx context.Context, c *mpi.Comm, peer int) error {
			_, err := c.Sendrecv(ctx, make([]byte, 100<<10), peer, 1, make([]byte, 100<<10), peer, 1)
			return err
		},
		"barrier": func(ctx context.Context, c *mpi.Comm, _ int) error { return mpi.Barrier(ctx, c) },
		"alltoall": func(ctx context.Context, c *mpi.Comm, _ int) error {
			return mpi.Alltoall(ctx, c, make([]byte, 2), make([]byte, 2))
		},
		"allreduce": func(ctx context.Context, c *mpi.Comm, _ int) error {
			return mpi.Allreduce(ctx, c, []int{1}, make([]int, 1), mpi.Sum[int]())
		},
		"ibarrier": func(ctx context.Context, c *mpi.Comm, _ int) error {
			r, err := mpi.Ibarrier(c)
			if err == nil {
				_, err = r.Wait(ctx)
			}
			return err
		},
		"split": func(ctx context.Context, c *mpi.Comm, _ int) error {
			_, err := c.Split(ctx, 0, 0)
			return err
		},
	}
	for name, operation := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var armed [2]atomic.Bool
			network := mtltest.NewMemory(mtltest.Options{})
			mpitest.Job{
				Size: 2, Params: map[string]string{"pml": "cm", "pml.cm.shared_memory": "false"},
				Options: func(rank int) []mpi.SessionOption {
					return []mpi.SessionOption{mpi.WithRegistry(withMTL(failingSends{network.Component(), &armed[rank]}))}
				},
			}.Run(t, func(ctx context.Context, world *mpi.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				if c.Rank() == 1 {
					armed[1].Store(true)
					err := operation(ctx, c, 0)
					armed[1].Store(false)
					if !errors.Is(err, errUnreachable) {
						return fmt.Errorf("the operation ended with %w", err)
					}
				}
				if err := mpi.Barrier(ctx, world); err != nil {
					return err
				}
				return c.Close()
			})
		})
	}
}

// fallback is an MTL with a better candidate that did not open in rank 1.
type fallback struct {
	mtl.Component
	rank int
	// Rank 1 offers another provider.
	hasOtherOffer bool
	// Rank 0 does not reach rank 1.
	isUnreachable bool
}

func (f fallback) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	m, err := f.Component.Open(ctx, env)
	return &fallbackModule{Module: m, fallback: f}, err
}

type fallbackModule struct {
	mtl.Module
	fallback fallback
}

func (m *fallbackModule) Unwrap() any { return m.Module }

func (m *fallbackModule) Describe() mtl.Description {
	d := m.Module.Describe()
	if m.fallback.rank == 1 {
		d.Candidates = append(d.Candidates, mtl.Candidate{Name: "tcp on eth0", Refused: true, Failed: true, Reason: "no port is free"})
	}
	return d
}

func (m *fallbackModule) Offer() string {
	if m.fallback.rank == 1 && m.fallback.hasOtherOffer {
		return "another provider"
	}
	return m.Module.Offer()
}

func (m *fallbackModule) Connect(p framework.Peer) (mtl.Endpoint, error) {
	if m.fallback.rank == 0 && m.fallback.isUnreachable {
		return 0, errUnreachable
	}
	return m.Module.Connect(p)
}

// TestFallback_OneRankLostItsProvider_ErrorsOfAllNameTheReason requires the reason of rank 1 in the errors of both.
func TestFallback_OneRankLostItsProvider_ErrorsOfAllNameTheReason(t *testing.T) {
	const reason = "could not open tcp on eth0: no port is free"
	for name, f := range map[string]fallback{"offer": {hasOtherOffer: true}, "connect": {isUnreachable: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := mtltest.NewMemory(mtltest.Options{})
			mpitest.Job{
				Size: 2, Params: map[string]string{"pml": "cm", "pml.cm.shared_memory": "false"},
				Options: func(rank int) []mpi.SessionOption {
					f := f
					f.Component, f.rank = network.Component(), rank
					return []mpi.SessionOption{mpi.WithRegistry(withMTL(f))}
				},
			}.RunSessions(t, func(ctx context.Context) error {
				s, err := mpitest.Open(ctx)
				if err != nil {
					return err
				}
				world, err := s.Group(ctx, "mpi://WORLD")
				if err != nil {
					return errors.Join(err, s.Close())
				}
				c, err := mpi.CommFromGroup(ctx, world, "fallback")
				if err == nil && c.Rank() == 0 {
					err = c.Send(ctx, nil, 1, 0)
				} else if err == nil {
					_, err = c.Recv(ctx, nil, 0, 0)
				}
				if err == nil || !strings.Contains(err.Error(), reason) {
					err = fmt.Errorf("%w, without %q", err, reason)
				} else {
					err = nil
				}
				if c != nil {
					_ = c.Close()
				}
				return errors.Join(err, s.Close())
			})
		})
	}
}
