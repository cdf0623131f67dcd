package cm

import "time"

// A network finds out that a process has died, or rather that a connection is broken,
// sooner than the bootstrap tells. An operation that the network has failed waits for
// the bootstrap's word, so that its error is the failure of the process, as everywhere
// else (ErrProcFailed, and by name); and the network's own if there is no such word.

// The time to wait, in steps: a process that is stopped meanwhile loses one of them.
// The bootstrap of a node takes milliseconds, that of a large job a part of a second.
const (
	doubtStep  = 10 * time.Millisecond
	doubtSteps = 80
)

// doubt ends an operation with the network's error, unless it turns out in time that
// the other process has failed. Lock held.
func (r *request) doubt(err error) {
	m := r.m
	r.state, r.why, r.doubts = doubtful, err, doubtSteps
	m.doubts = true
	m.engine.Nudge()
}

// resolve ends the operations that have waited for long enough. Lock held.
func (m *Module) resolve() {
	now := time.Now()
	if now.Sub(m.doubted) < doubtStep {
		return
	}
	m.doubted, m.doubts = now, false
	for _, r := range m.requests {
		if r.state != doubtful {
			continue
		}
		if r.doubts--; r.doubts > 0 {
			m.doubts = true
		} else {
			r.fail(r.why)
		}
	}
}
