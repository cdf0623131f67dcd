package mpi

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
)

// Proc is the name of a process, with the namespace of its job from the launcher and its rank in the job.
type Proc = framework.Proc

// Comparison is how two groups or communicators relate (MPI-4.1 sections 7.3.1
// and 7.4.1).
type Comparison int

// The outcomes of Compare, from equal to different.
const (
	Identical Comparison = iota // The same members in the same order. Of communicators: the same communicator.
	Congruent                   // Communicators with equal groups and different contexts.
	Similar                     // The same members in another order.
	Unequal                     // Different members.
)

// String returns the name of the constant in lower case.
func (c Comparison) String() string {
	names := [...]string{"identical", "congruent", "similar", "unequal"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("comparison(%d)", int(c))
	}
	return names[c]
}

// Group is an ordered set of processes, or of the goroutine ranks of a thread communicator
// (MPI-4.1 section 7.2.1). It is local and immutable. Its memory does not grow with its size if the ranks of its processes
// are in a few regular sequences, as those of mpi://WORLD and mpix://ROOTS are, and is 4 bytes for each process otherwise. All its
// methods work without any message and also after its session was closed. A nil *Group is empty.
type Group struct {
	session *Session
	self    member // The caller.
	members memberList
	// Of self, or Undefined.
	rank int
}

// newGroup returns a group of processes.
func newGroup(s *Session, procs framework.Procs) *Group {
	return groupOf(s, member{Proc: s.process.identity.Proc}, memberList{procs: procs})
}

// groupOf returns a group from the view of self.
func groupOf(s *Session, self member, members memberList) *Group {
	g := &Group{session: s, self: self, members: members, rank: members.rank(self)}
	if g.rank < 0 {
		g.rank = Undefined
	}
	return g
}

// with returns a group of other members for the same caller.
func (g *Group) with(members memberList) *Group {
	if g == nil || g.session == nil {
		return &Group{rank: Undefined}
	}
	return groupOf(g.session, g.self, members)
}

func (g *Group) list() memberList {
	if g == nil {
		return memberList{}
	}
	return g.members
}

// processes returns the processes of the members, each once.
func (g *Group) processes() []Proc { return g.list().processes() }

// hasRanks reports whether goroutine ranks are members.
func (g *Group) hasRanks() bool { return g.list().mixed != nil }

// Size returns the number of members.
func (g *Group) Size() int { return g.list().size() }

// Rank returns the caller's rank in the group, or Undefined if it is not a member.
func (g *Group) Rank() int {
	if g == nil {
		return Undefined
	}
	return g.rank
}

// Members returns the processes of the members in the order of their ranks. A process is there once
// for each of its goroutine ranks.
func (g *Group) Members() []Proc {
	l := g.list()
	if l.mixed == nil {
		return l.procs.List()
	}
	procs := make([]Proc, len(l.mixed))
	for rank, m := range l.mixed {
		procs[rank] = m.Proc
	}
	return procs
}

// Compare returns Identical, Similar or Unequal.
func (g *Group) Compare(other *Group) Comparison {
	if g.list().equal(other.list()) {
		return Identical
	}
	if g.Size() != other.Size() {
		return Unequal
	}
	in := other.list().lookup()
	for _, m := range g.list().all() {
		if in(m) < 0 {
			return Unequal
		}
	}
	return Similar
}

// Union returns the members of g, then those of other that are not in g.
func (g *Group) Union(other *Group) *Group {
	base := g
	if g == nil || g.session == nil {
		base = other
	}
	in := g.list().lookup()
	var union memberBuilder
	for _, m := range g.list().all() {
		union.add(m)
	}
	for _, m := range other.list().all() {
		if in(m) < 0 {
			union.add(m)
		}
	}
	return base.with(union.list())
}

// Intersection returns the members of g that are also in other, in g's order.
func (g *Group) Intersection(other *Group) *Group { return g.filter(other, true) }

// Difference returns the members of g that are not in other, in g's order.
func (g *Group) Difference(other *Group) *Group { return g.filter(other, false) }

