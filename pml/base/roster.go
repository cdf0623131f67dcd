package base

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// roster is the table of a communicator's processes. A process enters it at its first use, or at its end. Communicators
// with equal Members share one, unless processes have ended or were replaced between their creations, since a
// communicator keeps the processes of its creation.
type roster[P Process] struct {
	allProcs    *Procs[P]
	members     pml.Members
	procsByRank Table[P]
	// ranksByProc has the ranks of each process, ascending. It is nil if each process has one rank.
	ranksByProc map[framework.ProcID][]int
	// highestEndpoint is the highest endpoint of all members, and maxRanks the largest number of
	// ranks of one process.
	highestEndpoint uint16
	maxRanks        int

	// endErrs has the errors of processes that have ended, by their first ranks. Ends are recorded when they are
	// reported, so that no operation searches for them.
	endErrs map[int]error
	// unreachableRanks and failedRanks have the first ranks of such processes. unreachableRanks is ascending.
	unreachableRanks []int
	failedRanks      []int

	// processChanges is Procs.processChanges at the creation of the roster.
	processChanges uint64
	// handleCount counts the handles of this process that use the roster.
	handleCount int
	// checkedElsewhere is the CommSpec.Elsewhere that has last passed checkElsewhere.
	checkedElsewhere *pml.RankSet
}

// roster returns the roster of members, and counts a handle.
func (t *Procs[P]) roster(members pml.Members) (*roster[P], error) {
	r := t.newestRosters[members]
	if r == nil || r.processChanges != t.processChanges {
		var err error
		if r, err = t.newRoster(members); err != nil {
			return nil, err
		}
		t.newestRosters[members] = r
	}
	r.handleCount++
	return r, nil
}

func (t *Procs[P]) newRoster(members pml.Members) (*roster[P], error) {
	r := &roster[P]{allProcs: t, members: members}
	isWhole, own := true, 0
	for rank := range members.Len() {
		m := members.Member(rank)
		if m.Incarnation == t.env.Self {
			own++
		}
		isWhole = isWhole && m.Endpoint == 0 && own < 2
		if t.env.Cards == nil && !t.isKnown(m.Incarnation) && t.endOf(m.Incarnation) == nil {
			return nil, fmt.Errorf("%w: pml %s: rank %d (%v) has no business card: call Learn before AddComm", framework.ErrGroup, t.pmlName, rank, t.env.Worlds.Proc(m.ID))
		}
	}
	if !isWhole {
		if err := r.indexRanks(t.pmlName); err != nil {
			return nil, err
		}
	}
	r.procsByRank = NewTable[P](members.Len(), isWhole)
	t.inUse[r] = struct{}{}
	if t.processChanges > 0 {
		t.recordKnownEnds(r)
	}
	r.processChanges = t.processChanges
	return r, nil
}

// indexRanks sets ranks. It returns an error if a member occurs twice.
func (r *roster[P]) indexRanks(name string) error {
	r.ranksByProc = map[framework.ProcID][]int{}
	for rank := range r.members.Len() {
		m := r.members.Member(rank)
		if first := r.members.Rank(m); first != rank {
			return fmt.Errorf("%w: pml %s: ranks %d and %d are endpoint %d of one process", framework.ErrGroup, name, min(first, rank), max(first, rank), m.Endpoint)
		}
		r.ranksByProc[m.ID] = append(r.ranksByProc[m.ID], rank)
		r.highestEndpoint, r.maxRanks = max(r.highestEndpoint, m.Endpoint), max(r.maxRanks, len(r.ranksByProc[m.ID]))
	}
	return nil
}

// firstRank returns the lowest rank of the process of a rank.
func (r *roster[P]) firstRank(rank int) int {
	if r.ranksByProc == nil {
		return rank
	}
	return r.ranksByProc[r.members.Member(rank).ID][0]
}

