package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// activeWith starts a partitioned send to a rank and a receive from it. Half of the send is ready.
func activeWith(c *mpi.Comm, peer int) (s, r *mpi.Persistent, err error) {
	if s, err = c.PsendInit(make([]byte, 200000), 2, peer, 1); err != nil {
		return nil, nil, err
	}
	if r, err = c.PrecvInit(make([]byte, 200000), 2, peer, 1); err != nil {
		return nil, nil, err
	}
	return s, r, errors.Join(mpi.StartAll([]*mpi.Persistent{s, r}), s.Pready(1))
}

// endWith checks that both operations have failed, and that they fail after a further start.
func endWith(ctx context.Context, s, r *mpi.Persistent, want error) error {
	for what, p := range map[string]*mpi.Persistent{"send": s, "receive": r} {
		_, err := p.Wait(ctx)
		if err := wants(what, err, want); err != nil {
			return err
		}
	}
	if err := wants("ready after the end", s.Pready(0), mpi.ErrClosed); err != nil {
		return err
	}
	if err := mpi.StartAll([]*mpi.Persistent{s, r}); err != nil {
		return err
	}
	if err := s.Pready(0); err != nil && !errors.Is(err, want) {
		return fmt.Errorf("ready in a round that has failed: %w", err)
	}
	for what, p := range map[string]*mpi.Persistent{"second send": s, "second receive": r} {
		_, err := p.Wait(ctx)
		if err := wants(what, err, want); err != nil {
			return err
		}
	}
	return errors.Join(s.Free(), r.Free())
}

func TestPartitioned_PeerDies_ReturnsErrProcFailed(t *testing.T) {
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobOf(3, params).Run(t, func(ctx context.Context, c *mpi.Comm) error {
				if c.Rank() == 2 {
					for rank := range 2 {
						if _, err := c.Recv(ctx, nil, rank, 0); err != nil {
							return err
						}
					}
					mpitest.Die(ctx)
				}
				s, r, err := activeWith(c, 2)
				if err == nil {
					err = c.Send(ctx, nil, 2, 0)
				}
				if err != nil {
					return err
				}
				if err := endWith(ctx, s, r, mpi.ErrProcFailed); err != nil {
					return err
				}
				// Those with the other rank are not concerned.
				peer := 1 - c.Rank()
				s, r, err = activeWith(c, peer)
				if err != nil {
					return err
				}
				if err := s.Pready(0); err != nil {
					return err
				}
				_, sent := s.Wait(ctx)
				_, err = r.Wait(ctx)
				return errors.Join(sent, err)
			})
		})
	}
}

func TestPartitioned_CommunicatorIsRevoked_ReturnsErrRevoked(t *testing.T) {
	overRevoked(t, 2, func(ctx context.Context, world, c *mpi.Comm) error {
		s, r, err := activeWith(c, 1-c.Rank())
		if err != nil {
			return err
		}
		for has := c.Rank() == 1; !has; { // Payload arrives before and during the revocation.
			if has, err = r.Parrived(1); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			if err := c.Revoke(); err != nil {
				return err
			}
		}
		return errors.Join(endWith(ctx, s, r, mpi.ErrRevoked), mpi.Barrier(ctx, world))
	})
}

// The payload is under way at the revocation, and the receiver has posted no receive for it.
func TestPartitionedSend_RevokedBeforePayloadMatches_WaitEnds(t *testing.T) {
	overRevoked(t, 2, func(ctx context.Context, world, c *mpi.Comm) error {
		isSender, init := c.Rank() == 1, c.PrecvInit
		if isSender {
			init = c.PsendInit
		}
		p, err := init(make([]byte, 200000), 2, 1-c.Rank(), 1)
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			return err
		}
		if !isSender {
			mpi.StopListening(c, 1)
		}
		if err := mpi.Barrier(ctx, world); err != nil {
			return err
		}
		if isSender {
			err = p.PreadyRange(0, 1)
			for err == nil && !mpi.HasMessages(p) {
				_, _, err = p.Test()
			}
		}
		if err := errors.Join(err, mpi.Barrier(ctx, world)); err != nil {
			return err
		}
		if !isSender {
			if err := c.Revoke(); err != nil {
				return err
			}
		}
		_, err = p.Wait(ctx)
		if isSender && err == nil { // The receiver has dropped the payload before the sender was notified.
			err = mpi.ErrRevoked
		}
		return errors.Join(wants("wait", err, mpi.ErrRevoked), p.Free(), mpi.Barrier(ctx, world))
	})
}

// A send that is freed before its start stays matched. The receive waits until the communicator is revoked.
func TestPartitionedReceive_SendIsFreed_WaitsUntilRevocation(t *testing.T) {
	_, c := singleton(t)
	s, r := selfPartitioned(t, c, make([]byte, 4), make([]byte, 4), 2)
	other, otherRecv := selfPartitioned(t, c, make([]byte, 4), make([]byte, 4), 2)
	if err := errors.Join(s.Free(), mpi.StartAll([]*mpi.Persistent{r, other, otherRecv}), other.PreadyRange(0, 1)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*mpi.Persistent{other, otherRecv} {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, isDone, err := r.Test(); isDone || err != nil {
		t.Errorf("receive without a send is complete: %t, %v", isDone, err)
	}
	if err := c.Revoke(); err != nil && !errors.Is(err, mpi.ErrUnsupported) {
		t.Error(err)
	}
	_, err := r.Wait(t.Context())
	if err := wants("receive", err, mpi.ErrRevoked); err != nil {
		t.Error(err)
	}
}

// The receiver closes its session right after the round.
func TestPartitionedSend_ReceiverClosesSessionAfterRound_Succeeds(t *testing.T) {
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				jobOf(2, params).Run(t, func(ctx context.Context, c *mpi.Comm) error {
					peer, size := 1-c.Rank(), 300000
					init := c.PsendInit
					if c.Rank() == 1 {
						init = c.PrecvInit
					}
					p, err := init(make([]byte, size), 3, peer, 1)
					if err != nil {
						return err
					}
					if err := p.Start(); err != nil {
						return err
					}
					if c.Rank() == 0 {
						err = p.PreadyRange(0, 2)
					}
					_, ended := p.Wait(ctx)
					return errors.Join(err, ended)
				})
			}
		})
	}
}

func TestThreadComm_RunLeavesActivePartitionedOperation_IsErrPendingAndSessionCloses(t *testing.T) {
	_, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 2)
	if err != nil {
		t.Fatal(err)
	}
	err = tc.Run(t.Context(), func(_ context.Context, c *mpi.Comm) error {
		_, _, err := activeWith(c, 1-c.Rank())
		return err
	})
	if !errors.Is(err, mpi.ErrPending) || !strings.Contains(err.Error(), "partitioned operations of communicator") {
		t.Errorf("run: %v", err)
	}
	if err := tc.Close(); err != nil {
		t.Error(err)
	}
}

func TestThreadComm_RankFails_PartitionedOperationsOfOthersEnd(t *testing.T) {
	_, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 2)
	if err != nil {
		t.Fatal(err)
	}
	failure := errors.New("failure of the program")
	err = tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
		s, r, err := activeWith(c, 1-c.Rank())
		if err != nil || c.Rank() == 1 {
			return errors.Join(err, failure)
		}
		_, sent := s.Wait(context.Background())
		_, received := r.Wait(context.Background())
		return errors.Join(wants("send", sent, mpi.ErrBroken), wants("receive", received, mpi.ErrBroken))
	})
	if !errors.Is(err, failure) {
		t.Error(err)
	}
	if err := tc.Close(); err != nil {
		t.Error(err)
	}
}
