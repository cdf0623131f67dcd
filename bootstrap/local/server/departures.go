package server

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/events"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// leftBatchDelay is the time for which PeerLeft events are collected. At the end of a job all
// processes close at about the same time, and few of these events are then sent at all.
const leftBatchDelay = 20 * time.Millisecond

// leftGrace is the time for which PeerLeft waits for the end of the process, which may be a
// failure. A program that panics runs its deferred functions, which close its session
// (docs/decisions/blame.md). For a process that continues without a session the event is late by
// this time.
const leftGrace = 250 * time.Millisecond

// setIncarnation handles an Incarnation message. 0 means that the present incarnation has left.
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
	if p.hasLeft { // The end of an incarnation precedes the next one.
		s.sendLeftLocked(func(other *proc) bool { return other == p })
	}
	p.incarnation, p.hasLeft, p.withdrawnAt = nonce, false, time.Time{}
	s.observeProcLocked(p, "")
}

// recordLeftLocked records that the present incarnation of a process has left.
func (s *Server) recordLeftLocked(p *proc) {
	if p.incarnation == 0 || p.hasLeft || s.isClosed {
		return
	}
	p.hasLeft, p.leftAt = true, time.Now()
	p.recordWithdrawalLocked()
	if s.eventLog.unsentLeft = append(s.eventLog.unsentLeft, p); len(s.eventLog.unsentLeft) == 1 {
		s.runAfter(leftBatchDelay, s.flushSettledLeft)
	}
}

// flushSettledLeft sends the PeerLeft events of processes that have not failed since, and schedules
// itself for the others.
func (s *Server) flushSettledLeft() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendLeftLocked(func(p *proc) bool {
		ago := time.Since(p.leftAt)
		return p.hasEnded || p.exitReason == "" && ago >= leftGrace && ago >= exitDelay(p.pid)
	})
	if len(s.eventLog.unsentLeft) > 0 && !s.isClosed {
		s.runAfter(leftBatchDelay, s.flushSettledLeft)
	}
}

// sendLeftLocked sends the PeerLeft events of the processes for which isSettled holds. It drops
// those of processes that have failed.
func (s *Server) sendLeftLocked(isSettled func(*proc) bool) {
	s.eventLog.unsentLeft = slices.DeleteFunc(s.eventLog.unsentLeft, func(p *proc) bool {
		switch {
		case p.hasFailed:
		case !isSettled(p):
			return false
		default:
			s.broadcastLocked(wire.EventBody{Kind: uint8(bootstrap.PeerLeft), Rank: p.rank, Nonce: p.incarnation}, p.conn)
		}
		return true
	})
}

// recordWithdrawalLocked records the time at which the process stopped taking part in something.
// Failures of other processes may follow from it.
func (p *proc) recordWithdrawalLocked() {
	if p.withdrawnAt.IsZero() {
		p.withdrawnAt = time.Now()
	}
}

// clearWithdrawalLocked records that the process takes part again. It has recovered from the failure
// of another process, so its withdrawal was no sign of its own failure.
func (p *proc) clearWithdrawalLocked() {
	if !p.hasLeft {
		p.withdrawnAt = time.Time{}
	}
}

// WithdrawnAt returns the time at which the process first left the others in its present incarnation. It
// has closed its last session, left a collective or revoked a communicator, or its connection
// broke. ok is false if it has not, or has sent a note or entered a fence or construct afterwards.
// The others were notified afterwards, so processes that fail as a consequence have a later time.
func (s *Server) WithdrawnAt(rank int) (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.procs[uint32(rank)]; p != nil {
		at = p.withdrawnAt
	}
	return at, !at.IsZero()
}

// sendDisconnect sends the event that another process has disconnected from an incarnation.
func (s *Server) sendDisconnect(from *proc, b wire.DisconnectBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.procs[b.Rank]
	if from.hasEnded || to == nil || to.conn == nil {
		return
	}
	s.sendLocked(wire.EventBody{
		Kind: uint8(bootstrap.PeerUnreachable), Rank: from.rank, Nonce: from.incarnation, TargetNonce: b.Nonce,
		Reason: b.Reason,
	}, to.conn)
}

// maxBrokenComms limits the communicators that sendBroken recognizes. A duplicate event beyond that
// is harmless.
const maxBrokenComms = 1 << 16

// eventLog is the state of the events for the processes. Server.mu guards it.
type eventLog struct {
	// Processes with an ended incarnation, without an event to the others so far.
	unsentLeft []*proc
	// Communicators that sendBroken has reported.
	brokenComms  map[[16]byte]struct{}
	revoked      events.Revocations
	droppedNotes uint64
}

// addBroken adds a communicator to brokenComms, and reports whether it was new.
func (l *eventLog) addBroken(comm [16]byte) bool {
	if _, isKnown := l.brokenComms[comm]; isKnown {
		return false
	}
	if len(l.brokenComms) == maxBrokenComms {
		clear(l.brokenComms)
	}
	l.brokenComms[comm] = struct{}{}
	return true
}

// sendBroken notifies the members of a communicator whose collectives have failed. It does so once,
// although all members report it.
func (s *Server) sendBroken(from *proc, b wire.ReportCommEventBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from.recordWithdrawalLocked()
	if from.hasEnded || !s.eventLog.addBroken(b.Comm) {
		return
	}
	var to []*conn
	for _, rank := range b.Ranks {
		if p := s.procs[rank]; p != nil && p != from && p.conn != nil {
			to = append(to, p.conn)
		}
	}
	s.sendLocked(wire.EventBody{
		Kind: uint8(bootstrap.CommBroken), Rank: from.rank, Nonce: from.incarnation, Comm: b.Comm, Reason: b.Reason,
	}, to...)
}
