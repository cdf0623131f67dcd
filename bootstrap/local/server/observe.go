package server

import (
	"cmp"
	"slices"

	"github.com/ferrympi/ferry/bootstrap/internal/sets"
)

// A PsetEvent is a step of an operation on process sets, or of a change of the job.
type PsetEvent = sets.Event

// Kinds of events. Those of a change come in this order.
const (
	SetsMade         = sets.SetsMade
	SetDeleted       = sets.SetDeleted
	ChangeBegun      = sets.ChangeBegun
	ChangeOpened     = sets.ChangeOpened
	ChangeIntegrated = sets.ChangeIntegrated
	ChangeFinished   = sets.ChangeFinished
	ChangeUndone     = sets.ChangeUndone
)

// PsetInfo is a process set that exists.
type PsetInfo = sets.SetInfo

// A ProcState is the condition of a process.
type ProcState uint8

// States of processes.
const (
	ProcStarting     ProcState = iota + 1 // Without a session so far.
	ProcOpen                              // It has a session.
	ProcClosed                            // It has closed its last session, and runs.
	ProcDisconnected                      // Its connection broke. It fails soon unless it connects again.
	ProcEnded                             // Exit status 0, or it left by a change.
	ProcFailed                            // It counts as failed, and may run.
)

var procStateNames = [...]string{"", "starting", "open", "closed", "disconnected", "ended", "failed"}

func (s ProcState) String() string { return procStateNames[s] }

// ProcInfo is the condition of one process.
type ProcInfo struct {
	Rank  int
	State ProcState
	// Process id, 0 before the first session.
	PID int
	// Node of a divided job, else 0.
	Node int
}

// A ProcEvent is a change of a process to ProcOpen, ProcEnded or ProcFailed.
type ProcEvent struct {
	Rank  int
	State ProcState
	// Reason of ProcFailed.
	Reason string
}

// A Snapshot is the state of a job at one moment.
type Snapshot struct {
	// By rank, without those that have ended long ago.
	Procs []ProcInfo
	// mpi://WORLD, and then the latest ones, the oldest first. The ranks are not modified.
	Psets []PsetInfo
	// Number of sets that are not in Psets.
	OlderPsets int
}

// Snapshot returns the state of the job with up to mostPsets of the latest sets.
func (s *Server) Snapshot(mostPsets int) Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out Snapshot
	for rank, p := range s.procs {
		info := ProcInfo{Rank: int(rank), State: p.state(), PID: p.pid}
		if s.isDivided() {
			info.Node = int(s.nodeOfRank[rank])
		}
		out.Procs = append(out.Procs, info)
	}
	slices.SortFunc(out.Procs, func(a, b ProcInfo) int { return cmp.Compare(a.Rank, b.Rank) })
	out.Psets, out.OlderPsets = s.sets.Latest(mostPsets)
	return out
}

// state returns the condition of the process. Server.mu is locked.
func (p *proc) state() ProcState {
	switch {
	case p.hasFailed:
		return ProcFailed
	case p.hasEnded:
		return ProcEnded
	case p.isConnBroken && p.conn == nil:
		return ProcDisconnected
	case p.hasLeft:
		return ProcClosed
	case p.incarnation == 0:
		return ProcStarting
	}
	return ProcOpen
}

// observeProcLocked passes a change of a process to the observer.
func (s *Server) observeProcLocked(p *proc, reason string) {
	if s.opt.OnProc != nil {
		s.opt.OnProc(ProcEvent{int(p.rank), p.state(), reason})
	}
}
