package mpi

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/pml"
)

// IsBroken reports whether c's collectives are broken. No collective is in progress.
func IsBroken(c *Comm) bool { return c.collective.CheckUsable() != nil }

// SkipCollectives counts n collectives of c that were not called.
func SkipCollectives(c *Comm, n uint32) { c.collective.SkipOperations(n) }

// TableOf identifies the table of the members of a communicator of goroutine ranks.
func TableOf(c *Comm) any { return &c.group.members.mixed[0] }

// AgreementWaits describes the wait of a rank in Agree or Shrink.
func AgreementWaits(c *Comm) (texts []string) {
	for _, w := range c.agreementWaits() {
		texts = append(texts, w.What)
	}
	return texts
}

// NotesDropped returns the number of notes that a process has dropped.
func NotesDropped(c *Comm) uint64 { return c.session.process.notesDropped.Load() }

// HoldCollectives makes the collectives of c busy until release.
func HoldCollectives(c *Comm) (release func()) {
	c.collective.Acquire()
	return c.collective.Release
}

// RepeatNoNotes lets a rank repeat no message of Agree and Shrink.
func RepeatNoNotes(c *Comm) {
	a := c.agreement()
	a.mu.Lock()
	a.longestPeriod = 24 * time.Hour
	a.mu.Unlock()
}

// IsAwaited reports whether another rank waits for this one in Agree or Shrink.
func IsAwaited(c *Comm) bool {
	a := c.agreement()
	a.mu.Lock()
	defer a.mu.Unlock()
	for rank := range c.size {
		if a.machine.IsAwaitedBy(rank) {
			return true
		}
	}
	return false
}

// Queues returns the state of the communicators as a dump has it.
func Queues(s *Session) string { return s.process.hangReport().Queues }

// ConstructOf makes a group construct of two processes over the assembly of a communicator.
func ConstructOf(ctx context.Context, c *Comm, tag string) error {
	_, err := c.session.process.Construct(ctx, c.group.processes(), tag, nil)
	return err
}

// HasPending reports whether operations of closed communicators keep a stream.
func HasPending(st *Stream) bool { return st.commSession.process.hasPending() }

// Waits describes the calls of a process that wait.
func Waits(s *Session) (texts []string) {
	for _, w := range s.process.hangReport().Waits {
		texts = append(texts, w.What)
	}
	return texts
}

// StopListening withdraws the receive of partitioned messages from a rank.
func StopListening(c *Comm, from int) {
	e := c.rankState.engine
	e.Lock()
	defer e.Release()
	ch := c.partitions.channelsByPeer[from]
	ch.isStopped = true
	ch.unlisten()
}

// HasMessages reports whether messages of a partitioned operation are under way.
func HasMessages(p *Persistent) bool {
	e := p.partitionedOp.c.rankState.engine
	e.Lock()
	defer e.Release()
	return len(p.partitionedOp.pendingMessages) > 0
}

// PollInWait begins a poll of Wait in an operation that has started outside the engine, and returns its end.
func PollInWait(p *Persistent) (end func(), isEarly bool) {
	p.mu.Lock()
	if !p.earlyOp.Claim() {
		p.mu.Unlock()
		return nil, false
	}
	return func() {
		p.finishEarly()
		p.mu.Unlock()
	}, true
}

// HasEnding reports whether operations of closed communicators are active.
func HasEnding(s *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endingComms > 0
}

// SendControl sends a message on the control plane.
func SendControl(ctx context.Context, c *Comm, message []byte, dst, tag int) error {
	return c.pml.Send(ctx, pml.Buffer{Bytes: message}, dst, tag, pml.Control, pml.Standard)
}
