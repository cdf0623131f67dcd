package server

import (
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// leftDelay is how long the news that lives are over in good order waits for more of its
// kind. It concerns who is late only, and at the end of a job all close at once: nobody
// is left then who would have to hear of all others.
const leftDelay = 20 * time.Millisecond

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
		s.tellLeftLocked()
	}
	p.nonce, p.left = nonce, false
}

// leftLocked notes that the present life of a process is over in good order.
func (s *Server) leftLocked(rank uint32) {
	p := &s.procs[rank]
	if p.nonce == 0 || p.left || s.closed {
		return
	}
	p.left = true
	if s.left = append(s.left, rank); len(s.left) > 1 {
		return
	}
	s.after(leftDelay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tellLeftLocked()
	})
}

// tellLeftLocked sends what leftLocked has noted.
func (s *Server) tellLeftLocked() {
	for _, rank := range s.left {
		p := &s.procs[rank]
		s.broadcastLocked(wire.EventBody{Kind: uint8(bootstrap.ProcLeft), Rank: rank, Nonce: p.nonce}, p.conn)
	}
	s.left = nil
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
