package base

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Proc is the state of one incarnation of a process, possibly this one, that every PML has.
type Proc struct {
	Life framework.Life
	// HasCard is set once the business card has come.
	HasCard bool
	Stats pml.PeerStats
	Exit
	// Err is the error of sends to the process, and, if it is Gone, of receives from it. It
	// is nil while the process is present.
	Err error
	// isDropped is set by Procs.Remove.
	isDropped bool
	owner     procOwner
}

// procOwner is a Procs of any type.
type procOwner interface {
	procName(framework.Life) string
	notifyUnreachable(life framework.Life, why error)
	handleEnd(p *Proc)
}

// String returns the name of the process in its job.
func (p *Proc) String() string { return p.owner.procName(p.Life) }

// Process is a PML's process type. It embeds a Proc.
type Process interface {
	comparable
	Base() *Proc
	// Fail ends all pending operations with the process, if End returns true.
	Fail(err error)
}

// Base implements Process.
func (p *Proc) Base() *Proc { return p }

// MarkEnded marks the process as ended. err is a *Failed if the bootstrap has reported a failure, wraps
// framework.ErrPeerClosed if the process has left, and otherwise is the error of its path. End
// returns false if the end was known. After true, the caller ends all pending operations with the
// process.
func (p *Proc) MarkEnded(err error) bool {
	why := Unreachable
	if _, died := err.(*ProcFailure); died {
		why = ProcFailed
	} else if errors.Is(err, framework.ErrPeerClosed) {
		why = Left
	}
	if !p.SetEnded(why) {
		return false
	}
	p.Err = err
	if why == Unreachable && !errors.Is(err, framework.ErrPeerDisconnected) {
		p.owner.notifyUnreachable(p.Life, err)
	}
	p.owner.handleEnd(p)
	return true
}

// ProcFailure is the Err of a process that the bootstrap has reported as failed.
type ProcFailure struct{ Reason string }

func (e *ProcFailure) Error() string { return "process failed: " + e.Reason }

// Is reports whether target is framework.ErrProcFailed.
func (e *ProcFailure) Is(target error) bool { return target == framework.ErrProcFailed }

// Procs are the processes that a module knows.
type Procs[P Process] struct {
	// Lives has the incarnations of which messages may come, by nonce.
	Lives map[uint64]P
	// present has the incarnation of each process with the latest card.
	present map[framework.ProcID]P
	// ends has the last incarnations that the bootstrap has reported as ended.
	ends map[framework.ProcID]endRecord
	// rosters has the newest roster of each Members in use, and inUse has all rosters.
	rosters map[pml.Members]*roster[P]
	inUse   map[*roster[P]]struct{}
	dropped dropped
	// changes counts ends and replacements of processes.
	changes  uint64
	pml      string
	env      *pml.Env
	newProc  func(Proc) P
	takeCard func(framework.Life, framework.Card) error
	// learning is the incarnation whose card is taken at its first use.
	learning framework.Life
}

// endRecord is the end of an incarnation, whose card may come later.
type endRecord struct {
	nonce uint64
	how   error
}

func (e endRecord) is(life framework.Life) bool { return e.how != nil && e.nonce == life.Nonce }

// NewProcs returns an empty set for the PML with this name and environment. make creates the PML's process
// type. take stores a card, and calls Present.
func NewProcs[P Process](name string, env *pml.Env, make func(Proc) P, take func(framework.Life, framework.Card) error) Procs[P] {
	return Procs[P]{Lives: map[uint64]P{}, present: map[framework.ProcID]P{}, ends: map[framework.ProcID]endRecord{}, rosters: map[pml.Members]*roster[P]{}, inUse: map[*roster[P]]struct{}{}, pml: name, env: env, newProc: make, takeCard: take}
}

func (t *Procs[P]) makeProc(life framework.Life) P {
	return t.newProc(Proc{Life: life, Stats: pml.PeerStats{Peer: life}, owner: t})
}

// name implements owner.
func (t *Procs[P]) procName(life framework.Life) string { return t.env.Worlds.Proc(life.ID).String() }

// notifyUnreachable implements owner.
func (t *Procs[P]) notifyUnreachable(life framework.Life, why error) {
	if t.env.GiveUp != nil {
		t.env.GiveUp(life, why)
	}
}

