package base

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Proc is the state of one incarnation of a process, possibly this one, that every PML has.
type Proc struct {
	Incarnation framework.Incarnation
	// HasCard is set once the business card has come.
	HasCard bool
	Stats   pml.PeerStats
	Exit
	// Err is the error of sends to the process, and, if it has ended, of receives from it. It
	// is nil while the process is present.
	Err error
	// isDropped is set by Procs.Remove.
	isDropped bool
	owner     procOwner
}

// procOwner is a Procs of any type.
type procOwner interface {
	procName(framework.Incarnation) string
	notifyUnreachable(incarnation framework.Incarnation, why error)
	handleEnd(p *Proc)
}

// String returns the name of the process in its job.
func (p *Proc) String() string { return p.owner.procName(p.Incarnation) }

// Process is a PML's process type. It embeds a Proc.
type Process interface {
	comparable
	Base() *Proc
	// Fail ends all pending operations with the process, if MarkEnded returns true.
	Fail(err error)
}

// Base implements Process.
func (p *Proc) Base() *Proc { return p }

// endState returns the state of a process that has ended with err (framework.PeerEvent). Other errors are those of its path.
func endState(err error) framework.PeerState {
	if _, hasFailed := err.(*framework.PeerFailure); hasFailed {
		return framework.Failed
	}
	if errors.Is(err, framework.ErrPeerClosed) {
		return framework.Left
	}
	return framework.Unreachable
}

// MarkEnded marks the process as ended by err (endState). It returns false if the end was known. After true, the caller
// ends all pending operations with the process.
func (p *Proc) MarkEnded(err error) bool {
	state := endState(err)
	if !p.SetEnded(state) {
		return false
	}
	p.Err = err
	if state == framework.Unreachable && !errors.Is(err, framework.ErrPeerDisconnected) {
		p.owner.notifyUnreachable(p.Incarnation, err)
	}
	p.owner.handleEnd(p)
	return true
}

// Procs are the processes that a module knows.
type Procs[P Process] struct {
	// Incarnations has the incarnations of which messages may come, by nonce.
	Incarnations map[uint64]P
	// presentProcs has the incarnation of each process with the latest card.
	presentProcs map[framework.ProcID]P
	// endRecords has the last incarnations that the bootstrap has reported as ended.
	endRecords map[framework.ProcID]endRecord
	// newestRosters has the newest roster of each Members in use, and inUse has all rosters.
	newestRosters       map[pml.Members]*roster[P]
	inUse               map[*roster[P]]struct{}
	droppedIncarnations dropped
	// processChanges counts ends and replacements of processes.
	processChanges uint64
	pmlName        string
	env            *pml.Env
	newProc        func(Proc) P
	takeCard       func(framework.Incarnation, framework.Card) error
	// learning is the incarnation whose card is taken at its first use.
	learning framework.Incarnation
}

// endRecord is the end of an incarnation, whose card may come later.
type endRecord struct {
	nonce  uint64
	endErr error
}

func (e endRecord) is(incarnation framework.Incarnation) bool {
	return e.endErr != nil && e.nonce == incarnation.Nonce
}

// NewProcs returns an empty set for the PML with this name and environment. make creates the PML's process
// type. take stores a card, and calls SetPresent.
func NewProcs[P Process](name string, env *pml.Env, make func(Proc) P, take func(framework.Incarnation, framework.Card) error) Procs[P] {
	return Procs[P]{Incarnations: map[uint64]P{}, presentProcs: map[framework.ProcID]P{}, endRecords: map[framework.ProcID]endRecord{}, newestRosters: map[pml.Members]*roster[P]{}, inUse: map[*roster[P]]struct{}{}, pmlName: name, env: env, newProc: make, takeCard: take}
}

func (t *Procs[P]) makeProc(incarnation framework.Incarnation) P {
	return t.newProc(Proc{Incarnation: incarnation, Stats: pml.PeerStats{Peer: incarnation}, owner: t})
}

// procName implements procOwner.
func (t *Procs[P]) procName(incarnation framework.Incarnation) string {
	return t.env.Worlds.Proc(incarnation.ID).String()
}

// notifyUnreachable implements procOwner.
func (t *Procs[P]) notifyUnreachable(incarnation framework.Incarnation, why error) {
	if t.env.Disconnect != nil {
		t.env.Disconnect(incarnation, why)
	}
}

// handleEnd implements procOwner.
func (t *Procs[P]) handleEnd(p *Proc) {
	for r := range t.inUse {
		r.recordProcEnd(p)
	}
	if !p.isDropped {
		t.reportDroppable(p.Incarnation)
	}
}

