package base

import "github.com/ferrympi/ferry/framework"

// Ended processes are dropped, because the ranks of a changing job only rise. A process that has ended may be removed
// when it is in no roster.

// maxDropped is the number of removed incarnations on record, for late frames and cards.
const maxDropped = 256

// dropped is a ring of the last removed incarnations.
type dropped struct {
	incarnations map[framework.Incarnation]struct{}
	// ring has the keys of incarnations in the order of removal, from next on, and zero values.
	ring [maxDropped]framework.Incarnation
	next int
}

func (d *dropped) add(incarnation framework.Incarnation) {
	if d.incarnations == nil {
		d.incarnations = map[framework.Incarnation]struct{}{}
	}
	delete(d.incarnations, d.ring[d.next])
	d.incarnations[incarnation], d.ring[d.next] = struct{}{}, incarnation
	d.next = (d.next + 1) % maxDropped
}

// contains reports whether an incarnation is on record.
func (d *dropped) contains(incarnation framework.Incarnation) bool {
	_, ok := d.incarnations[incarnation]
	return ok
}

// Remove removes the state of a process that has ended and is in no communicator. It returns the process, or the
// zero P if only its end was known. For other processes it returns false.
func (t *Procs[P]) Remove(incarnation framework.Incarnation) (p P, ok bool) {
	var none P
	if t.InUse(incarnation) || incarnation == t.env.Self {
		return none, false
	}
	if p = t.Find(incarnation); p != none {
		known := p.Base()
		if !known.HasEnded() {
			return none, false
		}
		known.isDropped = true
		delete(t.Incarnations, incarnation.Nonce)
	}
	if p != none || t.ends[incarnation.ID].is(incarnation) {
		t.dropped.add(incarnation)
		t.changes++
	}
	if q := t.present[incarnation.ID]; q != none && q.Base().Incarnation == incarnation {
		delete(t.present, incarnation.ID)
	}
	if t.ends[incarnation.ID].is(incarnation) {
		delete(t.ends, incarnation.ID)
	}
	return p, true
}

// IsDropped reports whether the process was removed. Its frames are ignored.
func (p *Proc) IsDropped() bool { return p.isDropped }

// reportDroppable reports an incarnation that Remove would remove.
func (t *Procs[P]) reportDroppable(incarnation framework.Incarnation) {
	var none P
	if t.env.Droppable == nil {
		return
	}
	if p := t.Find(incarnation); p != none && (!p.Base().HasEnded() || p.Base().isDropped) {
		return
	}
	if incarnation != t.env.Self && !t.InUse(incarnation) {
		t.env.Droppable(incarnation)
	}
}
