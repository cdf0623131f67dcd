package server

import "github.com/ferrympi/ferry/bootstrap/internal/wire"

// sendNote sends a note to its receiver. It drops a note from or to a process that has ended, and
// one to a receiver that does not read.
func (s *Server) sendNote(from *proc, b wire.NoteBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from.clearWithdrawalLocked()
	to := s.procs[b.Rank]
	if from.hasEnded || to == nil || to.hasEnded || to.conn == nil || to.conn.unwrittenBytes() >= maxUnwritten/2 {
		s.eventLog.droppedNotes++
		return
	}
	frame, err := wire.Encode(wire.Note, 0, wire.NoteBody{Rank: from.rank, From: from.incarnation, To: b.To, Body: b.Body})
	if err != nil {
		s.opt.Logger.Error("note not sent", "error", err)
		return
	}
	to.conn.send(frame)
}

// unwrittenBytes returns the number of bytes in the queue and in the current write.
func (c *conn) unwrittenBytes() int {
	c.queueMu.Lock()
	defer c.queueMu.Unlock()
	return c.bytesUnwritten
}
