package base

import (
	"fmt"
	"iter"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Comm is the state of a communicator that every PML has. P is the PML's process type.
type Comm[P Process] struct {
	State
	roster *roster[P]
}

// State is the part of a Comm that does not depend on processes.
type State struct {
	Spec pml.CommSpec
	// Endpoint is the endpoint of this process that the handle belongs to.
	Endpoint uint16
	// Pending counts incomplete operations and claimed messages.
	Pending int
	Closing cid.CommClose
	Aborted [pml.Planes]error
	// Suspended has the reasons of pml.Comm's Suspend.
	Suspended [pml.Planes]error
	// suspendedFailures is the number of failed processes at the last SetSuspended.
	suspendedFailures [pml.Planes]int
}

// Comm returns a new communicator, or an error if the spec is invalid. The card of every member must have come
// (Learn, or pml.Env's Cards). Drop releases it.
func (t *Procs[P]) Comm(spec pml.CommSpec, closing cid.CommClose) (c Comm[P], err error) {
	if err := check(t.pmlName, &spec, t.env.Self); err != nil {
		return c, err
	}
	r, err := t.roster(spec.Members)
	if err != nil {
		return c, err
	}
	if err := r.checkElsewhere(t.pmlName, &spec); err != nil {
		t.releaseRoster(r)
		return c, err
	}
	endpoint := spec.Members.Member(spec.Rank).Endpoint
	return Comm[P]{State: State{Spec: spec, Endpoint: endpoint, Closing: closing}, roster: r}, nil
}

// Drop releases a communicator that was removed from Comms or could not be added.
func (t *Procs[P]) Drop(c *Comm[P]) { t.releaseRoster(c.roster) }

// check returns an error if the spec is invalid for process self.
func check(name string, spec *pml.CommSpec, self framework.Incarnation) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: pml %s: %s", framework.ErrGroup, name, fmt.Sprintf(format, args...))
	}
	if spec.Members == nil || spec.Rank < 0 || spec.Rank >= spec.Members.Len() || spec.Members.Member(spec.Rank).Incarnation != self {
		return refuse("rank %d is not this process", spec.Rank)
	}
	if n := spec.Members.Len(); spec.Indices != nil && len(spec.Indices) != n {
		return refuse("%d indices for %d members", len(spec.Indices), n)
	} else if spec.Elsewhere != nil && spec.Elsewhere.Len() != n {
		return refuse("elsewhere is a set of %d ranks, for %d members", spec.Elsewhere.Len(), n)
	}
	return nil
}

// ID returns the id of the handle in this process.
func (c *State) ID() cid.EndpointID { return cid.EndpointID{Extended: c.Spec.ID, Endpoint: c.Endpoint} }

// IsWhole reports whether each process has one rank.
func (c *Comm[P]) IsWhole() bool { return c.roster.ranksByProc == nil }

// HighestEndpoint returns the highest endpoint of all members.
func (c *Comm[P]) HighestEndpoint() uint16 { return c.roster.highestEndpoint }

// MostRanks returns the largest number of ranks of one process.
func (c *Comm[P]) MostRanks() int {
	if c.IsWhole() {
		return 1
	}
	return c.roster.maxRanks
}

// Exchange returns the exchange of ids with a member, preset with the id from the
// communicator's creation if there is one.
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

// Proc returns the process of a rank, in the incarnation at the communicator's creation. The first call takes its card. A
// process without a card has ended.
func (c *Comm[P]) Proc(rank int) P { return c.roster.proc(rank) }

// IsProc reports whether p is the process of a rank, which is in range. It takes no card.
func (c *Comm[P]) IsProc(rank int, p P) bool { return c.roster.isProc(rank, p) }

// Ranks returns the ranks of a process, ascending.
func (c *Comm[P]) Ranks(p P) []int {
	r := c.roster
	first := r.firstRankOf(p.Base().Incarnation)
	if first < 0 || !r.isProc(first, p) {
		return nil
	}
	return r.ranksOf(first)
}

