package base

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Comm is what every PML knows of a communicator. P is the PML's type for a process.
type Comm[P Process] struct {
	State
	Procs []P // by rank, as they were when the communicator was made
}

// State is the part of a Comm that has nothing to do with processes.
type State struct {
	Spec    pml.CommSpec
	Pending int // operations that are not complete, and claimed messages
	Rest    cid.Rest
	Aborted [pml.Planes]error
}

// Comm returns the beginning of a communicator, or what is wrong with it: the card of
// every member must have come.
func (t *Procs[P]) Comm(spec pml.CommSpec, rest cid.Rest) (c Comm[P], err error) {
	if err := check(t.pml, &spec, t.env.Self); err != nil {
		return c, err
	}
	c = Comm[P]{State: State{Spec: spec, Rest: rest}, Procs: make([]P, len(spec.Group))}
	var none P
	for rank, m := range spec.Group {
		if c.Procs[rank] = t.Member(m.Life); c.Procs[rank] == none {
			return c, fmt.Errorf("%w: pml %s: rank %d (%v) has not been learnt", framework.ErrGroup, t.pml, rank, t.env.Worlds.Proc(m.ID))
		}
	}
	return c, nil
}

// check says what is wrong with a communicator for the PML called name in process self.
func check(name string, spec *pml.CommSpec, self framework.Life) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: pml %s: %s", framework.ErrGroup, name, fmt.Sprintf(format, args...))
	}
	if spec.Rank < 0 || spec.Rank >= len(spec.Group) || spec.Group[spec.Rank].Life != self {
		return refuse("rank %d is not this process", spec.Rank)
	}
	if spec.Indices != nil && len(spec.Indices) != len(spec.Group) {
		return refuse("%d indices for %d members", len(spec.Indices), len(spec.Group))
	}
	return oneEndpoint(name, spec, self)
}

// oneEndpoint refuses a communicator in which this process has several members: neither
// headers nor queues tell endpoints of a process yet. It is the one place that does.
func oneEndpoint(name string, spec *pml.CommSpec, self framework.Life) error {
	for rank, member := range spec.Group {
		if member.Life == self && rank != spec.Rank || member.Endpoint != 0 {
			return fmt.Errorf("%w: pml %s: rank %d is endpoint %d of a process: one endpoint, 0, in each process",
				framework.ErrUnsupported, name, rank, member.Endpoint)
		}
	}
	return nil
}

// Exchange returns that of the ids with a member, which knows what the communicator's
// creation has told.
func (c *State) Exchange(rank int, style cid.Style) cid.Exchange {
	x := cid.NewExchange(style)
	switch {
	case c.Spec.Agreed || rank == c.Spec.Rank:
		x.Preset(c.Spec.Local)
	case c.Spec.Indices != nil:
		x.Preset(c.Spec.Indices[rank])
	}
	return x
}

// RankOf returns the rank of a process, or -1.
func (c *Comm[P]) RankOf(p P) int { return slices.Index(c.Procs, p) }

// Closed reports whether the user has closed the communicator.
func (c *State) Closed() bool { return c.Rest.Stage() != cid.Open }

// Over returns why nothing new begins on a plane, or nil.
func (c *State) Over(plane pml.Plane) error {
	if c.Closed() {
		return framework.ErrClosed
	}
	return c.Aborted[plane]
}

// Withdrawn returns the status of an operation on a plane that was withdrawn: by its
// user, or because the plane was aborted.
func (c *State) Withdrawn(plane pml.Plane) pml.Status {
	st := pml.NoMessage()
	st.Err = c.Aborted[plane]
	st.Canceled = st.Err == nil
	return st
}

// Reason returns the error of an operation on a plane that fails with err. What an abort could
// not end at once ends with the abort's error, whatever ends it: members leave when they have
// heard of a death, and the dead one is to be named, not those who left.
func (c *State) Reason(plane pml.Plane, err error) error {
	if aborted := c.Aborted[plane]; aborted != nil {
		return aborted
	}
	return err
}

// Truncated is the error of a receive whose buffer was too short.
func Truncated(got, room int64) error {
	return fmt.Errorf("%w: message of %d bytes, buffer of %d", framework.ErrTruncate, got, room)
}

