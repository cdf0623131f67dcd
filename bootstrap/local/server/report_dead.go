package server

// ReportDead reports a process dead that may be alive, once. Its client receives the event PeerFailed
// with its own process, and the server discards everything else from it. A process that has ended
// is ignored.
func (s *Server) ReportDead(rank int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.procs[uint32(rank)]; p != nil && rank >= 0 {
		s.reportFailedLocked(p, reason)
	}
}

// expelLocked ends the exchange with a dead process that has a connection. The connection stays
// open until the process ends it, because a stopped process reads its event later.
func (s *Server) expelLocked(p *proc) {
	c := p.conn
	if c == nil {
		return
	}
	p.conn = nil
	c.isExpelled.Store(true)
	for _, leave := range c.pendingRequests {
		leave(false)
	}
	clear(c.pendingRequests)
}