// RankOf returns the rank of an endpoint of a process, or -1.
func (c *Comm[P]) RankOf(p P, endpoint uint16) int {
	rank := c.Spec.Members.Rank(pml.Member{Incarnation: p.Base().Incarnation, Endpoint: endpoint})
	if rank >= 0 && !c.roster.isProc(rank, p) { // A newer process has this incarnation's state.
		return -1
	}
	return rank
}

// EndpointOf returns the endpoint of a rank within its process.
func (c *Comm[P]) EndpointOf(rank int) uint16 {
	if c.IsWhole() {
		return 0
	}
	return c.Spec.Members.Member(rank).Endpoint
}

// Failed returns the members that have failed or are unreachable.
func (c *Comm[P]) Failed() iter.Seq[P] {
	return func(yield func(P) bool) {
		for _, all := range [...][]int{c.roster.unreachableRanks, c.roster.failedRanks} {
			for _, first := range all {
				if !yield(c.Proc(first)) {
					return
				}
			}
		}
	}
}

// MemberError returns the error of an operation with a member whose process has ended with err. The failure of
// a process is that of all of its ranks.
func (c *Comm[P]) MemberError(err error, rank int) error {
	f, failed := err.(*framework.PeerFailure)
	switch {
	case !failed:
		return err
	case c.IsWhole():
		return pml.ProcFailed(c.Spec.Members, []int{rank}, f.Reason)
	}
	return pml.ProcFailed(c.Spec.Members, slices.Clone(c.roster.ranksOf(c.roster.firstRank(rank))), f.Reason)
}

// IsClosed reports whether the user has closed the communicator.
func (c *State) IsClosed() bool { return c.Closing.Stage() != cid.StageOpen }

// StartError returns the error of new operations on a plane, or nil.
func (c *State) StartError(plane pml.Plane) error {
	if c.IsClosed() {
		return framework.ErrClosed
	}
	return c.Aborted[plane]
}

// WithdrawnStatus returns the status of a withdrawn operation. It is canceled, or has the error of the
// plane's abort.
func (c *State) WithdrawnStatus(plane pml.Plane) pml.Status {
	st := pml.NoMessage()
	st.Err = c.Aborted[plane]
	st.Canceled = st.Err == nil
	return st
}

// OperationError returns the error of an operation on a plane that fails with err. After an abort it is the
// abort's error, because members leave after they are notified of a failure, and the error should
// name the failed member.
func (c *State) OperationError(plane pml.Plane, err error) error {
	if aborted := c.Aborted[plane]; aborted != nil {
		return aborted
	}
	return err
}

// Truncated returns the error of a receive with too short a buffer.
func Truncated(got, room int64) error {
	return fmt.Errorf("%w: message of %d bytes, buffer of %d", framework.ErrTruncate, got, room)
}

// Deliver copies the payload of a message into the buffer of its receive, as much as fits. It returns
// Truncated's error if the buffer is too short.
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

// FinishOperation counts a completed operation, and reports whether it was the last one of a closed
// communicator.
func (c *State) FinishOperation() (ends bool) {
	c.Pending--
	return c.Pending == 0 && c.Closing.Stage() == cid.StageEnding
}

// SourceError returns the reason why no message can come from a member, or for pml.AnySource from
// any member, or nil. Members that have left do not fail receives from any source, unless all other
// members have ended.
func (c *Comm[P]) SourceError(rank int, plane pml.Plane) error {
	if err := c.Aborted[plane]; err != nil {
		return err
	}
	if rank != pml.AnySource {
		if err, hasEnded := c.roster.endErrs[c.roster.firstRank(rank)]; hasEnded {
			return c.MemberError(err, rank)
		}
		return nil
	}
	return c.anySourceError(plane)
}

