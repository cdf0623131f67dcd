package ofi

import (
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/trial"
)

// Some calls of libfabric may take long: those that connect to a peer, register memory, or close
// an endpoint. With the engine's lock held the process would stand still. So a goroutine makes
// them, whatever the provider (docs/decisions/first-contact.md). The endpoint is its own meanwhile: calls on one
// come one at a time. What others want of it is queued, and Poll does nothing but look whether
// the call is over.

// errand is such a call.
type errand struct {
	over chan struct{} // closed at its end
	back func()        // what follows, with the lock
	wait *trial.Patience
}

// errHanging is what everything ends with if such a call does not come back.
var errHanging = errors.New("the call that makes a peer or memory known does not return")

// queue has begin called by next or the next Poll, when the endpoint is nobody's; it may run an errand.
func (m *module) queue(begin func()) { m.errands = append(m.errands, begin) }

// next begins what is queued, up to the next errand. It waits for the probes that the provider has:
// their outcome could not be read before the end of the errand, which may take seconds. Meanwhile no
// probe is started.
func (m *module) next() {
	for m.away == nil && m.broken == nil && len(m.errands) > 0 {
		if m.probesAtProvider > 0 {
			m.drainsProbes = true
			return
		}
		m.drainsProbes = false
		begin := m.errands[0]
		m.errands = m.errands[1:]
		begin()
	}
}

// run has a goroutine make a call, and then rings.
func (m *module) run(call, back func()) {
	e := &errand{make(chan struct{}), back, trial.NewPatience(m.connect)}
	m.away = e
	bell := func() {}
	if m.env.Engine != nil {
		bell = m.env.Bell().Ring
	}
	m.calls.Add(1)
	go func() {
		defer m.calls.Done()
		call()
		close(e.over)
		bell()
	}()
}

// isAway reports whether the endpoint is a call's, and takes the end of one that is over.
// The next one begins when the endpoint was polled.
func (m *module) isAway() bool {
	if m.away == nil {
		return false
	}
	select {
	case <-m.away.over:
		m.back()
		return false
	default:
	}
	if !m.half && m.away.wait.Over() {
		m.lose(errHanging)
	}
	return true
}

// back takes the end of a call.
func (m *module) back() {
	e := m.away
	m.away = nil
	if m.broken != nil && !m.shuts { // meanwhile
		m.shut()
		return
	}
	e.back()
	if m.broken != nil {
		return
	}
	for _, number := range m.cancels {
		m.ep.Cancel(number)
	}
	m.cancels = m.cancels[:0]
}

// awaitAway waits until the endpoint is nobody's, and reports whether that came about.
// Called without the engine's lock, when nobody polls.
func (m *module) awaitAway() bool {
	m.errands = nil
	if m.away == nil {
		m.calls.Wait() // the last one may still ring the bell
		return true
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-m.away.over:
			m.back()
			m.calls.Wait()
			return true
		case <-tick.C:
			if m.away.wait.Over() {
				return false
			}
		}
	}
}

// shut closes an endpoint that has failed. Operations end then, and no sooner: until then the
// provider may touch their buffers.
func (m *module) shut() {
	m.shuts = true
	m.run(m.ep.Close, m.giveUpAll)
}

// lose ends everything while the endpoint is still a call's: it stays open.
func (m *module) lose(err error) {
	m.half = true
	if m.broken == nil {
		m.broken = &framework.TransportError{Component: component, Op: "connect", Err: fmt.Errorf("%s: %w within %v (mtl.ofi.connect_timeout)", m.about.Provider, err, m.connect)}
	}
	m.giveUpAll()
}

// isBusy reports whether an errand is under way that Poll will see the end of.
func (m *module) isBusy() bool { return m.away != nil && !m.half }
