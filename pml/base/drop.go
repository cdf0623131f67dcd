package base

import "github.com/ferrympi/ferry/framework"

// Ended processes are dropped, because the ranks of a changing job only rise. A process that has ended may be removed
// when it is in no roster.

// maxDropped is the number of removed incarnations on record, for late frames and cards.
const maxDropped = 256

// dropped is a ring of the last removed incarnations.
type dropped struct {
	incarnations map[framework.Incarnation]struct{}
	// removalRing has the keys of incarnations in the order of removal, from nextSlot on, and zero values.
	removalRing [maxDropped]framework.Incarnation
	nextSlot    int
}

func (d *dropped) add(incarnation framework.Incarnation) {
	if d.incarnations == nil {
		d.incarnations = map[framework.Incarnation]struct{}{}
	}
	delete(d.incarnations, d.removalRing[d.nextSlot])
	d.incarnations[incarnation], d.removalRing[d.nextSlot] = struct{}{}, incarnation
	d.nextSlot = (d.nextSlot + 1) % maxDropped
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
	if p != none || t.endRecords[incarnation.ID].is(incarnation) {
		t.droppedIncarnations.add(incarnation)
		t.processChanges++
	}
	if q := t.presentProcs[incarnation.ID]; q != none && q.Base().Incarnation == incarnation {
		delete(t.presentProcs, incarnation.ID)
	}
	if t.endRecords[incarnation.ID].is(incarnation) {
		delete(t.endRecords, incarnation.ID)
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
