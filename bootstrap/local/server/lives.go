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
func (s *Server) life(rank uint32, nonce uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.procs[rank]
	if nonce == 0 {
		s.leftLocked(rank)
		return
	}
	if p.left { // before it has another one
		s.tellLeftLocked(func(other uint32) bool { return other == rank })
	}
	p.nonce, p.left, p.parted = nonce, false, time.Time{}
}

// leftLocked notes that the present life of a process is over in good order.
func (s *Server) leftLocked(rank uint32) {
	p := &s.procs[rank]
	if p.nonce == 0 || p.left || s.closed {
		return
	}
	p.left, p.leftAt = true, time.Now()
	p.partsLocked()
	if s.left = append(s.left, rank); len(s.left) == 1 {
		s.after(leftDelay, s.settleLeft)
	}
}

// settleLeft tells of the lives that are over, and waits for more.
func (s *Server) settleLeft() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellLeftLocked(func(rank uint32) bool {
		p := &s.procs[rank]
		ago := time.Since(p.leftAt)
		return p.ended || p.reason == "" && ago >= leftGrace && ago >= endsWithin(p.pid)
	})
	if len(s.left) > 0 && !s.closed {
		s.after(leftDelay, s.settleLeft)
	}
}

// tellLeftLocked sends what leftLocked has noted of the processes of which over says that
// it is final. Of one that has failed after all the others have heard.
func (s *Server) tellLeftLocked(over func(rank uint32) bool) {
	s.left = slices.DeleteFunc(s.left, func(rank uint32) bool {
		p := &s.procs[rank]
		switch {
		case p.died:
		case !over(rank):
			return false
		default:
			s.broadcastLocked(wire.EventBody{Kind: uint8(bootstrap.ProcLeft), Rank: rank, Nonce: p.nonce}, p.conn)
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

// Parted returns when the process first said, in its present life, that it takes no further
// part: it has closed its last session, has left a collective to the others, or its
// connection has broken. ok is false if it has not. The others have been told
// afterwards: who fails because of it has parted later.
func (s *Server) Parted(rank int) (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank >= 0 && rank < len(s.procs) {
		at = s.procs[rank].parted
	}
	return at, !at.IsZero()
}

// giveUp tells a process that another one has given a life of it up.
func (s *Server) giveUp(from uint32, b wire.GiveUpBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int64(b.Rank) >= int64(len(s.procs)) || s.procs[b.Rank].conn == nil {
		return // it has ended
	}
	s.sendLocked(wire.EventBody{
		Kind: uint8(bootstrap.GivenUp), Rank: from, Nonce: s.procs[from].nonce, Life: b.Nonce,
		Reason: b.Reason,
	}, s.procs[b.Rank].conn)
}

// mostBroken is how many communicators broke remembers. What is told twice does no harm.
const mostBroken = 1 << 16

// broke tells the members of a communicator whose collectives can't go on: once, because
// all of them come to say so.
func (s *Server) broke(from uint32, b wire.BrokeBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs[from].partsLocked()
	if _, told := s.broken[b.Comm]; told {
		return
	}
	if len(s.broken) == mostBroken {
		clear(s.broken)
	}
	s.broken[b.Comm] = struct{}{}
	var to []*conn
	for _, rank := range b.Ranks {
		if rank != from && int64(rank) < int64(len(s.procs)) && s.procs[rank].conn != nil {
			to = append(to, s.procs[rank].conn)
		}
	}
	s.sendLocked(wire.EventBody{
		Kind: uint8(bootstrap.Broken), Rank: from, Nonce: s.procs[from].nonce, Comm: b.Comm, Reason: b.Reason,
	}, to...)
}
