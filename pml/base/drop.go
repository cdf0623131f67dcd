package base

import "github.com/ferrympi/ferry/framework"

// Ended processes are dropped, because the ranks of a changing job only rise. A process that has gone may be removed
// when it is in no roster.

// mostDropped is the number of removed processes on record, for late frames and cards.
const mostDropped = 256

// dropped is a ring of the last removed lives.
type dropped struct {
	has  map[framework.Life]struct{}
	ring [mostDropped]framework.Life // The same, and zero values.
	next int                         // Index in ring.
}

func (d *dropped) add(life framework.Life) {
	if d.has == nil {
		d.has = map[framework.Life]struct{}{}
	}
	delete(d.has, d.ring[d.next])
	d.has[life], d.ring[d.next] = struct{}{}, life
	d.next = (d.next + 1) % mostDropped
}

// contains reports whether a life is on record.
func (d *dropped) contains(life framework.Life) bool {
	_, ok := d.has[life]
	return ok
}

// Remove removes the state of a process that has gone and is in no communicator. It returns the process, or the
// zero P if only its end was known. For other processes it returns false.
func (t *Procs[P]) Remove(life framework.Life) (p P, ok bool) {
	var none P
	if t.InUse(life) || life == t.env.Self {
		return none, false
	}
	if p = t.Find(life); p != none {
		known := p.Base()
		if !known.Gone() {
			return none, false
		}
		known.isDropped = true
		delete(t.Lives, life.Nonce)
	}
	if p != none || t.ends[life.ID].is(life) {
		t.dropped.add(life)
		t.changes++
	}
	if q := t.present[life.ID]; q != none && q.Base().Life == life {
		delete(t.present, life.ID)
	}
	if t.ends[life.ID].is(life) {
		delete(t.ends, life.ID)
	}
	return p, true
}

// IsDropped reports whether the process was removed. Its frames are ignored.
func (p *Proc) IsDropped() bool { return p.isDropped }

// offerDrop reports an incarnation that Remove would take out.
func (t *Procs[P]) offerDrop(life framework.Life) {
	var none P
	if t.env.Droppable == nil {
		return
	}
	if p := t.Find(life); p != none && (!p.Base().Gone() || p.Base().isDropped) {
		return
	}
	if life != t.env.Self && !t.InUse(life) {
		t.env.Droppable(life)
	}
}