// Done says that one of Pending is no more, and reports whether the communicator is
// closed, and nothing is pending now.
func (c *State) Done() (ends bool) {
	c.Pending--
	return c.Pending == 0 && c.Rest.Stage() == cid.Ending
}

// CannotCome returns why no message comes any more of a member, or why none may of some
// (pml.AnySource); or nil. A member that has left in good order keeps nobody from
// receiving of the others, unless none is left.
func (c *Comm[P]) CannotCome(rank int, plane pml.Plane) error {
	if err := c.Aborted[plane]; err != nil {
		return err
	}
	if rank != pml.AnySource {
		if p := c.Procs[rank].Base(); p.Gone() {
			return Explain(p.Err, rank)
		}
		return nil
	}
	for rank, q := range c.Procs {
		if p := q.Base(); p.Failed() {
			return pendingOf(rank, p.Err)
		}
	}
	return c.alone()
}

// alone returns why no message of another member comes: all of them are gone. nil: one may.
func (c *Comm[P]) alone() (err error) {
	for rank, q := range c.Procs {
		switch p := q.Base(); {
		case rank == c.Spec.Rank:
		case !p.Gone():
			return nil
		default:
			err = Explain(p.Err, rank)
		}
	}
	return err
}

// Ends returns the error with which an operation with a member (pml.AnySource: a receive
// from any) ends when nothing comes of process p any more. nil: it goes on.
func (c *Comm[P]) Ends(rank int, p P) error {
	known := p.Base()
	switch {
	case rank != pml.AnySource:
		if c.Procs[rank] == p {
			return Explain(known.Err, rank)
		}
	case known.Failed():
		if failed := c.RankOf(p); failed >= 0 {
			return pendingOf(failed, known.Err)
		}
	case c.RankOf(p) >= 0:
		return c.alone()
	}
	return nil
}

func pendingOf(rank int, err error) error {
	return fmt.Errorf("%w: rank %d: %w", framework.ErrProcFailedPending, rank, err)
}

// Comms are the communicators of a module. C is the PML's type for one.
type Comms[C any] struct {
	ByIndex []*C // by the index of this process's id, nil where there is none
	ByID    map[cid.Extended]*C
	Table   *cid.Table
	Tombs   *cid.Tombstones // of those that were removed
	refused []cid.Span
}

// NewComms returns an empty set, whose indices come from table.
func NewComms[C any](table *cid.Table) Comms[C] {
	return Comms[C]{ByID: map[cid.Extended]*C{}, Table: table, Tombs: cid.NewTombstones(tombstones)}
}

// Refuse is pml.Module's.
func (t *Comms[C]) Refuse(s cid.Span) {
	if s != (cid.Span{}) {
		t.refused = append(t.refused, s)
	}
}

// Over reports whether a communicator that is not here will not come either.
func (t *Comms[C]) Over(id cid.Extended) bool { return t.Refused(id) || t.Tombs.Has(id) }

// Refused reports whether an id is of those that Refuse was told.
func (t *Comms[C]) Refused(id cid.Extended) bool {
	return slices.ContainsFunc(t.refused, func(s cid.Span) bool { return s.Has(id) })
}

// tombstones is how many closed communicators are remembered (16 bytes each): enough for
// messages that are late by as many closes.
const tombstones = 1 << 16

// Add adds a communicator; its id is that of no other one.
func (t *Comms[C]) Add(name string, spec *pml.CommSpec, c *C) error {
	if t.ByID[spec.ID] != nil {
		return fmt.Errorf("%w: pml %s: communicator %v exists", framework.ErrGroup, name, spec.ID)
	}
	t.ByID[spec.ID] = c
	index := int(spec.Local.Index())
	for len(t.ByIndex) <= index {
		t.ByIndex = append(t.ByIndex, make([]*C, max(64, len(t.ByIndex)))...)
	}
	t.ByIndex[index] = c
	return nil
}

// Remove takes a communicator out. Its index rests in Table until that is told.
func (t *Comms[C]) Remove(spec *pml.CommSpec) {
	delete(t.ByID, spec.ID)
	t.ByIndex[spec.Local.Index()] = nil
	t.Tombs.Add(spec.ID)
}