// ended implements owner.
func (t *Procs[P]) handleEnd(p *Proc) {
	for r := range t.inUse {
		r.recordProcEnd(p)
	}
	if !p.isDropped {
		t.reportDroppable(p.Life)
	}
}

// Find returns an incarnation, or the zero P.
func (t *Procs[P]) Find(life framework.Life) (p P) {
	if q, ok := t.Lives[life.Nonce]; ok && q.Base().Life == life {
		p = q
	}
	return p
}

// Get returns an incarnation, and creates it if there is none. Its card may not have come. If another
// process with a card has the same nonce, the result is not in Lives.
func (t *Procs[P]) Get(life framework.Life) P {
	var none P
	p := t.Find(life)
	if p == none {
		p = t.makeProc(life)
		if t.dropped.contains(life) { // It stays outside Lives.
			p.Base().isDropped = true
			p.Fail(t.ReplacedError(life))
			return p
		}
		if q := t.Lives[life.Nonce]; q == none || !q.Base().HasCard {
			t.Lives[life.Nonce] = p
		}
	}
	return p
}

// Member returns the process of a communicator's member, and takes its card if necessary. A member without a card
// has ended.
func (t *Procs[P]) Member(life framework.Life) P {
	if t.isKnown(life) {
		return t.Find(life)
	}
	if how := t.endOf(life); how != nil {
		return t.endedMember(life, how)
	}
	if err := t.learn(life); err != nil {
		return t.endedMember(life, t.transportError(life, err))
	}
	return t.Find(life)
}

// learn takes the card of an incarnation at its first use.
func (t *Procs[P]) learn(life framework.Life) error {
	var card framework.Card
	ok := false
	if t.env.Cards != nil {
		card, ok = t.env.Cards.Card(life)
	}
	if !ok {
		return fmt.Errorf("%w: its business card has not come", framework.ErrTransport)
	}
	t.learning = life
	err := t.takeCard(life, card)
	t.learning = framework.Life{}
	if err == nil && !t.isKnown(life) {
		err = fmt.Errorf("%w: another process has its nonce", framework.ErrTransport)
	}
	return err
}

// LearnCard takes the card of a process that has sent a message before its first use, if the card has come.
func (t *Procs[P]) LearnCard(p P) {
	if known := p.Base(); !known.HasCard && known.Err == nil && t.Find(known.Life) == p {
		_ = t.learn(known.Life) // Otherwise the process stays unknown.
	}
}

// ByNonce returns the process with a nonce, or the zero P if no card has come. It takes the card of a process at its
// first use.
func (t *Procs[P]) ByNonce(nonce uint64) (p P) {
	if q, ok := t.Lives[nonce]; ok || t.env.Cards == nil {
		return q
	}
	if life, ok := t.env.Cards.Find(nonce); ok && t.endOf(life) == nil && t.learn(life) == nil {
		p = t.Find(life)
	}
	return p
}

// StatelessProc returns a process without state, and its card, for queries that need no state.
func (t *Procs[P]) StatelessProc(life framework.Life) (p P, card framework.Card, ok bool) {
	if t.env.Cards != nil {
		card, ok = t.env.Cards.Card(life)
	}
	if ok {
		p = t.makeProc(life)
	}
	return p, card, ok
}

// endEarlier ends the earlier incarnations of a process that are unused members of communicators.
func (t *Procs[P]) endEarlier(life framework.Life) {
	earlier := map[framework.Life]struct{}{}
	for r := range t.inUse {
		if rank := r.members.First(life.ID); rank >= 0 && r.members.Member(rank).Life != life {
			earlier[r.members.Member(rank).Life] = struct{}{}
		}
	}
	var none P
	for old := range earlier {
		t.changes++
		if t.Find(old) == none {
			t.makeProc(old).Fail(t.ReplacedError(old))
		}
	}
}

// isKnown reports whether the card of a process has come.
func (t *Procs[P]) isKnown(life framework.Life) bool {
	var none P
	p := t.Find(life)
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
	old, e := t.present[known.Life.ID], t.ends[known.Life.ID]
	late := e.is(known.Life)
	if !late || old == before {
		t.present[known.Life.ID] = p
		if old != p {
			before = old
		}
		if known.Life != t.learning {
			t.endEarlier(known.Life)
		}
	}
	if late {
		p.Fail(e.how)
	}
	return before
}

