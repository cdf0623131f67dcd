package coll

import (
	"context"
	"fmt"
)

// Peers is a communicator for Inline. Its messages match those of the same operation only. Errors
// are those of package mpi, and the first one ends the operation.
type Peers interface {
	// Send starts a send. If done is true, the send is complete and the caller owns buf again.
	Send(buf []byte, to int) (done bool, err error)
	// StartRecv starts a receive.
	StartRecv(buf []byte, from int) error
	// Finish blocks until the oldest operation that is neither done nor finished completes, and
	// returns the length of its message.
	Finish(ctx context.Context) (int, error)
	// Recv receives a message and returns its length. No other receive from that rank is pending.
	Recv(ctx context.Context, buf []byte, from int) (int, error)
	// Own blocks until the instance has completed the steps, one after the other.
	Own(ctx context.Context, steps []Step) error
	// Work executes a step of kind Work.
	Work(step *Step)
	// Drop withdraws the pending operations. It blocks until the caller owns their memory again, or
	// its own time limit has passed. Uses of the memory by the instance count (Withdrawer).
	Drop()
}

// Inline executes the schedule on the goroutine of the caller. After an error, this member's part
// is incomplete. No operation is pending when Inline returns or panics.
func (s *Schedule) Inline(ctx context.Context, p Peers, b *Buffers, r *Reducer) (err error) {
	done := false
	defer func() {
		if !done {
			p.Drop()
		}
	}()
	s.pendingSteps = s.pendingSteps[:0]
	first := 0 // Index of the oldest one in pendingSteps.
	for i := 0; i < len(s.Steps); i++ {
		step := &s.Steps[i]
		for ; first < len(s.pendingSteps) && s.pendingSteps[first] < step.After; first++ {
			if err := s.finishStep(ctx, p, int(s.pendingSteps[first])); err != nil {
				return err
			}
		}
		switch step.Kind {
		case Send:
			sent, err := p.Send(b.At(step.Buf, step.N), int(step.Peer))
			if err != nil {
				return err
			}
			if !sent {
				s.pendingSteps = append(s.pendingSteps, int32(i))
			}
		case Recv:
			buf := b.At(step.Buf, step.N)
			if (i+1 == len(s.Steps) || s.Steps[i+1].After > int32(i)) && !s.isReceiving(first, step.Peer) { // No later step starts before the receive completes.
				n, err := p.Recv(ctx, buf, int(step.Peer))
				if err == nil && n == step.N {
					continue
				}
				if err = step.CheckLength(n, err); err != nil {
					return err
				}
				continue
			}
			if err := p.StartRecv(buf, int(step.Peer)); err != nil {
				return err
			}
			s.pendingSteps = append(s.pendingSteps, int32(i))
		case Copy:
			b.Copy(step)
		case Own:
			end := i + 1
			for end < len(s.Steps) && s.Steps[end].Kind == Own && (first == len(s.pendingSteps) || s.Steps[end].After <= step.After) {
				end++
			}
			if err := p.Own(ctx, s.Steps[i:end]); err != nil {
				return err
			}
			i = end - 1
		case Work:
			p.Work(step)
		case Combine:
			r.Apply(b.At(step.Buf, step.N), b.At(step.From, step.N))
		}
	}
	for ; first < len(s.pendingSteps); first++ {
		if err := s.finishStep(ctx, p, int(s.pendingSteps[first])); err != nil {
			return err
		}
	}
	done = true
	return nil
}

// isReceiving reports whether s.pendingSteps[first:] has a receive from a peer.
func (s *Schedule) isReceiving(first int, peer int32) bool {
	for _, i := range s.pendingSteps[first:] {
		if step := &s.Steps[i]; step.Peer == peer && step.Kind != Send {
			return true
		}
	}
	return false
}

func (s *Schedule) finishStep(ctx context.Context, p Peers, i int) error {
	n, err := p.Finish(ctx)
	return s.Steps[i].CheckLength(n, err)
}

// CheckLength returns the error of a step whose message of n bytes ended with err. A received message
// must have the length of the step. A longer one has failed already.
func (s *Step) CheckLength(n int, err error) error {
	if err == nil && s.Kind == Recv && n != s.N {
		return fmt.Errorf("rank %d sent %d bytes, want %d: members must pass equal arguments", s.Peer, n, s.N)
	}
	return err
}
