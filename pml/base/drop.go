package base

import "github.com/ferrympi/ferry/framework"

// Ended processes are dropped, because the ranks of a changing job only rise. Each process counts its
// rosters. A process that has gone may be removed when the number is zero.

// mostDropped is the number of removed processes on record, for late frames and cards.
const mostDropped = 256

// dropped is a ring of the last removed lives.
type dropped struct {
	lives [mostDropped]framework.Life
	next  int // Index in lives.
}

func (d *dropped) add(life framework.Life) {
	d.lives[d.next] = life
	d.next = (d.next + 1) % mostDropped
}

// has reports whether a life is on record. Callers call it for processes without state only.
func (d *dropped) has(life framework.Life) bool {
	if life.Nonce == 0 { // Unused elements.
		return false
	}
	for i := range d.lives {
		if d.lives[i] == life {
			return true
		}
	}
	return false
}

// Remove removes the state of a process that has gone and is in no communicator. It returns the process, or the
// zero P if only its end was known. For other processes it returns false.
func (t *Procs[P]) Remove(life framework.Life) (p P, ok bool) {
	var none P
	if p = t.Find(life); p != none {
		known := p.Base()
		if !known.Gone() || known.rosters > 0 || life == t.env.Self {
			return none, false
		}
		known.isDropped = true
		delete(t.Lives, life.Nonce)
		t.dropped.add(life)
		t.changes++
	}
	if q := t.present[life.ID]; q != none && q.Base().Life == life {
		delete(t.present, life.ID)
	}
	if t.ended[life.ID].is(life) {
		delete(t.ended, life.ID)
	}
	return p, true
}

// IsDropped reports whether the process was removed. Its frames are ignored.
func (p *Proc) IsDropped() bool { return p.isDropped }

// hold counts a roster for its processes.
func (r *roster[P]) hold() {
	for _, p := range r.distinct() {
		p.Base().rosters++
	}
}

// release is the reverse of hold.
func (r *roster[P]) release() {
	for _, p := range r.distinct() {
		known := p.Base()
		known.rosters--
		known.offerDrop()
	}
}

// distinct returns the processes, each once.
func (r *roster[P]) distinct() []P {
	if r.ranks == nil {
		return r.procs
	}
	return r.processes
}

// offerDrop reports a process that Remove would take out.
func (p *Proc) offerDrop() {
	if p.rosters == 0 && p.Gone() && !p.isDropped && p.droppable != nil {
		p.droppable(p.Life)
	}
}
