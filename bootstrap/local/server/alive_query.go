package server

import (
	"github.com/ferrympi/ferry/bootstrap/internal/queries"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// queryProcs queries all connected processes until Close, and reports those dead that leave queries
// unanswered.
func (s *Server) queryProcs() {
	query, err := wire.Encode(wire.AliveQuery, 0, wire.Empty{})
	if err != nil {
		panic(err) // It has no variable part.
	}
	queries.Run(s.opt.ProcessTimeout, s.done, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range s.procs {
			switch {
			case p.conn == nil || p.hasEnded || p.hasExited:
			case p.conn.queryRecord.Tick():
				s.unresponsiveLocked(p)
			default:
				p.conn.send(query)
			}
		}
	})
}

// unresponsiveLocked reports a process dead that leaves queries unanswered.
func (s *Server) unresponsiveLocked(p *proc) {
	if s.opt.OnLost != nil {
		s.opt.OnLost(Lost{Rank: int(p.rank), Unanswered: s.opt.ProcessTimeout})
	}
	s.reportFailedLocked(p, queries.Reason(s.opt.ProcessTimeout))
}
