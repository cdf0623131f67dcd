package pmltest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Endpoints is a communicator in which processes of a World have several ranks. Another PML serves messages between
// the ranks of a process. Ranks are assigned round-robin. The first endpoint of each process comes first, and then the
// second of those that have two.
type Endpoints struct {
	ID      cid.Extended
	Members []pml.Member // Indexed by rank.
	// Process of each rank.
	Procs []int
	// Indexed by rank, nil before Join.
	Comms []pml.Comm

	w             *World
	membersByProc []pml.Members
	// Has the process's own ranks.
	elsewhereByProc []*pml.RankSet
}

// Endpoints returns a communicator in which process i has counts[i] ranks.
func (w *World) Endpoints(counts ...int) *Endpoints {
	e := &Endpoints{ID: w.NextID(), w: w}
	for endpoint, more := 0, true; more; endpoint++ {
		more = false
		for proc, n := range counts {
			if endpoint < n {
				e.Members = append(e.Members, pml.Member{Incarnation: w.incarnationsByRank[proc], Endpoint: uint16(endpoint)})
				e.Procs = append(e.Procs, proc)
				more = true
			}
		}
	}
	e.Comms = make([]pml.Comm, len(e.Members))
	for proc := range counts {
		own := pml.NewRankSet(len(e.Members))
		for rank, p := range e.Procs {
			if p == proc {
				own.Add(rank)
			}
		}
		e.membersByProc, e.elsewhereByProc = append(e.membersByProc, pml.NewMembers(e.Members)), append(e.elsewhereByProc, own)
	}
	return e
}

// Join creates a rank's handle.
func (e *Endpoints) Join(rank int) (err error) {
	proc := e.Procs[rank]
	m := e.w.Procs[proc].Module
	spec := pml.CommSpec{ID: e.ID, Members: e.membersByProc[proc], Rank: rank, Elsewhere: e.elsewhereByProc[proc]}
	if spec.Local, err = m.CIDs().Reserve(); err != nil {
		return err
	}
	if e.Comms[rank], err = m.AddComm(spec); err != nil {
		m.CIDs().Close(spec.Local)
	}
	return err
}

// JoinAll creates the handles of all ranks.
func (e *Endpoints) JoinAll() error {
	for rank := range e.Members {
		if err := e.Join(rank); err != nil {
			return err
		}
	}
	return nil
}

// JoinEndpoints combines Endpoints and JoinAll for a test.
func (w *World) JoinEndpoints(t testing.TB, counts ...int) *Endpoints {
	t.Helper()
	e := w.Endpoints(counts...)
	if err := e.JoinAll(); err != nil {
		t.Fatal(err)
	}
	return e
}

// Rank returns the rank of an endpoint of a process.
func (e *Endpoints) Rank(proc, endpoint int) int {
	for rank, m := range e.Members {
		if e.Procs[rank] == proc && int(m.Endpoint) == endpoint {
			return rank
		}
	}
	panic(fmt.Sprintf("process %d has no endpoint %d", proc, endpoint))
}

// others returns the ranks of all processes but that of a rank.
func (e *Endpoints) others(rank int) (all []int) {
	for other, proc := range e.Procs {
		if proc != e.Procs[rank] {
			all = append(all, other)
		}
	}
	return all
}

// endpoints returns a communicator with the handle of the first rank. It skips the case on a stack that cannot
// distinguish the ranks of a process. Each rank has an index of its own. One policy is enough, since all behave
// alike.
func (f *fixture) endpoints(counts ...int) *Endpoints {
	f.processes()
	if f.hosts != nil {
		f.Skipf("the ranks of processes are goroutine ranks already")
	}
	if f.cidPolicy != cid.PolicyLazy {
		f.Skipf("endpoints have indices of policy lazy")
	}
	e := f.Endpoints(counts...)
	err := e.Join(0)
	if errors.Is(err, framework.ErrUnsupported) {
		f.Skipf("%v", err)
	}
	f.Check(err)
	return e
}

// joinRest creates the missing handles.
func (f *fixture) joinRest(e *Endpoints) {
	for rank, c := range e.Comms {
		if c == nil {
			f.Check(e.Join(rank))
		}
	}
}

// closeAll closes all handles but those of killed processes. No index stays quarantined
// afterwards.
func (f *fixture) closeAll(e *Endpoints) {
	for rank, c := range e.Comms {
		if c != nil && f.Procs[e.Procs[rank]] != nil {
			c.Close()
		}
	}
	for _, p := range f.Procs {
		if p == nil {
			continue
		}
		f.Until("free indices", func() bool {
			withheld, live, quarantined := p.Module.CIDs().Counts()
			return withheld == 0 && live == 1 && quarantined == 0 // The fixture's own is open.
		})
	}
}
