package mpi

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// The ranks of an activation share in each process what is the same for all of them.

// sharedMembers are the members of a communicator that the ranks here are about to create.
type sharedMembers struct {
	pml.Members
	left int // Ranks of this process that have not asked for them.
}

// shareMembers returns the members of a new communicator, which the first rank here lists. All handles
// of a process share one Members.
func (a *activation) shareMembers(id cid.Extended, list func() pml.Members) pml.Members {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.members[id]
	if x == nil {
		x = &sharedMembers{Members: list()}
		self := a.threads.session.engine.Env().Self
		for rank := range x.Len() {
			if x.Member(rank).Life == self {
				x.left++
			}
		}
		a.members[id] = x
	}
	if x.left--; x.left == 0 {
		delete(a.members, id)
	}
	return x.Members
}

// sharedConstruct is a group construct that the ranks here enter together.
type sharedConstruct struct {
	done chan struct{} // Closed at its end.
	base uint64
	err  error
	left int // Ranks of this process that have not asked for it.
}

// constructOnce calls draw once for all of the given ranks of this process, and returns its result in
// each of them.
func (a *activation) constructOnce(ctx context.Context, tag string, ranks []int, draw func() (uint64, error)) (uint64, error) {
	a.mu.Lock()
	x := a.constructs[tag]
	first := x == nil
	if first {
		x = &sharedConstruct{done: make(chan struct{}), left: len(ranks)}
		a.constructs[tag] = x
	}
	if x.left--; x.left == 0 {
		delete(a.constructs, tag)
	}
	a.mu.Unlock()
	if first {
		x.base, x.err = draw()
		close(x.done)
	}
	select {
	case <-x.done:
		return x.base, x.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// refuse announces that a rank is not in the communicators of the span. The communicators of the span end in all ranks
// of this process: members that wait for the rank would wait forever.
func (s *seat) refuse(span cid.Span, why error) {
	a := s.of
	a.mu.Lock()
	_, known := a.refused[span]
	over := a.err != nil
	err := fmt.Errorf("%w: rank %d has not created the communicator: %w", ErrBroken, s.rank, why)
	if !known && !over {
		a.refused[span] = err
	}
	a.mu.Unlock()
	if over { // All processes are notified of it.
		return
	}
	if len(a.threads.counts) > 1 {
		a.threads.module.Refuse(span, int(s.endpoint))
	}
	if known {
		return
	}
	for i := range a.seats {
		for _, c := range a.seats[i].open() {
			if span.Has(c.spec.ID) {
				c.abandon(err)
			}
		}
	}
}

// refusal returns why a communicator has ended before this rank has created it, or nil.
func (a *activation) refusal(id cid.Extended) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return a.err
	}
	for span, err := range a.refused {
		if span.Has(id) {
			return err
		}
	}
	return nil
}

// shapedOnce calls shape for the first communicator with these members.
func (a *activation) shapedOnce(members pml.Members, shape func() (*shaped, error)) (*shaped, error) {
	a.shaping.Lock()
	defer a.shaping.Unlock()
	if s := a.shapes[members]; s != nil {
		return s, nil
	}
	s, err := shape()
	if err == nil {
		a.shapes[members] = s
	}
	return s, err
}
