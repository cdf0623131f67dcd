package base

import "github.com/ferrympi/ferry/framework"

// Ended processes are dropped, because the ranks of a changing job only rise. A process that has ended may be removed
// when it is in no roster.

// maxDropped is the number of removed incarnations on record, for late frames and cards.
const maxDropped = 256

// dropped is a ring of the last removed incarnations.
type dropped struct {
	lives map[framework.Life]struct{}
	// ring has the keys of lives in the order of removal, from next on, and zero values.
	ring [maxDropped]framework.Life
	next int
}

func (d *dropped) add(life framework.Life) {
	if d.lives == nil {
		d.lives = map[framework.Life]struct{}{}
	}
	delete(d.lives, d.ring[d.next])
	d.lives[life], d.ring[d.next] = struct{}{}, life
	d.next = (d.next + 1) % maxDropped
}

// contains reports whether an incarnation is on record.
func (d *dropped) contains(life framework.Life) bool {
	_, ok := d.lives[life]
	return ok
}

// Remove removes the state of a process that has ended and is in no communicator. It returns the process, or the
// zero P if only its end was known. For other processes it returns false.
func (t *Procs[P]) Remove(life framework.Life) (p P, ok bool) {
	var none P
	if t.InUse(life) || life == t.env.Self {
		return none, false
	}
	if p = t.Find(life); p != none {
		known := p.Base()
		if !known.HasEnded() {
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

// reportDroppable reports an incarnation that Remove would remove.
func (t *Procs[P]) reportDroppable(life framework.Life) {
	var none P
	if t.env.Droppable == nil {
		return
	}
	if p := t.Find(life); p != none && (!p.Base().HasEnded() || p.Base().isDropped) {
		return
	}
	if life != t.env.Self && !t.InUse(life) {
		t.env.Droppable(life)
	}
}
