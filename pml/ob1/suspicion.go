package ob1

import (
	"errors"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/base"
)

// Suspicion. A path that cannot be opened, or that fails, ends all operations with the
// process, since frames may be lost. In most cases it is the first sign that the process
// has failed or left, which the bootstrap reports a moment later with a better reason (see
// base.DoubtStep). Operations wait for that reason. Without one they fail with the
// transport's error, and the process is disconnected, since to the other side the path may
// look intact. A report that the process has closed its session is such a sign as well, since
// a program that panics closes its session on the way out.

// doubt is the suspicion against one process.
type doubt struct {
	// suspectedFor is the error that made the process suspect, or nil, and suspicionSteps the
	// remaining time in steps of base.DoubtStep.
	suspectedFor   error
	suspicionSteps int
}

// suspicion is the state of suspect processes and undeliverable messages.
type suspicion struct {
	procs      []*proc
	receives   []undeliverable
	lastStepAt time.Time
}

func (d *suspicion) isActive() bool { return len(d.procs)+len(d.receives) > 0 }

// undeliverable is a receive without an allowed protocol that can transfer its message. If the
// sender has failed, that is the better reason. The path stays open.
type undeliverable struct {
	*request
	// generation shows whether the request has ended in an earlier Poll, and is in use again.
	generation uint32
	err        error
	steps      int
}

// failUnlessPeerFailed fails a receive with err, unless a failure of the process is reported soon.
func (r *request) failUnlessPeerFailed(err error) {
	r.m.suspects.receives = append(r.m.suspects.receives, undeliverable{r, r.generation, err, base.DoubtSteps})
	r.m.engine.Nudge()
}

// suspect ends all operations with the process by err, unless the bootstrap reports a better
// reason soon. Lock held.
func (p *proc) suspect(err error) {
	if p.Err != nil || p.suspectedFor != nil {
		return
	}
	m := p.m
	p.suspectedFor, p.suspicionSteps = err, base.DoubtSteps
	p.closePath(err)
	p.pendingControls = nil
	m.suspects.procs = append(m.suspects.procs, p)
	m.engine.Nudge()
}

// resolveSuspects fails suspect processes and receives after their time. Lock held.
func (m *Module) resolveSuspects() {
	now := time.Now()
	steps := base.DoubtStepsElapsed(m.suspects.lastStepAt, now)
	if steps == 0 {
		return
	}
	m.suspects.lastStepAt = now
	var expired []*proc
	m.suspects.procs = slices.DeleteFunc(m.suspects.procs, func(p *proc) bool {
		if p.suspicionSteps -= steps; p.Err == nil && p.suspicionSteps > 0 {
			return false
		}
		if p.Err == nil {
			expired = append(expired, p)
		}
		return true
	})
	for _, p := range expired {
		p.Fail(p.suspectedFor)
	}
	waiting := m.suspects.receives
	m.suspects.receives = nil
	for _, u := range waiting {
		switch {
		// The request has ended.
		case u.request.generation != u.generation || u.state != stateMatched:
		case u.steps <= steps:
			u.fail(u.err)
		default:
			u.steps -= steps
			m.suspects.receives = append(m.suspects.receives, u)
		}
	}
}

// Due implements progress.Timed.
func (m *Module) Due() time.Duration {
	if m.suspects.isActive() {
		return base.DoubtStep
	}
	return 0
}

// PeerChanged implements pml.Module.
func (m *Module) PeerChanged(ev framework.PeerEvent) {
	m.engine.Lock()
	defer m.engine.Unlock()
	hasFailed := ev.State == framework.Failed
	if hasFailed {
		m.drainPeer(ev.Peer)
	} else {
		m.drainTransports()
	}
	m.procs.HandlePeerEvent(ev)
	if hasFailed {
		m.forgetPeer(ev.Peer)
	}
	if hasFailed || errors.Is(ev.Err, framework.ErrPeerDisconnected) {
		m.inquire()
	}
}

// maxDrainPolls bounds the polls for frames of a process that has ended, since others may keep sending.
const maxDrainPolls = 1000

// drainTransports handles frames that were sent before a reported event.
func (m *Module) drainTransports() {
	for _, t := range m.transports {
		for i := 0; i < maxDrainPolls && t.pollArrivals() > 0; i++ {
		}
	}
}

// drainPeer handles frames that a process has sent before its end.
func (m *Module) drainPeer(peer framework.Incarnation) {
	p := m.procs.Find(peer)
	// The path from it may be about to open.
	if p == nil || p.receivePath().source == nil {
		m.drainTransports()
	}
	if p != nil {
		p.drainPath()
	}
}

// forgetPeer frees the transports' state of a process that has ended.
func (m *Module) forgetPeer(peer framework.Incarnation) {
	for _, t := range m.transports {
		if t.forgetter != nil {
			t.forgetter.Forget(peer)
		}
	}
}
