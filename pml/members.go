package pml

import (
	"slices"
	"sync"

	"github.com/ferrympi/ferry/framework"
)

// Member is one rank of a communicator: an endpoint of a process. A process has one
// endpoint, 0, in a communicator of whole processes.
type Member struct {
	framework.Life
	Endpoint uint16
}

// Members are the members of a communicator, by rank. They are immutable and safe for
// concurrent use. A PML keeps what it knows of them once for all communicators with equal
// Members, so that a Members is comparable, as a pointer is, and all handles that a process
// has of a communicator, and of its duplicates, share one.
type Members interface {
	Len() int
	// Member returns the member with that rank, which is in range.
	Member(rank int) Member
	// Rank returns the rank of a member, or -1.
	Rank(m Member) int
}

// NewMembers returns the members that list has in the order of their ranks. It keeps list.
func NewMembers(list []Member) Members { return &memberList{list: list} }

// mostScanned is the length up to which a scan of the list takes no longer than a map.
const mostScanned = 16

type memberList struct {
	list  []Member
	index sync.Once
	ranks map[Member]int // built at the first use, for more than mostScanned members
}

func (l *memberList) Len() int { return len(l.list) }

func (l *memberList) Member(rank int) Member { return l.list[rank] }

func (l *memberList) Rank(m Member) int {
	if len(l.list) <= mostScanned {
		return slices.Index(l.list, m)
	}
	l.index.Do(func() {
		l.ranks = make(map[Member]int, len(l.list))
		for rank, m := range l.list {
			l.ranks[m] = rank
		}
	})
	if rank, ok := l.ranks[m]; ok {
		return rank
	}
	return -1
}

// RankLimiter is an optional ability of a Module (framework.As) that cannot address any number of
// ranks of a process.
type RankLimiter interface {
	// FitsRanks returns an error that wraps framework.ErrUnsupported if no communicator can have these
	// members. Its text has the number of ranks that fit, and the remedy. It is the same in all members.
	FitsRanks(members Members) error
}
