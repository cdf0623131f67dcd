package mpi

import (
	"iter"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// member is a process or a goroutine rank.
type member struct {
	Proc
	endpoint uint16
	// nil for a whole process.
	activation *activation
}

// memberList is the members of a group by rank. It is immutable, and its zero value is empty.
type memberList struct {
	// The members if all are processes.
	procs framework.Procs
	// The members if one is a goroutine rank. nil otherwise.
	mixed []member
}

// memberBuilder builds a list. Its zero value is ready for use.
type memberBuilder struct {
	procs framework.ProcsBuilder
	mixed []member
}

func (b *memberBuilder) add(m member) {
	if m.activation == nil && b.mixed == nil {
		b.procs.Add(m.Proc)
		return
	}
	if b.mixed == nil {
		for _, p := range b.procs.Procs().All() {
			b.mixed = append(b.mixed, member{Proc: p})
		}
	}
	b.mixed = append(b.mixed, m)
}

// list returns the list, and empties the builder.
func (b *memberBuilder) list() memberList {
	l := memberList{procs: b.procs.Procs(), mixed: b.mixed}
	*b = memberBuilder{}
	return l
}

func (l memberList) size() int {
	if l.mixed != nil {
		return len(l.mixed)
	}
	return l.procs.Len()
}

// at returns the member with a rank, which is in range.
func (l memberList) at(rank int) member {
	if l.mixed != nil {
		return l.mixed[rank]
	}
	return member{Proc: l.procs.At(rank)}
}

// rank returns the rank of a member, or -1. It searches the list. lookup is for many members.
func (l memberList) rank(m member) int {
	switch {
	case l.mixed != nil:
		return slices.Index(l.mixed, m)
	case m.activation != nil:
		return -1
	}
	return l.procs.Index(m.Proc)
}

// lookup returns a function that is equal to rank.
func (l memberList) lookup() func(member) int {
	if l.mixed == nil {
		find := l.procs.Lookup()
		return func(m member) int {
			if m.activation != nil {
				return -1
			}
			return find(m.Proc)
		}
	}
	ranks := make(map[member]int, len(l.mixed))
	for rank, m := range l.mixed {
		ranks[m] = rank
	}
	return func(m member) int {
		if rank, ok := ranks[m]; ok {
			return rank
		}
		return -1
	}
}

func (l memberList) all() iter.Seq2[int, member] {
	if l.mixed != nil {
		return slices.All(l.mixed)
	}
	return func(yield func(int, member) bool) {
		for rank, p := range l.procs.All() {
			if !yield(rank, member{Proc: p}) {
				return
			}
		}
	}
}

// some returns the members with these ranks, in this order.
func (l memberList) some(ranks []int) memberList {
	var b memberBuilder
	for _, r := range ranks {
		b.add(l.at(r))
	}
	return b.list()
}

func (l memberList) equal(other memberList) bool {
	return slices.Equal(l.mixed, other.mixed) && l.procs.Equal(other.procs)
}

// processes returns the processes of the members, each once.
func (l memberList) processes() []Proc {
	if l.mixed == nil {
		return l.procs.List()
	}
	procs := make([]Proc, 0, len(l.mixed))
	seen := map[Proc]bool{}
	for _, m := range l.mixed {
		if m.activation == nil {
			procs = append(procs, m.Proc)
		} else if !seen[m.Proc] {
			seen[m.Proc] = true
			procs = append(procs, m.Proc)
		}
	}
	return procs
}
