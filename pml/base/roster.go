package base

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// roster is the table of a communicator's processes. A process enters it at its first use, or at its end. Communicators
// with equal Members share one, unless processes have ended or were replaced between their creations, since a
// communicator keeps the processes of its creation.
type roster[P Process] struct {
	all     *Procs[P]
	members pml.Members
	procs   Table[P] // By rank.
	// Ranks of each process, ascending. Nil if each process has one rank.
	ranks   map[framework.ProcID][]int
	highest uint16 // endpoint of any member
	most    int    // ranks of one process

	// The processes that are gone, by their first ranks, with the reasons. Ends are counted here when they come, so
	// that no operation searches for them.
	ended  map[int]error
	broken []int // First ranks of those with a broken path, ascending.
	dead   []int // First ranks of those that died.

	changes   uint64       // Procs.changes at its creation.
	handles   int          // Communicators of this process that use it.
	elsewhere *pml.RankSet // A CommSpec.Elsewhere that has passed checkElsewhere.
}

// roster returns that of members, with one handle more.
func (t *Procs[P]) roster(members pml.Members) (*roster[P], error) {
	r := t.rosters[members]
	if r == nil || r.changes != t.changes {
		var err error
		if r, err = t.newRoster(members); err != nil {
			return nil, err
		}
		t.rosters[members] = r
	}
	r.handles++
	return r, nil
}

func (t *Procs[P]) newRoster(members pml.Members) (*roster[P], error) {
	r := &roster[P]{all: t, members: members}
	isWhole, own := true, 0
	for rank := range members.Len() {
		m := members.Member(rank)
		if m.Life == t.env.Self {
			own++
		}
		isWhole = isWhole && m.Endpoint == 0 && own < 2
		if t.env.Cards == nil && !t.isKnown(m.Life) && t.endOf(m.Life) == nil {
			return nil, fmt.Errorf("%w: pml %s: rank %d (%v) has not been learnt", framework.ErrGroup, t.pml, rank, t.env.Worlds.Proc(m.ID))
		}
	}
	if !isWhole {
		if err := r.divide(t.pml); err != nil {
			return nil, err
		}
	}
	r.procs = NewTable[P](members.Len(), isWhole)
	t.inUse[r] = struct{}{}
	if t.changes > 0 {
		t.enterEnded(r)
	}
	r.changes = t.changes
	return r, nil
}

// divide finds the ranks of each process. A member occurs once.
func (r *roster[P]) divide(name string) error {
	r.ranks = map[framework.ProcID][]int{}
	for rank := range r.members.Len() {
		m := r.members.Member(rank)
		if first := r.members.Rank(m); first != rank {
			return fmt.Errorf("%w: pml %s: ranks %d and %d are endpoint %d of one process", framework.ErrGroup, name, min(first, rank), max(first, rank), m.Endpoint)
		}
		r.ranks[m.ID] = append(r.ranks[m.ID], rank)
		r.highest, r.most = max(r.highest, m.Endpoint), max(r.most, len(r.ranks[m.ID]))
	}
	return nil
}

// first returns the lowest rank of the process that has a rank.
func (r *roster[P]) first(rank int) int {
	if r.ranks == nil {
		return rank
	}
	return r.ranks[r.members.Member(rank).ID][0]
}

// firstOf returns the lowest rank of an incarnation, or -1.
func (r *roster[P]) firstOf(life framework.Life) int {
	rank := r.members.First(life.ID)
	if rank < 0 || r.members.Member(rank).Life != life {
		return -1
	}
	return r.first(rank)
}

// ranksOf returns the ranks of the process whose lowest rank is first.
func (r *roster[P]) ranksOf(first int) []int {
	if r.ranks == nil {
		return []int{first}
	}
	return r.ranks[r.members.Member(first).ID]
}

// count returns the number of processes.
func (r *roster[P]) count() int {
	if r.ranks == nil {
		return r.members.Len()
	}
	return len(r.ranks)
}

// proc returns the process of a rank, and enters it at the first use.
func (r *roster[P]) proc(rank int) P {
	var none P
	if p := r.procs.Get(rank); p != none {
		return p
	}
	first := r.first(rank)
	p := r.procs.Get(first)
	if p == none {
		life := r.members.Member(rank).Life
		if how, hasEnded := r.ended[first]; hasEnded {
			p = r.all.endedMember(life, how)
		} else {
			p = r.all.Member(life)
		}
		r.procs.Set(first, p)
		if known := p.Base(); known.Gone() {
			r.enterEnd(first, known.Presence(), known.Err)
		}
	}
	r.procs.Set(rank, p)
	return p
}

// has reports whether p is the process of that rank.
func (r *roster[P]) has(rank int, p P) bool {
	var none P
	q := r.procs.Get(r.first(rank))
	return q == p || q == none && r.members.Member(rank).Life == p.Base().Life
}

// keep makes p the process of an incarnation that has none here.
func (r *roster[P]) keep(life framework.Life, p P) {
	var none P
	if first := r.firstOf(life); first >= 0 && r.procs.Get(first) == none {
		r.procs.Set(first, p)
	}
}

