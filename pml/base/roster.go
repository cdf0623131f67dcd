package base

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// roster is the table of a communicator's processes. Communicators with equal Members share
// one, unless the set of known processes has changed between their creations, since a
// communicator keeps the processes of its creation.
type roster[P Process] struct {
	members pml.Members
	procs   []P // by rank
	// Ranks of each process, ascending, and all processes in the order of their lowest rank.
	// nil: each process has one rank.
	ranks     map[P][]int
	processes []P
	highest   uint16 // endpoint of any member
	most      int    // ranks of one process

	changes   uint64 // Procs.changes at its creation.
	handles   int    // Communicators of this process that use it.
	elsewhere *bool  // First element of a CommSpec.Elsewhere that has passed checkElsewhere.
}

// roster returns that of members, with one handle more. The card of every member must have
// come.
func (t *Procs[P]) roster(members pml.Members) (*roster[P], error) {
	r := t.rosters[members]
	if r == nil || r.changes != t.changes {
		var err error
		if r, err = t.newRoster(members); err != nil {
			return nil, err
		}
		r.hold()
		t.rosters[members] = r
	}
	r.handles++
	return r, nil
}

func (t *Procs[P]) newRoster(members pml.Members) (*roster[P], error) {
	r := &roster[P]{members: members, procs: make([]P, members.Len())}
	var none P
	whole, own := true, 0
	for rank := range r.procs {
		m := members.Member(rank)
		if m.Life == t.env.Self {
			own++
		}
		whole = whole && m.Endpoint == 0 && own < 2
		if r.procs[rank] = t.Member(m.Life); r.procs[rank] == none {
			return nil, fmt.Errorf("%w: pml %s: rank %d (%v) has not been learnt", framework.ErrGroup, t.pml, rank, t.env.Worlds.Proc(m.ID))
		}
	}
	if !whole {
		if err := r.divide(t.pml); err != nil {
			return nil, err
		}
	}
	r.changes = t.changes // the ends of members that were reported before may have been changes
	return r, nil
}

// divide finds the ranks of each process. A member occurs once.
func (r *roster[P]) divide(name string) error {
	r.ranks = map[P][]int{}
	for rank, p := range r.procs {
		m := r.members.Member(rank)
		if first := r.members.Rank(m); first != rank {
			return fmt.Errorf("%w: pml %s: ranks %d and %d are endpoint %d of one process", framework.ErrGroup, name, min(first, rank), max(first, rank), m.Endpoint)
		}
		if r.ranks[p] == nil {
			r.processes = append(r.processes, p)
		}
		r.ranks[p] = append(r.ranks[p], rank)
		r.highest, r.most = max(r.highest, m.Endpoint), max(r.most, len(r.ranks[p]))
	}
	return nil
}

// checkElsewhere returns an error if another member of this process is not in Elsewhere. A PML
// that moves messages between processes has no path between endpoints of one process.
func (r *roster[P]) checkElsewhere(name string, spec *pml.CommSpec) error {
	if spec.Elsewhere != nil && r.elsewhere == &spec.Elsewhere[0] {
		return nil
	}
	for _, rank := range r.ranks[r.procs[spec.Rank]] {
		if rank != spec.Rank && !spec.IsElsewhere(rank) {
			return fmt.Errorf("%w: pml %s: ranks %d and %d are endpoints of one process: another PML has to have their messages",
				framework.ErrUnsupported, name, spec.Rank, rank)
		}
	}
	if spec.IsElsewhere(spec.Rank) { // otherwise it holds for this handle only
		r.elsewhere = &spec.Elsewhere[0]
	}
	return nil
}

// drop takes a handle off a roster.
func (t *Procs[P]) drop(r *roster[P]) {
	if r.handles--; r.handles > 0 {
		return
	}
	if t.rosters[r.members] == r {
		delete(t.rosters, r.members)
	}
	r.release()
}
