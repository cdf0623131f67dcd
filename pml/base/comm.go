package base

import (
	"fmt"
	"iter"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Comm is what every PML knows of a communicator. P is the PML's type for a process.
type Comm[P Process] struct {
	State
	roster *roster[P]
}

// State is the part of a Comm that has nothing to do with processes.
type State struct {
	Spec     pml.CommSpec
	Endpoint uint16 // Endpoint of this process that the handle belongs to.
	Pending  int    // operations that are not complete, and claimed messages
	Rest     cid.Rest
	Aborted  [pml.Planes]error
	// Suspended has the reasons of pml.Comm's Suspend.
	Suspended [pml.Planes]error
	settled   [pml.Planes]int // Failed processes at the last call of SetSuspended.
}

// Comm returns the beginning of a communicator, or an error if the spec is invalid. The card of every member must have come
// (Learn, or pml.Env's Cards). Drop is its end.
func (t *Procs[P]) Comm(spec pml.CommSpec, rest cid.Rest) (c Comm[P], err error) {
	if err := check(t.pml, &spec, t.env.Self); err != nil {
		return c, err
	}
	r, err := t.roster(spec.Members)
	if err != nil {
		return c, err
	}
	if err := r.checkElsewhere(t.pml, &spec); err != nil {
		t.drop(r)
		return c, err
	}
	endpoint := spec.Members.Member(spec.Rank).Endpoint
	return Comm[P]{State: State{Spec: spec, Endpoint: endpoint, Rest: rest}, roster: r}, nil
}

// Drop releases a communicator that was removed from Comms, or could not be added.
func (t *Procs[P]) Drop(c *Comm[P]) { t.drop(c.roster) }

// check says what is wrong with a communicator for the PML called name in process self.
func check(name string, spec *pml.CommSpec, self framework.Life) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: pml %s: %s", framework.ErrGroup, name, fmt.Sprintf(format, args...))
	}
	if spec.Members == nil || spec.Rank < 0 || spec.Rank >= spec.Members.Len() || spec.Members.Member(spec.Rank).Life != self {
		return refuse("rank %d is not this process", spec.Rank)
	}
	if n := spec.Members.Len(); spec.Indices != nil && len(spec.Indices) != n {
		return refuse("%d indices for %d members", len(spec.Indices), n)
	} else if spec.Elsewhere != nil && spec.Elsewhere.Len() != n {
		return refuse("%d members of %d are elsewhere or not", spec.Elsewhere.Len(), n)
	}
	return nil
}

// ID identifies the handle in this process.
func (c *State) ID() cid.EndpointID { return cid.EndpointID{Extended: c.Spec.ID, Endpoint: c.Endpoint} }

// IsWhole reports whether each process has one rank, so that a process is a member.
func (c *Comm[P]) IsWhole() bool { return c.roster.ranks == nil }

// HighestEndpoint returns the highest endpoint of all members.
func (c *Comm[P]) HighestEndpoint() uint16 { return c.roster.highest }

// MostRanks returns the number of ranks of the process that has most.
func (c *Comm[P]) MostRanks() int {
	if c.IsWhole() {
		return 1
	}
	return c.roster.most
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

// Len returns the number of members.
func (c *Comm[P]) Len() int { return c.Spec.Members.Len() }

// Proc returns the process of a rank, as it was when the communicator was made. The first call takes its card. A
// process that cannot be learned is gone.
func (c *Comm[P]) Proc(rank int) P { return c.roster.proc(rank) }

// IsProc reports whether p is the process of a rank, which is in range. It takes no card.
func (c *Comm[P]) IsProc(rank int, p P) bool { return c.roster.has(rank, p) }

// Ranks returns the ranks of a process, ascending.
func (c *Comm[P]) Ranks(p P) []int {
	r := c.roster
	first := r.firstOf(p.Base().Life)
	if first < 0 || !r.has(first, p) {
		return nil
	}
	return r.ranksOf(first)
}

// RankOf returns the rank of an endpoint of a process, or -1.
func (c *Comm[P]) RankOf(p P, endpoint uint16) int {
	rank := c.Spec.Members.Rank(pml.Member{Life: p.Base().Life, Endpoint: endpoint})
	if rank >= 0 && !c.roster.has(rank, p) { // another one has the life's place since
		return -1
	}
	return rank
}

// EndpointOf returns the endpoint of its process that a rank is.
func (c *Comm[P]) EndpointOf(rank int) uint16 {
	if c.IsWhole() {
		return 0
	}
	return c.Spec.Members.Member(rank).Endpoint
}

// Failed returns the processes that died or whose path is broken.
func (c *Comm[P]) Failed() iter.Seq[P] {
	return func(yield func(P) bool) {
		for _, all := range [...][]int{c.roster.broken, c.roster.dead} {
			for _, first := range all {
				if !yield(c.Proc(first)) {
					return
				}
			}
		}
	}
}

// Explain turns what has become of a member's process into the error of an operation with
// that member. A process that has failed takes all of its ranks along.
func (c *Comm[P]) Explain(err error, rank int) error {
	f, failed := err.(*Failed)
	switch {
	case !failed:
		return err
	case c.IsWhole():
		return pml.ProcFailed(c.Spec.Members, []int{rank}, f.Reason)
	}
	return pml.ProcFailed(c.Spec.Members, slices.Clone(c.roster.ranksOf(c.roster.first(rank))), f.Reason)
}

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

// Deliver copies the payload of a message into the buffer of its receive, as far as it fits.
// Otherwise the error is Truncated's.
func Deliver(buf pml.Buffer, payload []byte) (err error) {
	if got, room := int64(len(payload)), buf.Len(); got > room {
		err = Truncated(got, room)
		payload = payload[:room]
	}
	if l := buf.Layout(); l != nil {
		l.Unpack(buf.Bytes, payload, 0)
	} else {
		copy(buf.Bytes, payload)
	}
	return err
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
		if err, hasEnded := c.roster.ended[c.roster.first(rank)]; hasEnded {
			return c.Explain(err, rank)
		}
		return nil
	}
	return c.anyEnds(plane)
}

