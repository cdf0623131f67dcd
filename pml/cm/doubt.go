package cm

import (
	"time"

	"github.com/ferrympi/ferry/pml/base"
)

// An operation that the network has failed waits for the bootstrap's word (see
// base.DoubtStep), so that its error is the failure of the process, as everywhere else
// (ErrProcFailed, and by name); and the network's own if there is no such word.
// Whatever the network says concerns that operation only, or the sends that wait for the
// answer to a request: the next ones try again.

// Tests change it.
var doubtSteps = base.DoubtSteps

// doubting is what resolve goes by.
type doubting struct {
	any  bool // there may be doubtful requests
	last time.Time
}

// doubt ends an operation with the network's error, unless it is known, or turns out in
// time, that the other process has failed or left. Lock held.
func (r *request) doubt(err error) {
	m := r.m
	known := r.c.cannotCome(r.source(), r.plane)
	if p := r.p; p != nil && p.proc.Err != nil {
		known = r.c.Explain(p.proc.Err, p.rank)
	} else if p == nil && known == nil && r.c.hasDead {
		known = r.c.lastDead() // it had matched: afterwards the network has no receives from any source
	}
	if known != nil {
		r.fail(known)
		return
	}
	r.state, r.why, r.steps = doubtful, err, doubtSteps
	m.doubting.any = true
	m.engine.Nudge()
}

// resolve ends the operations that have waited for long enough. Lock held.
func (m *Module) resolve() {
	now := time.Now()
	steps := base.DoubtTaken(m.doubting.last, now)
	if steps == 0 {
		return
	}
	m.doubting = doubting{last: now}
	for _, r := range m.requests {
		if r.state != doubtful {
			continue
		}
		if r.steps -= steps; r.steps > 0 {
			m.doubting.any = true
		} else {
			r.fail(r.why)
		}
	}
}