// IsPresent reports whether p is the latest incarnation of its process.
func (t *Procs[P]) IsPresent(p P) bool { return t.present[p.Base().Life.ID] == p }

// Forget removes an ended incarnation that has a successor.
func (t *Procs[P]) Forget(p P) {
	t.changes++
	if nonce := p.Base().Life.Nonce; t.Lives[nonce] == p {
		delete(t.Lives, nonce)
	}
}

// EndedIncarnations returns the incarnations of other processes that have left or are unreachable, and have not
// failed.
func (t *Procs[P]) EndedIncarnations() (all []framework.Life) {
	for _, p := range t.Lives {
		if known := p.Base(); known.HasEnded() && known.Presence() != ProcFailed && known.Life != t.env.Self {
			all = append(all, known.Life)
		}
	}
	return all
}

// Renew ends and removes p, so that its incarnation can be learned again after a disconnect. p is the
// zero P if the process is not known. For a process that has failed, Renew does nothing and returns
// false.
func (t *Procs[P]) Renew(life framework.Life, p P) bool {
	var none P
	if p != none && p.Base().Presence() == ProcFailed {
		return false
	}
	t.changes++
	if e := t.ends[life.ID]; e.is(life) && errors.Is(e.how, framework.ErrPeerDisconnected) {
		delete(t.ends, life.ID)
	}
	if p == none && !t.InUse(life) {
		return true
	}
	if p == none { // Communicators have the incarnation, and have not used it.
		p = t.makeProc(life)
	}
	p.Fail(t.transportError(life, fmt.Errorf("%w: a communicator made since begins afresh", framework.ErrPeerDisconnected)))
	for r := range t.inUse {
		r.setProc(life, p)
	}
	t.Forget(p)
	if t.present[life.ID] == p {
		delete(t.present, life.ID)
	}
	return true
}

// HandleFailure handles a failure report of the bootstrap. Messages of the process that have arrived must have
// been handled.
func (t *Procs[P]) HandleFailure(life framework.Life, reason string) { t.handleEndReport(life, &ProcFailure{reason}) }

// HandleEnd implements pml.Module's PeerGone. Messages of the process that have arrived must have been handled.
func (t *Procs[P]) HandleEnd(life framework.Life, how error) {
	t.handleEndReport(life, t.transportError(life, how))
}

func (t *Procs[P]) handleEndReport(life framework.Life, how error) {
	var none P
	p, before := t.Find(life), t.ends[life.ID]
	t.changes++
	t.ends[life.ID] = endRecord{life.Nonce, how}
	switch {
	case p != none:
		p.Fail(how)
	case !t.InUse(life), before.is(life) && isLeft(before.how):
	case isLeft(how): // Ends pending operations without keeping state.
		t.makeProc(life).Fail(how)
	default:
		t.endedMember(life, how)
	}
}

// ReplacedError returns the error of pending operations with an incarnation that a newer one has replaced.
func (t *Procs[P]) ReplacedError(life framework.Life) error {
	return t.transportError(life, framework.ErrPeerClosed)
}

// NotMemberError returns the error of an operation with a process that has refused the communicator.
func (t *Procs[P]) NotMemberError(life framework.Life) error {
	return t.transportError(life, framework.ErrNotMember)
}

// DroppedError returns the error of a synchronous send whose message was dropped by its receiver.
func (t *Procs[P]) DroppedError(life framework.Life) error {
	return t.transportError(life, framework.ErrCommClosed)
}

func (t *Procs[P]) transportError(life framework.Life, err error) error {
	return &framework.TransportError{Component: "pml " + t.pml, Peer: t.env.Worlds.Proc(life.ID).String(), Op: "exchange", Err: err}
}

// Stats returns the statistics of all processes that messages were exchanged with.
func (t *Procs[P]) Stats() []pml.PeerStats {
	var all []pml.PeerStats
	for _, p := range t.Lives {
		if s := p.Base().Stats; s.Sent+s.Received+s.Dropped > 0 {
			all = append(all, s)
		}
	}
	return all
}