// anySourceError returns the error of receives from any source, or nil. The failure of a member suspends them, and
// Suspend may not have been called yet. An unreachable member fails them.
func (c *Comm[P]) anySourceError(plane pml.Plane) error {
	if broken := c.roster.unreachableRanks; len(broken) > 0 {
		return fmt.Errorf("%w: %w", framework.ErrProcFailedPending, c.MemberError(c.roster.endErrs[broken[0]], broken[0]))
	}
	deaths := len(c.roster.failedRanks)
	if deaths > 0 && (c.Suspended[plane] != nil || c.suspendedFailures[plane] != deaths) {
		return nil
	}
	return c.othersError()
}

// SetSuspended stores the reason of a suspension, nil for none.
func (c *Comm[P]) SetSuspended(plane pml.Plane, why error) {
	c.Suspended[plane] = why
	c.suspendedFailures[plane] = len(c.roster.failedRanks)
}

// othersError returns an error if all other members have ended, otherwise nil.
func (c *Comm[P]) othersError() error {
	own := c.roster.firstRank(c.Spec.Rank)
	if !c.IsWhole() && len(c.roster.ranksOf(own)) > 1 {
		return nil
	}
	rank, err := c.roster.othersError(own)
	if err == nil {
		return nil
	}
	return c.MemberError(err, rank)
}

// EndError returns the error of an operation with a member (or a receive from pml.AnySource) after the end of process p,
// nil if the operation continues.
func (c *Comm[P]) EndError(rank int, plane pml.Plane, p P) error {
	known := p.Base()
	switch {
	case rank != pml.AnySource:
		if c.IsProc(rank, p) {
			return c.MemberError(known.Err, rank)
		}
	case c.HasProc(p):
		return c.anySourceError(plane)
	}
	return nil
}

// HasProc reports whether a process has a rank.
func (c *Comm[P]) HasProc(p P) bool {
	first := c.roster.firstRankOf(p.Base().Incarnation)
	return first >= 0 && c.roster.isProc(first, p)
}

// Comms are the communicators of a module. C is the PML's communicator type.
type Comms[C any] struct {
	// ByIndex is indexed by this process's index of the communicator, with nil for unused ones.
	ByIndex []*C
	ByID    map[cid.EndpointID]*C
	Table   *cid.Table
	// Tombs has the ids of removed handles.
	Tombs   *cid.Tombstones
	refused []refusal
}

// refusal has the arguments of Refuse.
type refusal struct {
	span     cid.Span
	endpoint int
}

func (r refusal) covers(id cid.EndpointID) bool {
	return r.span.Has(id.Extended) && (r.endpoint == pml.AllEndpoints || r.endpoint == int(id.Endpoint))
}

// NewComms returns an empty set with the index table of the module.
func NewComms[C any](table *cid.Table) Comms[C] {
	return Comms[C]{ByID: map[cid.EndpointID]*C{}, Table: table, Tombs: cid.NewTombstones(maxTombstones)}
}

// Refuse implements pml.Module. covers reports whether the call concerns a handle.
func (t *Comms[C]) Refuse(s cid.Span, endpoint int) (covers func(id cid.EndpointID) bool) {
	r := refusal{s, endpoint}
	if s != (cid.Span{}) {
		t.refused = append(t.refused, r)
	}
	return r.covers
}

// IsEnded reports whether a handle that does not exist here was closed or refused.
func (t *Comms[C]) IsEnded(id cid.EndpointID) bool { return t.IsRefused(id) || t.Tombs.Has(id) }

// IsRefused reports whether a call of Refuse covers a handle.
func (t *Comms[C]) IsRefused(id cid.EndpointID) bool {
	return slices.ContainsFunc(t.refused, func(r refusal) bool { return r.covers(id) })
}

// maxTombstones is the number of closed handles on record, of 16 bytes each. A message that is
// later than that many closes becomes an early arrival.
const maxTombstones = 1 << 16

// Add adds the handle c with State s. It fails if another handle has its id or index.
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

// Remove removes a handle. Its index stays quarantined until Table.EndQuarantine.
func (t *Comms[C]) Remove(s *State) {
	id := s.ID()
	delete(t.ByID, id)
	t.ByIndex[s.Spec.Local.Index()] = nil
	t.Tombs.Add(id)
}