func (g *Group) filter(other *Group, keep bool) *Group {
	in := other.list().lookup()
	return g.where(func(_ int, m member) bool { return (in(m) >= 0) == keep })
}

// where returns the group of the members for which keep returns true.
func (g *Group) where(keep func(rank int, m member) bool) *Group {
	var kept memberBuilder
	for rank, m := range g.list().all() {
		if keep(rank, m) {
			kept.add(m)
		}
	}
	return g.with(kept.list())
}

// Incl returns the members with these ranks, in this order. A rank that is out
// of range or comes twice is ErrRank.
func (g *Group) Incl(ranks ...int) (*Group, error) {
	if _, err := g.check(ranks); err != nil {
		return nil, err
	}
	return g.with(g.list().some(ranks)), nil
}

// Excl returns all members but those with these ranks, in g's order. A rank that
// is out of range or comes twice is ErrRank.
func (g *Group) Excl(ranks ...int) (*Group, error) {
	isListed, err := g.check(ranks)
	if err != nil {
		return nil, err
	}
	return g.where(func(rank int, _ member) bool { return !isListed[rank] }), nil
}

// check returns, by rank, whether ranks has it.
func (g *Group) check(ranks []int) (isListed []bool, err error) {
	isListed = make([]bool, g.Size())
	for _, r := range ranks {
		if r < 0 || r >= g.Size() {
			return nil, fmt.Errorf("%w: %d, in a group of %d", ErrRank, r, g.Size())
		}
		if isListed[r] {
			return nil, fmt.Errorf("%w: %d appears twice", ErrRank, r)
		}
		isListed[r] = true
	}
	return isListed, nil
}

// Range is the ranks First, First+Stride, ... up to and including Last
// (MPI-4.1 section 7.3.2). Stride may be negative, and not 0.
type Range struct{ First, Last, Stride int }

// RangeIncl is Incl of the ranks that the ranges stand for.
func (g *Group) RangeIncl(ranges []Range) (*Group, error) {
	ranks, err := g.expand(ranges)
	if err != nil {
		return nil, err
	}
	return g.Incl(ranks...)
}

// RangeExcl is Excl of the ranks that the ranges stand for.
func (g *Group) RangeExcl(ranges []Range) (*Group, error) {
	ranks, err := g.expand(ranges)
	if err != nil {
		return nil, err
	}
	return g.Excl(ranks...)
}

// expand checks both ends first, so that no range is longer than the group.
func (g *Group) expand(ranges []Range) ([]int, error) {
	var ranks []int
	for _, x := range ranges {
		if x.Stride == 0 {
			return nil, fmt.Errorf("%w: range %d to %d with stride 0", ErrRank, x.First, x.Last)
		}
		if x.First < 0 || x.First >= g.Size() || x.Last < 0 || x.Last >= g.Size() {
			return nil, fmt.Errorf("%w: range %d to %d, in a group of %d", ErrRank, x.First, x.Last, g.Size())
		}
		// A stride beyond the group ends every range after its first rank.
		stride := max(min(x.Stride, g.Size()), -g.Size())
		for r := x.First; stride > 0 && r <= x.Last || stride < 0 && r >= x.Last; r += stride {
			ranks = append(ranks, r)
		}
		if len(ranks) > g.Size() {
			return nil, fmt.Errorf("%w: the ranges overlap", ErrRank)
		}
	}
	return ranks, nil
}

// Translate returns, for each of these ranks of g, the rank of the same member
// in to, or Undefined where it is not a member. ProcNull stays ProcNull. A rank out
// of range is ErrRank.
func (g *Group) Translate(ranks []int, to *Group) ([]int, error) {
	in := to.list().lookup()
	out := make([]int, len(ranks))
	for i, r := range ranks {
		if r == ProcNull {
			out[i] = ProcNull
			continue
		}
		if r < 0 || r >= g.Size() {
			return nil, fmt.Errorf("%w: %d, in a group of %d", ErrRank, r, g.Size())
		}
		if out[i] = in(g.members.at(r)); out[i] < 0 {
			out[i] = Undefined
		}
	}
	return out, nil
}