// anyEnds returns the error that ends receives from any source, or nil. The death of a member suspends them, and the
// caller of Suspend may not have been notified yet. A broken path ends them.
func (c *Comm[P]) anyEnds(plane pml.Plane) error {
	if broken := c.roster.broken; len(broken) > 0 {
		return fmt.Errorf("%w: %w", framework.ErrProcFailedPending, c.Explain(c.roster.ended[broken[0]], broken[0]))
	}
	deaths := len(c.roster.dead)
	if deaths > 0 && (c.Suspended[plane] != nil || c.settled[plane] != deaths) {
		return nil
	}
	return c.alone()
}

// SetSuspended stores the reason of a suspension.
func (c *Comm[P]) SetSuspended(plane pml.Plane, why error) {
	c.Suspended[plane] = why
	c.settled[plane] = len(c.roster.dead)
}

// alone returns why no message of another member comes: all of them are gone. nil: one may.
func (c *Comm[P]) alone() error {
	own := c.roster.first(c.Spec.Rank)
	if !c.IsWhole() && len(c.roster.ranksOf(own)) > 1 {
		return nil
	}
	rank, err := c.roster.othersEnd(own)
	if err == nil {
		return nil
	}
	return c.Explain(err, rank)
}

// Ends returns the error with which an operation with a member (pml.AnySource: a receive
// from any) ends when nothing comes of process p any more. nil: it goes on.
func (c *Comm[P]) Ends(rank int, plane pml.Plane, p P) error {
	known := p.Base()
	switch {
	case rank != pml.AnySource:
		if c.IsProc(rank, p) {
			return c.Explain(known.Err, rank)
		}
	case c.Has(p):
		return c.anyEnds(plane)
	}
	return nil
}

// Has reports whether a process has a rank.
func (c *Comm[P]) Has(p P) bool {
	first := c.roster.firstOf(p.Base().Life)
	return first >= 0 && c.roster.has(first, p)
}

// Comms are the communicators of a module. C is the PML's type for one.
type Comms[C any] struct {
	ByIndex []*C // by the index of this process's id, nil where there is none
	ByID    map[cid.EndpointID]*C
	Table   *cid.Table
	Tombs   *cid.Tombstones // of those that were removed
	refused []refusal
}

// refusal is a call of Refuse.
type refusal struct {
	span     cid.Span
	endpoint int
}

func (r refusal) covers(id cid.EndpointID) bool {
	return r.span.Has(id.Extended) && (r.endpoint == pml.AllEndpoints || r.endpoint == int(id.Endpoint))
}

// NewComms returns an empty set, whose indices come from table.
func NewComms[C any](table *cid.Table) Comms[C] {
	return Comms[C]{ByID: map[cid.EndpointID]*C{}, Table: table, Tombs: cid.NewTombstones(tombstones)}
}

// Refuse is pml.Module's. The result reports whether it concerns a handle.
func (t *Comms[C]) Refuse(s cid.Span, endpoint int) (covers func(id cid.EndpointID) bool) {
	r := refusal{s, endpoint}
	if s != (cid.Span{}) {
		t.refused = append(t.refused, r)
	}
	return r.covers
}

// Over reports whether a communicator that is not here will not come either.
func (t *Comms[C]) Over(id cid.EndpointID) bool { return t.Refused(id) || t.Tombs.Has(id) }

// Refused reports whether an id is of those that Refuse was told.
func (t *Comms[C]) Refused(id cid.EndpointID) bool {
	return slices.ContainsFunc(t.refused, func(r refusal) bool { return r.covers(id) })
}

// tombstones is how many closed communicators are remembered (16 bytes each): enough for
// messages that are late by as many closes.
const tombstones = 1 << 16

// Add adds the handle c, whose State is s. Neither its id nor its index is that of another
// one.
func (t *Comms[C]) Add(name string, s *State, c *C) error {
	id, index := s.ID(), int(s.Spec.Local.Index())
	if t.ByID[id] != nil {
		return fmt.Errorf("%w: pml %s: communicator %v exists, for endpoint %d", framework.ErrGroup, name, id.Extended, id.Endpoint)
	}
	for len(t.ByIndex) <= index {
		t.ByIndex = append(t.ByIndex, make([]*C, max(64, len(t.ByIndex)))...)
	}
	if t.ByIndex[index] != nil {
		return fmt.Errorf("%w: pml %s: communicator %v, endpoint %d: another handle has index %d: take one from the table for each endpoint",
			framework.ErrGroup, name, id.Extended, id.Endpoint, index)
	}
	t.ByID[id], t.ByIndex[index] = c, c
	return nil
}

// Remove takes a handle out. Its index stays quarantined in Table until Table.Rested.
func (t *Comms[C]) Remove(s *State) {
	id := s.ID()
	delete(t.ByID, id)
	t.ByIndex[s.Spec.Local.Index()] = nil
	t.Tombs.Add(id)
}
