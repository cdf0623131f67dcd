package base

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Proc is what every PML knows of another process, or of its own, in one life.
type Proc struct {
	Life  framework.Life
	Known bool // its card has come
	Stats pml.PeerStats
	Exit
	// Err says why nothing can be sent to the process any more, and, if it is Gone,
	// that nothing comes of it either. nil: it is present.
	Err       error
	isDropped bool  // Procs.Remove has removed it.
	all       owner // The Procs.
}

// owner is the set of processes of a process.
type owner interface {
	name(framework.Life) string
	gaveUp(life framework.Life, why error)
	ended(p *Proc)
}

// String names the process in its job.
func (p *Proc) String() string { return p.all.name(p.Life) }

// Process is a PML's own type for a process: it embeds a Proc.
type Process interface {
	comparable
	Base() *Proc
	// Fail ends all that is pending with the process, if End says so.
	Fail(err error)
}

// Base implements Process.
func (p *Proc) Base() *Proc { return p }

// End says that nothing comes of the process any more, and why: a *Failed if the
// bootstrap has said so, an error that wraps framework.ErrPeerClosed if it has left in
// good order, or else what has become of the path to it. It reports whether that is
// news: then all that is pending with the process ends.
func (p *Proc) End(err error) bool {
	why := Broken
	if _, died := err.(*Failed); died {
		why = Died
	} else if errors.Is(err, framework.ErrPeerClosed) {
		why = Departed
	}
	if !p.Go(why) {
		return false
	}
	p.Err = err
	if why == Broken && !errors.Is(err, framework.ErrGivenUp) {
		p.all.gaveUp(p.Life, err)
	}
	p.all.ended(p)
	return true
}

// Failed is the Err of a process that the bootstrap has reported dead.
type Failed struct{ Reason string }

func (e *Failed) Error() string { return "process failed: " + e.Reason }

// Is reports whether target is framework.ErrProcFailed.
func (e *Failed) Is(target error) bool { return target == framework.ErrProcFailed }

// Procs are the processes that a module knows.
type Procs[P Process] struct {
	// Lives are those of whom something may still come, by nonce.
	Lives   map[uint64]P
	present map[framework.ProcID]P     // whose card came last
	ends    map[framework.ProcID]ended // The last incarnations that the bootstrap has reported gone.
	rosters map[pml.Members]*roster[P] // The newest of each Members that is in use.
	inUse   map[*roster[P]]struct{}    // All rosters.
	dropped dropped
	changes uint64 // Ends and replacements of processes, so far.
	pml     string
	env     *pml.Env
	make    func(Proc) P
	take    func(framework.Life, framework.Card) error
	// learning is the incarnation whose card is taken at its first use.
	learning framework.Life
}

// ended is a life that is over, of which the card may come later.
type ended struct {
	nonce uint64
	how   error
}

func (e ended) is(life framework.Life) bool { return e.how != nil && e.nonce == life.Nonce }

// NewProcs returns an empty set for the PML called name, which was opened in env, and
// whose processes are made by make. take takes a card, and calls Present.
func NewProcs[P Process](name string, env *pml.Env, make func(Proc) P, take func(framework.Life, framework.Card) error) Procs[P] {
	return Procs[P]{Lives: map[uint64]P{}, present: map[framework.ProcID]P{}, ends: map[framework.ProcID]ended{}, rosters: map[pml.Members]*roster[P]{}, inUse: map[*roster[P]]struct{}{}, pml: name, env: env, make: make, take: take}
}

func (t *Procs[P]) new(life framework.Life) P {
	return t.make(Proc{Life: life, Stats: pml.PeerStats{Peer: life}, all: t})
}

// name implements owner.
func (t *Procs[P]) name(life framework.Life) string { return t.env.Worlds.Proc(life.ID).String() }

// gaveUp implements owner.
func (t *Procs[P]) gaveUp(life framework.Life, why error) {
	if t.env.GiveUp != nil {
		t.env.GiveUp(life, why)
	}
}

// ended implements owner.
func (t *Procs[P]) ended(p *Proc) {
	for r := range t.inUse {
		r.end(p)
	}
	if !p.isDropped {
		t.offerDrop(p.Life)
	}
}

// Find returns a process, or the zero P.
func (t *Procs[P]) Find(life framework.Life) (p P) {
	if q, ok := t.Lives[life.Nonce]; ok && q.Base().Life == life {
		p = q
	}
	return p
}

// Get returns a process, which may be one whose card has not come yet. One that says it
// has the nonce of a process whose card has come takes nobody's place: it is not among
// Lives.
func (t *Procs[P]) Get(life framework.Life) P {
	var none P
	p := t.Find(life)
	if p == none {
		p = t.new(life)
		if t.dropped.contains(life) { // It stays outside Lives.
			p.Base().isDropped = true
			p.Fail(t.Ended(life))
			return p
		}
		if q := t.Lives[life.Nonce]; q == none || !q.Base().Known {
			t.Lives[life.Nonce] = p
		}
	}
	return p
}

