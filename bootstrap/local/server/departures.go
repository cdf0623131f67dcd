package server

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// leftBatchDelay is how long the news that lives are over in good order waits for more of its
// kind. It concerns who is late only, and at the end of a job all close at once: nobody
// is left then who would have to hear of all others.
const leftBatchDelay = 20 * time.Millisecond

// leftGrace is how long the news waits for the end of the process, which may say that the
// order was not good: a program that panics closes its session on the way out, as its
// defers are run (docs/decisions/blame.md). Those who wait for the process hear that much
// later of one that goes on without a session.
const leftGrace = 250 * time.Millisecond

// life is what a Life message says: a life has begun, or (0) the present one is over.
func (s *Server) setIncarnation(p *proc, nonce uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.hasEnded {
		return
	}
	if nonce == 0 {
		s.recordLeftLocked(p)
		return
	}
	if p.hasLeft { // before it has another one
		s.sendLeftLocked(func(other *proc) bool { return other == p })
	}
	p.incarnation, p.hasLeft, p.departedAt = nonce, false, time.Time{}
}

// recordLeftLocked notes that the present life of a process is over in good order.
func (s *Server) recordLeftLocked(p *proc) {
	if p.incarnation == 0 || p.hasLeft || s.isClosed {
		return
	}
	p.hasLeft, p.leftAt = true, time.Now()
	p.recordDepartureLocked()
	if s.unsentLeft = append(s.unsentLeft, p); len(s.unsentLeft) == 1 {
		s.runAfter(leftBatchDelay, s.flushSettledLeft)
	}
}

// flushSettledLeft tells of the lives that are over, and waits for more.
func (s *Server) flushSettledLeft() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendLeftLocked(func(p *proc) bool {
		ago := time.Since(p.leftAt)
		return p.hasEnded || p.exitReason == "" && ago >= leftGrace && ago >= exitDelay(p.pid)
	})
	if len(s.unsentLeft) > 0 && !s.isClosed {
		s.runAfter(leftBatchDelay, s.flushSettledLeft)
	}
}

// sendLeftLocked sends what recordLeftLocked has noted of the processes of which over says that
// it is final. Of one that has failed after all the others have heard.
func (s *Server) sendLeftLocked(over func(*proc) bool) {
	s.unsentLeft = slices.DeleteFunc(s.unsentLeft, func(p *proc) bool {
		switch {
		case p.hasFailed:
		case !over(p):
			return false
		default:
			s.broadcastLocked(wire.EventBody{Kind: uint8(bootstrap.ProcLeft), Rank: p.rank, Nonce: p.incarnation}, p.conn)
		}
		return true
	})
}

// recordDepartureLocked notes that the process takes no further part in something, which others may
// be the next to feel.
func (p *proc) recordDepartureLocked() {
	if p.departedAt.IsZero() {
		p.departedAt = time.Now()
	}
}

// clearDepartureLocked records that the process takes part in something again. It has recovered from the failure of
// another process. Its departure from a communicator was no sign of its own failure.
func (p *proc) clearDepartureLocked() {
	if !p.hasLeft {
		p.departedAt = time.Time{}
	}
}

// Parted returns the time at which the process first left the others in its present incarnation. It has
// closed its last session, left a collective or revoked a communicator, or its connection broke. ok is
// false if it has not, or has sent a note or entered a fence or construct afterwards. The others were notified afterwards, so processes that fail as a consequence have
// a later time.
func (s *Server) Parted(rank int) (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.procs[uint32(rank)]; p != nil {
		at = p.departedAt
	}
	return at, !at.IsZero()
}

// sendDisconnect tells a process that another one has given a life of it up.
func (s *Server) sendDisconnect(from *proc, b wire.DisconnectBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.procs[b.Rank]
	if from.hasEnded || to == nil || to.conn == nil {
		return
	}
	s.sendLocked(wire.EventBody{
		Kind: uint8(bootstrap.GivenUp), Rank: from.rank, Nonce: from.incarnation, TargetNonce: b.Nonce,
		Reason: b.Reason,
	}, to.conn)
}

// maxBrokenComms is how many communicators broke remembers. What is told twice does no harm.
const maxBrokenComms = 1 << 16

// broke tells the members of a communicator whose collectives can't go on: once, because
// all of them come to say so.
func (s *Server) sendBroken(from *proc, b wire.ReportCommEventBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from.recordDepartureLocked()
	if _, told := s.brokenComms[b.Comm]; told || from.hasEnded {
		return
	}
	if len(s.brokenComms) == maxBrokenComms {
		clear(s.brokenComms)
	}
	s.brokenComms[b.Comm] = struct{}{}
	var to []*conn
	for _, rank := range b.Ranks {
		if p := s.procs[rank]; p != nil && p != from && p.conn != nil {
			to = append(to, p.conn)
		}
	}
	s.sendLocked(wire.EventBody{
		Kind: uint8(bootstrap.Broken), Rank: from.rank, Nonce: from.incarnation, Comm: b.Comm, Reason: b.Reason,
	}, to...)
}