// Find returns an incarnation, or the zero P.
func (t *Procs[P]) Find(incarnation framework.Incarnation) (p P) {
	if q, ok := t.Incarnations[incarnation.Nonce]; ok && q.Base().Incarnation == incarnation {
		p = q
	}
	return p
}

// Get returns an incarnation, and creates it if there is none. Its card may not have come. If another
// process with a card has the same nonce, the result is not in Incarnations.
func (t *Procs[P]) Get(incarnation framework.Incarnation) P {
	var none P
	p := t.Find(incarnation)
	if p == none {
		p = t.makeProc(incarnation)
		if t.droppedIncarnations.contains(incarnation) { // It stays outside Incarnations.
			p.Base().isDropped = true
			p.Fail(t.ReplacedError(incarnation))
			return p
		}
		if q := t.Incarnations[incarnation.Nonce]; q == none || !q.Base().HasCard {
			t.Incarnations[incarnation.Nonce] = p
		}
	}
	return p
}

// Member returns the process of a communicator's member, and takes its card if necessary. A member without a card
// has ended.
func (t *Procs[P]) Member(incarnation framework.Incarnation) P {
	if t.isKnown(incarnation) {
		return t.Find(incarnation)
	}
	if how := t.endOf(incarnation); how != nil {
		return t.endedMember(incarnation, how)
	}
	if err := t.learn(incarnation); err != nil {
		return t.endedMember(incarnation, t.transportError(incarnation, err))
	}
	return t.Find(incarnation)
}

// learn takes the card of an incarnation at its first use.
func (t *Procs[P]) learn(incarnation framework.Incarnation) error {
	var card framework.Card
	ok := false
	if t.env.Cards != nil {
		card, ok = t.env.Cards.Card(incarnation)
	}
	if !ok {
		return fmt.Errorf("%w: its business card has not come", framework.ErrTransport)
	}
	t.learning = incarnation
	err := t.takeCard(incarnation, card)
	t.learning = framework.Incarnation{}
	if err == nil && !t.isKnown(incarnation) {
		err = fmt.Errorf("%w: another process has its nonce", framework.ErrTransport)
	}
	return err
}

// LearnCard takes the card of a process that has sent a message before its first use, if the card has come.
func (t *Procs[P]) LearnCard(p P) {
	if known := p.Base(); !known.HasCard && known.Err == nil && t.Find(known.Incarnation) == p {
		_ = t.learn(known.Incarnation) // Otherwise the process stays unknown.
	}
}

// ByNonce returns the process with a nonce, or the zero P if no card has come. It takes the card of a process at its
// first use.
func (t *Procs[P]) ByNonce(nonce uint64) (p P) {
	if q, ok := t.Incarnations[nonce]; ok || t.env.Cards == nil {
		return q
	}
	if incarnation, ok := t.env.Cards.Find(nonce); ok && t.endOf(incarnation) == nil && t.learn(incarnation) == nil {
		p = t.Find(incarnation)
	}
	return p
}

// StatelessProc returns a process without state, and its card, for queries that need no state.
func (t *Procs[P]) StatelessProc(incarnation framework.Incarnation) (p P, card framework.Card, ok bool) {
	if t.env.Cards != nil {
		card, ok = t.env.Cards.Card(incarnation)
	}
	if ok {
		p = t.makeProc(incarnation)
	}
	return p, card, ok
}

// endEarlier ends the earlier incarnations of a process that are unused members of communicators.
func (t *Procs[P]) endEarlier(incarnation framework.Incarnation) {
	earlier := map[framework.Incarnation]struct{}{}
	for r := range t.inUse {
		if rank := r.members.First(incarnation.ID); rank >= 0 && r.members.Member(rank).Incarnation != incarnation {
			earlier[r.members.Member(rank).Incarnation] = struct{}{}
		}
	}
	var none P
	for old := range earlier {
		t.processChanges++
		if t.Find(old) == none {
			t.makeProc(old).Fail(t.ReplacedError(old))
		}
	}
}

// isKnown reports whether the card of a process has come.
func (t *Procs[P]) isKnown(incarnation framework.Incarnation) bool {
	var none P
	p := t.Find(incarnation)
	return p != none && p.Base().HasCard
}

// SetPresent marks the card of p as known. It returns the earlier incarnation of the process, or the zero
// P if there is none. If p has ended, its card is late, and a newer incarnation stays
// present.
func (t *Procs[P]) SetPresent(p P) (before P) {
	known := p.Base()
	known.HasCard = true
	if known.isDropped {
		return before
	}
	old, e := t.presentProcs[known.Incarnation.ID], t.endRecords[known.Incarnation.ID]
	late := e.is(known.Incarnation)
	if !late || old == before {
		t.presentProcs[known.Incarnation.ID] = p
		if old != p {
			before = old
		}
		if known.Incarnation != t.learning {
			t.endEarlier(known.Incarnation)
		}
	}
	if late {
		p.Fail(e.endErr)
	}
	return before
}