// firstRankOf returns the lowest rank of an incarnation, or -1.
func (r *roster[P]) firstRankOf(incarnation framework.Incarnation) int {
	rank := r.members.First(incarnation.ID)
	if rank < 0 || r.members.Member(rank).Incarnation != incarnation {
		return -1
	}
	return r.firstRank(rank)
}

// ranksOf returns the ranks of the process whose lowest rank is first.
func (r *roster[P]) ranksOf(first int) []int {
	if r.ranksByProc == nil {
		return []int{first}
	}
	return r.ranksByProc[r.members.Member(first).ID]
}

// count returns the number of processes.
func (r *roster[P]) count() int {
	if r.ranksByProc == nil {
		return r.members.Len()
	}
	return len(r.ranksByProc)
}

// proc returns the process of a rank, and adds it at its first use.
func (r *roster[P]) proc(rank int) P {
	var none P
	if p := r.procsByRank.Get(rank); p != none {
		return p
	}
	first := r.firstRank(rank)
	p := r.procsByRank.Get(first)
	if p == none {
		incarnation := r.members.Member(rank).Incarnation
		if how, hasEnded := r.endErrs[first]; hasEnded {
			p = r.allProcs.endedMember(incarnation, how)
		} else {
			p = r.allProcs.Member(incarnation)
		}
		r.procsByRank.Set(first, p)
		if known := p.Base(); known.HasEnded() {
			r.recordEnd(first, known.PeerState(), known.Err)
		}
	}
	r.procsByRank.Set(rank, p)
	return p
}

// isProc reports whether p is the process of a rank.
func (r *roster[P]) isProc(rank int, p P) bool {
	var none P
	q := r.procsByRank.Get(r.firstRank(rank))
	return q == p || q == none && r.members.Member(rank).Incarnation == p.Base().Incarnation
}

// setProc sets the process of an incarnation that has none here.
func (r *roster[P]) setProc(incarnation framework.Incarnation, p P) {
	var none P
	if first := r.firstRankOf(incarnation); first >= 0 && r.procsByRank.Get(first) == none {
		r.procsByRank.Set(first, p)
	}
}

// recordProcEnd records the end of a process, if it is a member.
func (r *roster[P]) recordProcEnd(p *Proc) {
	var none P
	first := r.firstRankOf(p.Incarnation)
	if first < 0 {
		return
	}
	switch q := r.procsByRank.Get(first); {
	case q == none:
		if q := r.allProcs.Incarnations[p.Incarnation.Nonce]; q != none && q.Base() == p {
			r.procsByRank.Set(first, q)
		}
	case q.Base() != p: // Another process with the same incarnation, see Procs.Reconnect.
		return
	}
	r.recordEnd(first, p.PeerState(), p.Err)
}

// recordEnd records an end once. An unreachable process may be reported as failed later.
func (r *roster[P]) recordEnd(first int, state framework.PeerState, how error) {
	at, isBroken := slices.BinarySearch(r.unreachableRanks, first)
	if _, hasEnded := r.endErrs[first]; hasEnded && !(isBroken && state == framework.Failed) {
		return
	}
	if isBroken {
		r.unreachableRanks = slices.Delete(r.unreachableRanks, at, at+1)
	}
	if r.endErrs == nil {
		r.endErrs = map[int]error{}
	}
	r.endErrs[first] = how
	switch state {
	case framework.Unreachable:
		r.unreachableRanks = slices.Insert(r.unreachableRanks, at, first)
	case framework.Failed:
		r.failedRanks = append(r.failedRanks, first)
	}
}

// othersError returns an error if all processes but own, a first rank, have ended. It names the highest of their first
// ranks.
func (r *roster[P]) othersError(own int) (rank int, err error) {
	n := len(r.endErrs)
	if _, ownEnded := r.endErrs[own]; ownEnded {
		n--
	}
	if n == 0 || n < r.count()-1 {
		return 0, nil
	}
	rank = -1
	for first := range r.endErrs {
		if first != own {
			rank = max(rank, first)
		}
	}
	return rank, r.endErrs[rank]
}

