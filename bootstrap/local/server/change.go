package server

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/sets"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// An Order asks the launcher to start or end processes.
type Order = sets.Order

// Kinds of orders. Started answers StartProcs.
const (
	StartProcs = sets.StartProcs
	EndProcs   = sets.EndProcs
	AwaitExit  = sets.AwaitExit
)

// newSets returns the table of the process sets, whose lock is s.mu.
func (s *Server) newSets() *sets.Table[request] {
	opt := sets.Options{Size: s.opt.Size, Most: s.opt.MaxProcs, Removed: s.dropStateLocked, Observe: s.opt.OnPset, Launcher: "the launcher of this job"}
	if s.opt.Order != nil {
		opt.Order = s.orderLocked
	}
	return sets.New[request](opt)
}

// definePsets adds the sets of the command line.
func (s *Server) definePsets() error {
	defined := map[string]bool{}
	for _, p := range s.opt.Psets {
		if err := p.check(s.opt.Size); err != nil {
			return err
		}
		key := bootstrap.PsetKey(p.Name)
		if defined[key] {
			return fmt.Errorf("%w: process set %q is defined twice (names are compared without regard to case)", framework.ErrConfig, p.Name)
		}
		defined[key] = true
		s.sets.Define(p.Name, p.Ranks)
	}
	return nil
}

// addProcs adds n processes, which may connect from now on.
func (s *Server) addProcs(first, n int) {
	s.assignNodesLocked(n)
	for i := range n {
		rank := uint32(first + i)
		s.procs[rank] = &proc{rank: rank}
	}
	s.joins.Size = first + n
}

// dropStateLocked drops the state of a process that has ended.
func (s *Server) dropStateLocked(rank uint32) {
	delete(s.procs, rank)
	s.failures = slices.DeleteFunc(s.failures, func(ev wire.EventBody) bool { return ev.Rank == rank })
	s.endedRanks = slices.DeleteFunc(s.endedRanks, func(r uint32) bool { return r == rank })
}

// orderLocked passes an order to the launcher.
func (s *Server) orderLocked(o Order) {
	if s.isClosed {
		return
	}
	if o.Kind == StartProcs {
		s.addProcs(o.First, o.N)
		s.starting[o.First] = o.N
	}
	s.opt.Order(o)
}

// Started answers the order to start processes from rank first on. If err is nil, all of them
// run the program. Otherwise the launcher has ended those that it started, and fit is the number
// of processes that it can start.
func (s *Server) Started(first, fit int, err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
		reason = reason[:min(len(reason), bootstrap.MaxName)]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return
	}
	n := s.starting[first]
	delete(s.starting, first)
	s.sets.Started(first, fit, reason)
	for rank := first; err != nil && rank < first+n; rank++ {
		p := s.procs[uint32(rank)]
		if p == nil || p.hasEnded {
			continue
		}
		if p.conn != nil {
			p.conn.drop()
		}
		s.endLocked(p)
	}
}

// IsExcused reports whether the job ignores the exit status of a process:
// the process left by a change, or its change was undone or is not integrated, or a
// finished change has removed it after its end.
func (s *Server) IsExcused(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return rank >= 0 && s.sets.Excused(uint32(rank))
}

func (s *Server) psets(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets.Psets(r, r.conn.proc.rank)
}

func (s *Server) pset(r request, b wire.NameBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets.Pset(r, r.conn.proc.rank, b.Name)
}

// change serves an operation on process sets. An error is a violation of the protocol.
func (s *Server) change(r request, m wire.Message) error {
	b, err := wire.Decode[wire.ChangeBody](m.Body)
	if err != nil {
		return err
	}
	call, err := sets.Parse[request](b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	call(s.sets, r, r.conn.proc.rank)
	return nil
}