// IsPresent reports whether p is the latest incarnation of its process.
func (t *Procs[P]) IsPresent(p P) bool { return t.presentProcs[p.Base().Incarnation.ID] == p }

// Forget removes an ended incarnation that has a successor.
func (t *Procs[P]) Forget(p P) {
	t.processChanges++
	if nonce := p.Base().Incarnation.Nonce; t.Incarnations[nonce] == p {
		delete(t.Incarnations, nonce)
	}
}

// EndedIncarnations returns the incarnations of other processes that have left or are unreachable, and have not
// failed.
func (t *Procs[P]) EndedIncarnations() (all []framework.Incarnation) {
	for _, p := range t.Incarnations {
		if known := p.Base(); known.HasEnded() && known.PeerState() != framework.Failed && known.Incarnation != t.env.Self {
			all = append(all, known.Incarnation)
		}
	}
	return all
}

// Reconnect ends and removes p, so that its incarnation can be learned again after a disconnect. p is the
// zero P if the process is not known. For a process that has failed, Reconnect does nothing and returns
// false.
func (t *Procs[P]) Reconnect(incarnation framework.Incarnation, p P) bool {
	var none P
	if p != none && p.Base().PeerState() == framework.Failed {
		return false
	}
	t.processChanges++
	if e := t.endRecords[incarnation.ID]; e.is(incarnation) && errors.Is(e.endErr, framework.ErrPeerDisconnected) {
		delete(t.endRecords, incarnation.ID)
	}
	if p == none && !t.InUse(incarnation) {
		return true
	}
	if p == none { // Communicators have the incarnation, and have not used it.
		p = t.makeProc(incarnation)
	}
	p.Fail(t.transportError(incarnation, fmt.Errorf("%w: use a communicator that was created after the reconnect", framework.ErrPeerDisconnected)))
	for r := range t.inUse {
		r.setProc(incarnation, p)
	}
	t.Forget(p)
	if t.presentProcs[incarnation.ID] == p {
		delete(t.presentProcs, incarnation.ID)
	}
	return true
}

// HandlePeerEvent handles an event of pml.Module's PeerChanged. Messages of the process that have arrived must have been
// handled.
func (t *Procs[P]) HandlePeerEvent(ev framework.PeerEvent) {
	incarnation, how := ev.Peer, ev.Err
	if ev.State != framework.Failed {
		how = t.transportError(incarnation, how)
	}
	var none P
	p, before := t.Find(incarnation), t.endRecords[incarnation.ID]
	t.processChanges++
	t.endRecords[incarnation.ID] = endRecord{incarnation.Nonce, how}
	switch {
	case p != none:
		p.Fail(how)
	case !t.InUse(incarnation), before.is(incarnation) && isLeft(before.endErr):
	case isLeft(how): // Ends pending operations without keeping state.
		t.makeProc(incarnation).Fail(how)
	default:
		t.endedMember(incarnation, how)
	}
}

// ReplacedError returns the error of pending operations with an incarnation that a newer one has replaced.
func (t *Procs[P]) ReplacedError(incarnation framework.Incarnation) error {
	return t.transportError(incarnation, framework.ErrPeerClosed)
}

// NotMemberError returns the error of an operation with a process that has refused the communicator.
func (t *Procs[P]) NotMemberError(incarnation framework.Incarnation) error {
	return t.transportError(incarnation, framework.ErrNotMember)
}

// DroppedError returns the error of a synchronous send whose message was dropped by its receiver.
func (t *Procs[P]) DroppedError(incarnation framework.Incarnation) error {
	return t.transportError(incarnation, framework.ErrCommClosed)
}

func (t *Procs[P]) transportError(incarnation framework.Incarnation, err error) error {
	return &framework.TransportError{Component: "pml " + t.pmlName, Peer: t.env.Worlds.Proc(incarnation.ID).String(), Op: "exchange", Err: err}
}

// Stats returns the statistics of all processes that messages were exchanged with.
func (t *Procs[P]) Stats() []pml.PeerStats {
	var all []pml.PeerStats
	for _, p := range t.Incarnations {
		if s := p.Base().Stats; s.Sent+s.Received+s.Dropped > 0 {
			all = append(all, s)
		}
	}
	return all
}
