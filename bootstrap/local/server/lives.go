package server

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// leftDelay is how long the news that lives are over in good order waits for more of its
// kind. It concerns who is late only, and at the end of a job all close at once: nobody
// is left then who would have to hear of all others.
const leftDelay = 20 * time.Millisecond

// leftGrace is how long the news waits for the end of the process, which may say that the
// order was not good: a program that panics closes its session on the way out, as its
// defers are run (docs/decisions/blame.md). Those who wait for the process hear that much
// later of one that goes on without a session.
const leftGrace = 250 * time.Millisecond

// life is what a Life message says: a life has begun, or (0) the present one is over.
func (s *Server) life(p *proc, nonce uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.ended {
		return
	}
	if nonce == 0 {
		s.leftLocked(p)
		return
	}
	if p.left { // before it has another one
		s.tellLeftLocked(func(other *proc) bool { return other == p })
	}
	p.nonce, p.left, p.parted = nonce, false, time.Time{}
}

// leftLocked notes that the present life of a process is over in good order.
func (s *Server) leftLocked(p *proc) {
	if p.nonce == 0 || p.left || s.closed {
		return
	}
	p.left, p.leftAt = true, time.Now()
	p.partsLocked()
	if s.left = append(s.left, p); len(s.left) == 1 {
		s.after(leftDelay, s.settleLeft)
	}
}

// settleLeft tells of the lives that are over, and waits for more.
func (s *Server) settleLeft() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellLeftLocked(func(p *proc) bool {
		ago := time.Since(p.leftAt)
		return p.ended || p.reason == "" && ago >= leftGrace && ago >= endsWithin(p.pid)
	})
	if len(s.left) > 0 && !s.closed {
		s.after(leftDelay, s.settleLeft)
	}
}

// tellLeftLocked sends what leftLocked has noted of the processes of which over says that
// it is final. Of one that has failed after all the others have heard.
func (s *Server) tellLeftLocked(over func(*proc) bool) {
	s.left = slices.DeleteFunc(s.left, func(p *proc) bool {
		switch {
		case p.died:
		case !over(p):
			return false
		default:
			s.broadcastLocked(wire.EventBody{Kind: uint8(bootstrap.ProcLeft), Rank: p.rank, Nonce: p.nonce}, p.conn)
		}
		return true
	})
}

// partsLocked notes that the process takes no further part in something, which others may
// be the next to feel.
func (p *proc) partsLocked() {
	if p.parted.IsZero() {
		p.parted = time.Now()
	}
}

// rejoinsLocked records that the process takes part in something again. It has recovered from the failure of
// another process. Its departure from a communicator was no sign of its own failure.
func (p *proc) rejoinsLocked() {
	if !p.left {
		p.parted = time.Time{}
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
		at = p.parted
	}
	return at, !at.IsZero()
}

// giveUp tells a process that another one has given a life of it up.
func (s *Server) giveUp(from *proc, b wire.GiveUpBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.procs[b.Rank]
	if from.ended || to == nil || to.conn == nil {
		return
	}
	s.sendLocked(wire.EventBody{
		Kind: uint8(bootstrap.GivenUp), Rank: from.rank, Nonce: from.nonce, Life: b.Nonce,
		Reason: b.Reason,
	}, to.conn)
}

// mostBroken is how many communicators broke remembers. What is told twice does no harm.
const mostBroken = 1 << 16

// broke tells the members of a communicator whose collectives can't go on: once, because
// all of them come to say so.
func (s *Server) broke(from *proc, b wire.BrokeBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from.partsLocked()
	if _, told := s.broken[b.Comm]; told || from.ended {
		return
	}
	if len(s.broken) == mostBroken {
		clear(s.broken)
	}
	s.broken[b.Comm] = struct{}{}
	var to []*conn
	for _, rank := range b.Ranks {
		if p := s.procs[rank]; p != nil && p != from && p.conn != nil {
			to = append(to, p.conn)
		}
	}
	s.sendLocked(wire.EventBody{
		Kind: uint8(bootstrap.Broken), Rank: from.rank, Nonce: from.nonce, Comm: b.Comm, Reason: b.Reason,
	}, to...)
}
