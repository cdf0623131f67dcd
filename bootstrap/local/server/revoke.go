package server

import (
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/events"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// sendCommEvent handles an event about a communicator.
func (s *Server) sendCommEvent(from *proc, b wire.ReportCommEventBody) {
	if bootstrap.EventKind(b.Kind) == bootstrap.CommRevoked {
		s.sendRevoked(from, b)
		return
	}
	s.sendBroken(from, b)
}

// sendRevoked sends the revocation of a communicator to its other members, once. A member without a
// connection receives it with its next one.
func (s *Server) sendRevoked(from *proc, b wire.ReportCommEventBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from.recordWithdrawalLocked()
	if s.isClosed || from.hasEnded || s.eventLog.revoked.IsKnown(b.Comm) {
		return
	}
	frame, err := wire.Encode(wire.Event, 0, wire.EventBody{
		Kind: uint8(bootstrap.CommRevoked), Rank: from.rank, Nonce: from.incarnation, Comm: b.Comm, Reason: b.Reason,
	})
	if err != nil {
		s.opt.Logger.Error("revocation not sent", "error", err)
		return
	}
	one := &events.Revocation{Frame: frame}
	slices.Sort(b.Ranks)
	for _, rank := range slices.Compact(b.Ranks) {
		switch p := s.procs[rank]; {
		case p == nil || p.hasEnded || p == from:
		case p.conn == nil:
			one.Absent = append(one.Absent, rank)
		default:
			p.conn.send(frame)
		}
	}
	s.eventLog.revoked.Add(b.Comm, one)
}

// sendMissedLocked sends a process the revocations from before its connection.
func (s *Server) sendMissedLocked(p *proc) {
	for _, one := range s.eventLog.revoked.Kept() {
		if i, isAbsent := slices.BinarySearch(one.Absent, p.rank); isAbsent {
			one.Absent = slices.Delete(one.Absent, i, i+1)
			p.conn.send(one.Frame)
		}
	}
}
