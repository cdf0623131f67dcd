package pml

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"github.com/ferrympi/ferry/framework"
)

// Member is one rank of a communicator, which is an endpoint of a process. In a communicator of
// whole processes, each has the endpoint 0.
type Member struct {
	framework.Incarnation
	Endpoint uint16
}

// Members are the members of a communicator, by rank. They are immutable and safe for concurrent use. A PML has one state for
// all communicators with equal Members. A Members is therefore compared by identity, and all handles that a process has of a
// communicator and its duplicates share one.
type Members interface {
	Len() int
	// Member returns the member with that rank, which is in range.
	Member(rank int) Member
	// Rank returns the rank of a member, or -1.
	Rank(m Member) int
	// First returns the rank of the lowest endpoint of a process, or -1. All members of a process are of one
	// incarnation.
	First(id framework.ProcID) int
}

// NewMembers returns members with the order of list, which it keeps.
func NewMembers(list []Member) Members { return &memberList{list: list} }

// ProcFailed returns the error for failed members with these ranks.
func ProcFailed(members Members, ranks []int, cause string) *framework.ProcFailedError {
	e := &framework.ProcFailedError{Ranks: ranks, Cause: cause}
	for _, rank := range ranks {
		e.JobRanks = append(e.JobRanks, int(members.Member(rank).ID.Rank()))
	}
	return e
}

// NewMembersFrom returns members with the order of list, which it keeps. The members are a subset of others, which stays in use
// until the garbage collector frees the new ones.
func NewMembersFrom(others Members, list []Member) Members {
	l := &memberList{list: list, source: others}
	if from, ok := others.(*memberList); ok {
		l.source = from.source
	}
	return l
}

// maxScanned is the length up to which a linear scan is as fast as a search.
const maxScanned = 16

type memberList struct {
	list []Member
	// Owner of resources that the members need, or nil.
	source Members
	sort   sync.Once
	// order has the ranks in the order of processes and endpoints, sorted at the first search. It is nil if the list has
	// this order, as mpi://WORLD does.
	order []uint32
}

func (l *memberList) Len() int { return len(l.list) }

func (l *memberList) Member(rank int) Member { return l.list[rank] }

func (l *memberList) Rank(m Member) int {
	if len(l.list) <= maxScanned {
		return slices.Index(l.list, m)
	}
	if rank := l.search(m.ID, m.Endpoint); rank >= 0 && l.list[rank] == m {
		return rank
	}
	return -1
}

func (l *memberList) First(id framework.ProcID) int {
	if len(l.list) > maxScanned {
		if rank := l.search(id, 0); rank >= 0 && l.list[rank].ID == id {
			return rank
		}
		return -1
	}
	first := -1
	for rank := range l.list {
		if m := &l.list[rank]; m.ID == id && (first < 0 || m.Endpoint < l.list[first].Endpoint) {
			first = rank
		}
	}
	return first
}

// search returns the rank of the first member that is not below (id, endpoint), in the order of processes and endpoints, or -1.
func (l *memberList) search(id framework.ProcID, endpoint uint16) int {
	l.sort.Do(l.sortRanks)
	from := Member{Incarnation: framework.Incarnation{ID: id}, Endpoint: endpoint}
	i := sort.Search(len(l.list), func(i int) bool { return compareMembers(&l.list[l.sorted(i)], &from) >= 0 })
	if i == len(l.list) {
		return -1
	}
	return l.sorted(i)
}

// sorted returns the rank at an index of this order.
func (l *memberList) sorted(i int) int {
	if l.order == nil {
		return i
	}
	return int(l.order[i])
}

func (l *memberList) sortRanks() {
	if slices.IsSortedFunc(l.list, func(x, y Member) int { return compareMembers(&x, &y) }) {
		return
	}
	l.order = make([]uint32, len(l.list))
	for rank := range l.order {
		l.order[rank] = uint32(rank)
	}
	slices.SortFunc(l.order, func(x, y uint32) int { return cmp.Or(compareMembers(&l.list[x], &l.list[y]), cmp.Compare(x, y)) })
}

func compareMembers(x, y *Member) int {
	return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.Endpoint, y.Endpoint))
}

// RankLimiter is an optional interface of a Module (framework.As) with a limit on the ranks of a process.
type RankLimiter interface {
	// FitsRanks returns an error that wraps framework.ErrUnsupported if no communicator can have these members. Its text
	// has the number of ranks that fit, and the remedy. All members get the same result.
	FitsRanks(members Members) error
}
