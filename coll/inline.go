package coll

import (
	"context"
	"fmt"
)

// Peers is a communicator as Inline sees it: one operation's messages between ranks,
// which meet no other's. Errors are those of package mpi; the first one ends the
// operation.
type Peers interface {
	// Send starts a send. over: it is complete, and buf the caller's again.
	Send(buf []byte, to int) (over bool, err error)
	// StartRecv starts a receive.
	StartRecv(buf []byte, from int) error
	// Finish waits for the operation that was started first, of those that are neither
	// over nor finished, and returns the length of the message.
	Finish(ctx context.Context) (int, error)
	// Recv receives a message that nothing else waits for, and returns its length.
	Recv(ctx context.Context, buf []byte, from int) (int, error)
	// Own waits until the instance has done the steps, one after the other.
	Own(ctx context.Context, steps []Step) error
	// Work does a step of kind Work.
	Work(step *Step)
	// Drop withdraws what is under way, and waits until its memory is the caller's, also from
	// the instance (Withdrawer).
	Drop()
}

// Inline carries the schedule out on the caller's goroutine. An error says that this
// member's part is not complete. Nothing is under way when it returns, or panics.
func (s *Schedule) Inline(ctx context.Context, p Peers, b *Buffers, r *Reducer) (err error) {
	over := false
	defer func() {
		if !over {
			p.Drop()
		}
	}()
	s.open = s.open[:0]
	first := 0 // of open
	for i := 0; i < len(s.Steps); i++ {
		step := &s.Steps[i]
		for ; first < len(s.open) && s.open[first] < step.After; first++ {
			if err := s.finish(ctx, p, int(s.open[first])); err != nil {
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
				s.open = append(s.open, int32(i))
			}
		case Recv:
			buf := b.At(step.Buf, step.N)
			if (i+1 == len(s.Steps) || s.Steps[i+1].After > int32(i)) && !s.receives(first, step.Peer) { // nothing starts before it is complete
				n, err := p.Recv(ctx, buf, int(step.Peer))
				if err == nil && n == step.N {
					continue
				}
				if err = step.Whole(n, err); err != nil {
					return err
				}
				continue
			}
			if err := p.StartRecv(buf, int(step.Peer)); err != nil {
				return err
			}
			s.open = append(s.open, int32(i))
		case Copy:
			b.Copy(step)
		case Own:
			end := i + 1
			for end < len(s.Steps) && s.Steps[end].Kind == Own && (first == len(s.open) || s.Steps[end].After <= step.After) {
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
	for ; first < len(s.open); first++ {
		if err := s.finish(ctx, p, int(s.open[first])); err != nil {
			return err
		}
	}
	over = true
	return nil
}

// receives reports whether a receive from a peer is under way, of s.open[first:].
func (s *Schedule) receives(first int, peer int32) bool {
	for _, i := range s.open[first:] {
		if step := &s.Steps[i]; step.Peer == peer && step.Kind != Send {
			return true
		}
	}
	return false
}

func (s *Schedule) finish(ctx context.Context, p Peers, i int) error {
	n, err := p.Finish(ctx)
	return s.Steps[i].Whole(n, err)
}

// Whole returns the error of a message of n bytes that has ended with err: a receive
// takes just the bytes that it asks for. One that is too long has failed already.
func (s *Step) Whole(n int, err error) error {
	if err == nil && s.Kind == Recv && n != s.N {
		return fmt.Errorf("rank %d sent %d bytes where %d were expected: members must pass equal arguments", s.Peer, n, s.N)
	}
	return err
}
