package sets

import (
	"github.com/ferrympi/ferry/bootstrap"
)

// An EventKind is the kind of an Event.
type EventKind uint8

// Kinds of events. Those of a change come in this order, without the kinds that do not apply to it.
const (
	SetsMade         EventKind = iota + 1 // An operation without a change has made sets.
	SetDeleted                            // A process has deleted a set.
	ChangeBegun                           // Joining processes are ordered, or the change is open next.
	ChangeOpened                          // Members receive the change.
	ChangeIntegrated                      // The outcome is final.
	ChangeFinished
	ChangeUndone // Its results are deleted.
)

var eventKinds = [...]string{"", "made", "deleted", "begun", "opened", "integrated", "finished", "undone"}

// String returns the kind in one word.
func (k EventKind) String() string { return eventKinds[k] }

// An Event is a step of an operation on sets, or of a change of the job.
type Event struct {
	Kind EventKind
	// Zero for SetDeleted.
	Op bootstrap.PsetOp
	// Names of the sets that the operation uses, or the deleted one.
	Operands []string
	// Names of the sets that the operation makes. They identify a change.
	Results []string
	// Numbers of processes of a change.
	Joining, Leaving int
	// A user has requested the change.
	IsOfUser bool
	// Rank of the process that has requested the operation, unless IsOfUser.
	Requester uint32
	// Reason of ChangeUndone, or for ChangeIntegrated the next set of the members.
	Text string
}

// report passes an event to the observer.
func (t *Table[W]) report(ev Event) {
	if t.options.Observe != nil {
		t.options.Observe(ev)
	}
}

// reportChange passes an event of a change to the observer.
func (t *Table[W]) reportChange(kind EventKind, c *change[W], text string) {
	if t.options.Observe == nil {
		return
	}
	ev := Event{Kind: kind, Op: c.op, Operands: []string{c.associated.name}, Results: c.names(), IsOfUser: c.requester == user, Text: text}
	if !ev.IsOfUser {
		ev.Requester = uint32(c.requester)
	}
	if c.joining != nil {
		ev.Joining = len(c.joining.ranks)
	}
	if c.leaving != nil {
		ev.Leaving = len(c.leaving.ranks)
	}
	t.report(ev)
}

// SetInfo is a set that exists.
type SetInfo struct {
	Name string
	// In the order of its group. The caller does not modify it.
	Ranks []uint32
}

// Latest returns mpi://WORLD of the initial processes, and then the latest most of the other sets, the oldest first, without those
// of changes that are not open. older is the number of sets before these.
func (t *Table[W]) Latest(most int) (all []SetInfo, older int) {
	all = append(all, SetInfo{t.world.name, t.world.ranks})
	for _, s := range t.setsByAge[max(0, len(t.setsByAge)-most):] {
		if s.hiddenBy == nil {
			all = append(all, SetInfo{s.name, s.ranks})
		}
	}
	return all, max(0, len(t.setsByAge)-most)
}