// Member returns the process of a communicator's member, and learns its card if that has not come. A member that cannot be
// learnt is gone.
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
	err := t.take(life, card)
	t.learning = framework.Life{}
	if err == nil && !t.isKnown(life) {
		err = fmt.Errorf("%w: another process has its nonce", framework.ErrTransport)
	}
	return err
}

// Meet takes the card of a process that has sent something before its first use, if the card has come.
func (t *Procs[P]) Meet(p P) {
	if known := p.Base(); !known.Known && known.Err == nil && t.Find(known.Life) == p {
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

// Unlearned returns a process whose card has come and that has no state, for a question that needs none.
func (t *Procs[P]) Unlearned(life framework.Life) (p P, card framework.Card, ok bool) {
	if t.env.Cards != nil {
		card, ok = t.env.Cards.Card(life)
	}
	if ok {
		p = t.new(life)
	}
	return p, card, ok
}

// endEarlier ends the earlier incarnations of a process that communicators have and have not used.
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
			t.new(old).Fail(t.Ended(old))
		}
	}
}

// isKnown reports whether the card of a process has come.
func (t *Procs[P]) isKnown(life framework.Life) bool {
	var none P
	p := t.Find(life)
	return p != none && p.Base().Known
}

// Present says that the card of p has come. It returns the process's life of before, if
// that is another one, or the zero P. The card of a life that is known to be over may be
// late: a newer one of the process stays present.
func (t *Procs[P]) Present(p P) (before P) {
	known := p.Base()
	known.Known = true
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

// IsPresent reports whether p has no newer life.
func (t *Procs[P]) IsPresent(p P) bool { return t.present[p.Base().Life.ID] == p }

// Forget says that nothing comes of p any more, and that it has a newer life.
func (t *Procs[P]) Forget(p P) {
	t.changes++
	if nonce := p.Base().Life.Nonce; t.Lives[nonce] == p {
		delete(t.Lives, nonce)
	}
}

// Over returns the lives of other processes that have not failed, and with which nothing is
// exchanged any more.
func (t *Procs[P]) Over() (all []framework.Life) {
	for _, p := range t.Lives {
		if known := p.Base(); known.Gone() && known.Presence() != Died && known.Life != t.env.Self {
			all = append(all, known.Life)
		}
	}
	return all
}

// Renew ends and forgets p, the zero P if the process is not known, whose life goes on: it
// can be learnt again, though it has been given up. It reports false, and does nothing, for a
// process that has failed.
func (t *Procs[P]) Renew(life framework.Life, p P) bool {
	var none P
	if p != none && p.Base().Presence() == Died {
		return false
	}
	t.changes++
	if e := t.ends[life.ID]; e.is(life) && errors.Is(e.how, framework.ErrGivenUp) {
		delete(t.ends, life.ID)
	}
	if p == none && !t.InUse(life) {
		return true
	}
	if p == none { // Communicators have the incarnation, and have not used it.
		p = t.new(life)
	}
	p.Fail(t.transportError(life, fmt.Errorf("%w: a communicator made since begins afresh", framework.ErrGivenUp)))
	for r := range t.inUse {
		r.keep(life, p)
	}
	t.Forget(p)
	if t.present[life.ID] == p {
		delete(t.present, life.ID)
	}
	return true
}

// Died says that the bootstrap has reported a death. What has arrived of the process
// must have been taken.
func (t *Procs[P]) Died(life framework.Life, reason string) { t.over(life, &Failed{reason}) }

// Gone is pml.Module's PeerGone. What has arrived of the process must have been taken.
func (t *Procs[P]) Gone(life framework.Life, how error) { t.over(life, t.transportError(life, how)) }

func (t *Procs[P]) over(life framework.Life, how error) {
	var none P
	p, before := t.Find(life), t.ends[life.ID]
	t.changes++
	t.ends[life.ID] = ended{life.Nonce, how}
	switch {
	case p != none:
		p.Fail(how)
	case !t.InUse(life), before.is(life) && isLeft(before.how):
	case isLeft(how): // Waiters are notified. The process has no state, and gets none.
		t.new(life).Fail(how)
	default:
		t.endedMember(life, how)
	}
}

// Ended is the error of what is pending with a life whose end only its next one tells.
func (t *Procs[P]) Ended(life framework.Life) error {
	return t.transportError(life, framework.ErrPeerClosed)
}

// NotMember is the error of an operation with a process that has refused the communicator.
func (t *Procs[P]) NotMember(life framework.Life) error {
	return t.transportError(life, framework.ErrNotMember)
}

// Dropped is the error of a synchronous send whose message the process has dropped.
func (t *Procs[P]) Dropped(life framework.Life) error {
	return t.transportError(life, framework.ErrCommClosed)
}

func (t *Procs[P]) transportError(life framework.Life, err error) error {
	return &framework.TransportError{Component: "pml " + t.pml, Peer: t.env.Worlds.Proc(life.ID).String(), Op: "exchange", Err: err}
}

// Stats returns those of all with whom something was exchanged.
func (t *Procs[P]) Stats() []pml.PeerStats {
	var all []pml.PeerStats
	for _, p := range t.Lives {
		if s := p.Base().Stats; s.Sent+s.Received+s.Dropped > 0 {
			all = append(all, s)
		}
	}
	return all
}