// end enters the end of a process, if it is of this roster.
func (r *roster[P]) end(p *Proc) {
	var none P
	first := r.firstOf(p.Life)
	if first < 0 {
		return
	}
	switch q := r.procs.Get(first); {
	case q == none:
		if q := r.all.Lives[p.Life.Nonce]; q != none && q.Base() == p {
			r.procs.Set(first, q)
		}
	case q.Base() != p: // An earlier or a later one of the incarnation, see Procs.Renew.
		return
	}
	r.enterEnd(first, p.Presence(), p.Err)
}

// enterEnd counts a process that is gone, once. One with a broken path may be reported dead later.
func (r *roster[P]) enterEnd(first int, presence Presence, how error) {
	at, isBroken := slices.BinarySearch(r.broken, first)
	if _, hasEnded := r.ended[first]; hasEnded && !(isBroken && presence == Died) {
		return
	}
	if isBroken {
		r.broken = slices.Delete(r.broken, at, at+1)
	}
	if r.ended == nil {
		r.ended = map[int]error{}
	}
	r.ended[first] = how
	switch presence {
	case Broken:
		r.broken = slices.Insert(r.broken, at, first)
	case Died:
		r.dead = append(r.dead, first)
	}
}

// othersEnd returns the error of an operation that waits for any process but own, the first rank of one. It is nil unless
// all of them are gone.
func (r *roster[P]) othersEnd(own int) (rank int, err error) {
	n := len(r.ended)
	if _, ownEnded := r.ended[own]; ownEnded {
		n--
	}
	if n == 0 || n < r.count()-1 {
		return 0, nil
	}
	rank = -1
	for first := range r.ended {
		if first != own {
			rank = max(rank, first)
		}
	}
	return rank, r.ended[rank]
}

// checkElsewhere returns an error if another member of this process is not in Elsewhere. A PML
// that moves messages between processes has no path between endpoints of one process.
func (r *roster[P]) checkElsewhere(name string, spec *pml.CommSpec) error {
	if spec.Elsewhere != nil && r.elsewhere == spec.Elsewhere {
		return nil
	}
	for _, rank := range r.ranks[r.members.Member(spec.Rank).ID] {
		if rank != spec.Rank && !spec.IsElsewhere(rank) {
			return fmt.Errorf("%w: pml %s: ranks %d and %d are endpoints of one process: another PML has to have their messages",
				framework.ErrUnsupported, name, spec.Rank, rank)
		}
	}
	if spec.IsElsewhere(spec.Rank) { // otherwise it holds for this handle only
		r.elsewhere = spec.Elsewhere
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
	delete(t.inUse, r)
	for first := range r.ended {
		t.offerDrop(r.members.Member(first).Life)
	}
}

// InUse reports whether an incarnation is in a communicator.
func (t *Procs[P]) InUse(life framework.Life) bool {
	for r := range t.inUse {
		if r.firstOf(life) >= 0 {
			return true
		}
	}
	return false
}

// enterEnded enters the processes of a new roster that are gone.
func (t *Procs[P]) enterEnded(r *roster[P]) {
	enter := func(life framework.Life) {
		first := r.firstOf(life)
		if first < 0 {
			return
		}
		switch how := t.endOf(life); {
		case how == nil:
		case isLeft(how):
			r.enterEnd(first, Departed, how)
		default:
			p := t.endedMember(life, how)
			r.procs.Set(first, p)
			r.enterEnd(first, p.Base().Presence(), p.Base().Err)
		}
	}
	if n := r.members.Len(); n <= len(t.Lives)+len(t.ends)+len(t.dropped.has) {
		for rank := range n {
			enter(r.members.Member(rank).Life)
		}
		return
	}
	for _, p := range t.Lives {
		enter(p.Base().Life)
	}
	for id, e := range t.ends {
		enter(framework.Life{ID: id, Nonce: e.nonce})
	}
	for life := range t.dropped.has {
		enter(life)
	}
	for id := range t.present {
		if rank := r.members.First(id); rank >= 0 {
			enter(r.members.Member(rank).Life)
		}
	}
}

// endOf returns the reason why an incarnation is gone, or nil. An incarnation is gone when a later one is present.
func (t *Procs[P]) endOf(life framework.Life) error {
	var none P
	if q := t.Find(life); q != none {
		if known := q.Base(); known.Gone() {
			return known.Err
		} else if known.Known {
			return nil
		}
	}
	if e := t.ends[life.ID]; e.is(life) {
		return e.how
	}
	if q := t.present[life.ID]; q != none && q.Base().Life != life || t.dropped.contains(life) {
		return t.Ended(life)
	}
	return nil
}

// endedMember returns the process of an incarnation that is gone.
func (t *Procs[P]) endedMember(life framework.Life, how error) P {
	p := t.Get(life)
	p.Fail(how)
	return p
}

// isLeft reports whether an incarnation has left in good order, as the error of its end says.
func isLeft(how error) bool { return errors.Is(how, framework.ErrPeerClosed) }
