package sets

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// Progress is the progress of an unfinished change.
type Progress struct {
	Type bootstrap.ChangeType
	// Name of the associated set.
	Pset string
	// Numbers of processes.
	Joining int
	Leaving int
	// The joining processes are being started.
	IsStarting bool
	// Number of processes that integrate the change.
	Members int
	// Number of those that have called Integrate.
	Integrated int
	// A user has requested it.
	IsOfUser bool
	// Rank that has requested it, unless IsOfUser.
	Requester uint32
}

// Present returns the number of present processes, joining ones included.
func (t *Table[W]) Present() int { return t.presentCount }

// Progress returns the unfinished changes, the oldest first.
func (t *Table[W]) Progress() []Progress {
	changes := slices.SortedFunc(maps.Keys(t.changes), func(a, b *change[W]) int { return cmp.Compare(a.serial(), b.serial()) })
	all := make([]Progress, len(changes))
	for i, c := range changes {
		p := Progress{Type: c.kind, Pset: c.associated.name, IsStarting: c.state == stateStarting, Members: c.groupSize, Integrated: len(c.integrateCalls)}
		if c.joining != nil {
			p.Joining = len(c.joining.ranks)
		}
		if c.leaving != nil {
			p.Leaving = len(c.leaving.ranks)
		}
		if c.state == stateIntegrated {
			p.Integrated = c.groupSize
		}
		if p.IsOfUser = c.requester == user; !p.IsOfUser {
			p.Requester = uint32(c.requester)
		}
		all[i] = p
	}
	return all
}

// serial orders changes by age.
func (c *change[W]) serial() int { return c.created()[0].serial }

// IsUnseen reports whether no query of a member of the associated set has returned the change that w
// requests, although its processes run. Queries of joining processes do not count.
func (t *Table[W]) IsUnseen(w W) bool {
	for c := range t.changes {
		if c.isWaiting && c.request == w {
			return c.state == stateOpen && !slices.ContainsFunc(c.associated.ranks, func(r uint32) bool { _, ok := c.seenBy[r]; return ok })
		}
	}
	return false
}

// IsBusy reports whether a change that a process has requested is in progress among the processes of the set
// that Resize with b would change.
func (t *Table[W]) IsBusy(b wire.OperateBody) bool {
	s, f := t.latestSet(b.Operands)
	return f == nil && slices.ContainsFunc(s.ranks, func(r uint32) bool {
		p := t.procs[r]
		return p != nil && p.change != nil && p.change.requester != user && t.isPresent(r)
	})
}

// Size returns the number of members of a set that is not built in, or 0.
func (t *Table[W]) Size(name string) int {
	if s := t.sets[bootstrap.PsetKey(name)]; s != nil && s.hiddenBy == nil {
		return len(s.ranks)
	}
	return 0
}

// Awaited returns the members that have not entered the integrations that others have entered.
func (t *Table[W]) Awaited() (ranks []uint32) {
	for c := range t.changes {
		if c.state == stateOpen && len(c.integrateCalls) > 0 {
			ranks = append(ranks, t.absent(c)...)
		}
	}
	return ranks
}

// Watched returns the present members of the sets with pending queries.
func (t *Table[W]) Watched() (ranks []uint32) {
	for s := range t.queriedSets {
		for _, r := range s.ranks {
			if t.isPresent(r) {
				ranks = append(ranks, r)
			}
		}
	}
	return ranks
}
