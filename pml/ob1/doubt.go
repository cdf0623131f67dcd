package ob1

import (
	"errors"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/base"
)

// A path that can't be opened, or that breaks, ends everything with the process, since
// frames may be lost. Mostly it is the first sign that the process has died or left: so
// operations wait for a moment, until the bootstrap says so (see base.DoubtStep). Without
// such a word their error is the transport's, and the process is told that it has been
// given up: to it the path may look well. The transport's word that the process has closed
// its session is such a sign too: a program that panics closes it on the way out.

// Tests change it.
var doubtSteps = base.DoubtSteps

// doubting are the processes that are in doubt, and receives that are.
type doubting struct {
	procs    []*proc
	receives []unable
	last     time.Time // when a step was taken
}

func (d *doubting) any() bool { return len(d.procs)+len(d.receives) > 0 }

// unable is a receive whose message can come no way that is allowed. The sender may have
// died, which is the better reason then. Its path goes on.
type unable struct {
	*request
	turn  uint32
	err   error
	steps int
}

// cannotCome ends a receive with err, unless there is a better reason in time.
func (r *request) cannotCome(err error) {
	r.m.doubting.receives = append(r.m.doubting.receives, unable{r, r.turn, err, doubtSteps})
	r.m.engine.Nudge()
}

// doubt ends everything with the process because of err, unless the bootstrap has a
// better reason in time. Lock held.
func (p *proc) doubt(err error) {
	if p.Err != nil || p.why != nil {
		return
	}
	m := p.m
	p.why, p.steps = err, doubtSteps
	p.closePath(err)
	p.controls = nil
	m.doubting.procs = append(m.doubting.procs, p)
	m.engine.Nudge()
}

// resolve ends the doubt of processes that have waited for long enough. Lock held.
func (m *Module) resolve() {
	now := time.Now()
	steps := base.DoubtTaken(m.doubting.last, now)
	if steps == 0 {
		return
	}
	m.doubting.last = now
	var over []*proc
	m.doubting.procs = slices.DeleteFunc(m.doubting.procs, func(p *proc) bool {
		if p.steps -= steps; p.Err == nil && p.steps > 0 {
			return false
		}
		if p.Err == nil {
			over = append(over, p)
		}
		return true
	})
	for _, p := range over {
		p.Fail(p.why)
	}
	waiting := m.doubting.receives
	m.doubting.receives = nil
	for _, u := range waiting {
		switch {
		case u.request.turn != u.turn || u.state != matched: // it has ended
		case u.steps <= steps:
			u.fail(u.err)
		default:
			u.steps -= steps
			m.doubting.receives = append(m.doubting.receives, u)
		}
	}
}

// Due implements progress.Timed.
func (m *Module) Due() time.Duration {
	if m.doubting.any() {
		return base.DoubtStep
	}
	return 0
}

// PeerFailed implements pml.Module.
func (m *Module) PeerFailed(peer framework.Life, reason string) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.drain(peer)
	m.procs.Died(peer, reason)
	m.forget(peer)
	m.inquire()
}

// PeerGone implements pml.Module.
func (m *Module) PeerGone(peer framework.Life, how error) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.lastPolls()
	m.procs.Gone(peer, how)
	if errors.Is(how, framework.ErrGivenUp) {
		m.inquire()
	}
}

// mostLastPolls bounds the time for what a process had sent: others go on sending
// meanwhile.
const mostLastPolls = 1000

// lastPolls takes what others had sent before the news of them.
func (m *Module) lastPolls() {
	for _, t := range m.transports {
		for i := 0; i < mostLastPolls && t.look() > 0; i++ {
		}
	}
}

// drain takes what a process has sent before its end: it is there already, and arrives.
func (m *Module) drain(peer framework.Life) {
	p := m.procs.Find(peer)
	if p == nil || p.inPath().source == nil { // its path may be about to open
		m.lastPolls()
	}
	if p != nil {
		p.drain()
	}
}

// forget frees the transports' state of a process that has ended.
func (m *Module) forget(peer framework.Life) {
	for _, t := range m.transports {
		if t.forgetter != nil {
			t.forgetter.Forget(peer)
		}
	}
}