// checkElsewhere returns an error if another member of this process is not in Elsewhere. A PML
// between processes has no path between endpoints of one process.
func (r *roster[P]) checkElsewhere(name string, spec *pml.CommSpec) error {
	if spec.Elsewhere != nil && r.checkedElsewhere == spec.Elsewhere {
		return nil
	}
	for _, rank := range r.ranksByProc[r.members.Member(spec.Rank).ID] {
		if rank != spec.Rank && !spec.IsElsewhere(rank) {
			return fmt.Errorf("%w: pml %s: ranks %d and %d are endpoints of one process: another PML must serve them",
				framework.ErrUnsupported, name, spec.Rank, rank)
		}
	}
	if spec.IsElsewhere(spec.Rank) { // Otherwise the result holds for this handle only.
		r.checkedElsewhere = spec.Elsewhere
	}
	return nil
}

// releaseRoster removes a handle from a roster.
func (t *Procs[P]) releaseRoster(r *roster[P]) {
	if r.handleCount--; r.handleCount > 0 {
		return
	}
	if t.newestRosters[r.members] == r {
		delete(t.newestRosters, r.members)
	}
	delete(t.inUse, r)
	for first := range r.endErrs {
		t.reportDroppable(r.members.Member(first).Incarnation)
	}
}

// InUse reports whether an incarnation is in a communicator.
func (t *Procs[P]) InUse(incarnation framework.Incarnation) bool {
	for r := range t.inUse {
		if r.firstRankOf(incarnation) >= 0 {
			return true
		}
	}
	return false
}

// recordKnownEnds records the ended processes of a new roster.
func (t *Procs[P]) recordKnownEnds(r *roster[P]) {
	enter := func(incarnation framework.Incarnation) {
		first := r.firstRankOf(incarnation)
		if first < 0 {
			return
		}
		switch how := t.endOf(incarnation); {
		case how == nil:
		case isLeft(how):
			r.recordEnd(first, framework.Left, how)
		default:
			p := t.endedMember(incarnation, how)
			r.procsByRank.Set(first, p)
			r.recordEnd(first, p.Base().PeerState(), p.Base().Err)
		}
	}
	if n := r.members.Len(); n <= len(t.Incarnations)+len(t.endRecords)+len(t.droppedIncarnations.incarnations) {
		for rank := range n {
			enter(r.members.Member(rank).Incarnation)
		}
		return
	}
	for _, p := range t.Incarnations {
		enter(p.Base().Incarnation)
	}
	for id, e := range t.endRecords {
		enter(framework.Incarnation{ID: id, Nonce: e.nonce})
	}
	for incarnation := range t.droppedIncarnations.incarnations {
		enter(incarnation)
	}
	for id := range t.presentProcs {
		if rank := r.members.First(id); rank >= 0 {
			enter(r.members.Member(rank).Incarnation)
		}
	}
}

// endOf returns the error of an incarnation that has ended, or nil. An incarnation ends when a later one is present.
func (t *Procs[P]) endOf(incarnation framework.Incarnation) error {
	var none P
	if q := t.Find(incarnation); q != none {
		if known := q.Base(); known.HasEnded() {
			return known.Err
		} else if known.HasCard {
			return nil
		}
	}
	if e := t.endRecords[incarnation.ID]; e.is(incarnation) {
		return e.endErr
	}
	if q := t.presentProcs[incarnation.ID]; q != none && q.Base().Incarnation != incarnation || t.droppedIncarnations.contains(incarnation) {
		return t.ReplacedError(incarnation)
	}
	return nil
}

// endedMember returns the process of an incarnation that has ended.
func (t *Procs[P]) endedMember(incarnation framework.Incarnation, how error) P {
	p := t.Get(incarnation)
	p.Fail(how)
	return p
}

// isLeft reports whether the error of an end is that of a process that has left.
func isLeft(how error) bool { return endState(how) == framework.Left }
