package ofi

import (
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
)

// Providers connect, or look for a way, when they learn an address (psm2, psm3), or with the
// first message that goes there (sockets, verbs;ofi_rxm), and some return only when that is done:
// after seconds, if the peer is busy or gone. With the engine's lock held the process would stand
// still. So a goroutine makes these calls, whatever the provider (docs/decisions/first-contact.md).
// The endpoint is its own meanwhile: calls on one come one
// at a time. What others want of it is queued, and Poll does nothing but look whether the
// call is over. Closing an endpoint that has failed is such a call, too.

// stage is how far libfabric knows a peer.
type stage uint8

const (
	stranger stage = iota
	inserted       // it has the address: receives may name it
	greeted        // something was sent there: others may follow
)

// errand is a call that a goroutine makes.
type errand struct {
	to   mtl.Endpoint    // who is introduced
	make stage           // and how far; stranger: the endpoint closes
	slot *slot           // of the greeting, where the provider injects nothing
	over chan introduced // has room for the end
	wait *patience
}

type introduced struct {
	address uint64
	err     error
	code    libfabric.Errno // of the greeting
}

// errHanging is what everything ends with if such a call does not come back.
var errHanging = errors.New("the call that makes an address known does not return")

// want asks for a peer to be known so far. The next call of introduce begins with it.
func (m *module) want(to mtl.Endpoint, s stage) {
	p := &m.peers[to]
	if s <= p.wanted {
		return
	}
	if p.wanted == p.stage {
		m.strangers = append(m.strangers, to)
	}
	p.wanted = s
}

// introduce begins the next call, if none is under way.
func (m *module) introduce() {
	if m.away != nil || len(m.strangers) == 0 {
		return
	}
	to := m.strangers[0]
	m.strangers = m.strangers[1:]
	p := &m.peers[to]
	if p.gone != nil { // forgotten meanwhile; receives may still name it
		p.wanted = min(p.wanted, inserted)
	}
	if p.wanted == p.stage {
		return
	}
	e := &errand{to: to, make: p.wanted}
	number, flags := uint32(0), libfabric.Inject
	if e.make == greeted && m.caps.Inject == 0 {
		s, err := m.take(flush, nil, m.greeting)
		if err != nil {
			m.fail(err)
			return
		}
		s.to, s.posted = to, true // so that it stays, whatever becomes of the peer
		e.slot, number, flags = s, s.number, 0
	}
	ep, name, r, known := m.ep, p.name, introduced{address: p.address}, p.stage == inserted
	m.run(e, func() introduced {
		if !known {
			r.address, r.err = ep.Insert(name)
		}
		if r.err == nil && e.make == greeted {
			// Nobody reads it. Whether it arrives does not matter either.
			r.code = ep.Send(number, m.greeting, r.address, flags)
		}
		return r
	})
}

// run has a goroutine make a call, and then rings.
func (m *module) run(e *errand, call func() introduced) {
	e.over, e.wait = make(chan introduced, 1), newPatience(m.connect)
	m.away = e
	bell := func() {}
	if m.env.Engine != nil {
		bell = m.env.Bell().Ring
	}
	m.calls.Add(1)
	go func() {
		defer m.calls.Done()
		e.over <- call()
		bell()
	}()
}

// isAway reports whether the endpoint is a call's, and takes the end of one that is over.
func (m *module) isAway() bool {
	if m.away == nil {
		return false
	}
	select {
	case r := <-m.away.over:
		m.back(r)
		return false
	default:
	}
	if !m.half && m.away.wait.over() {
		m.lose(errHanging)
	}
	return true
}

// back takes the outcome of a call. The next one begins when the endpoint was polled.
func (m *module) back(r introduced) {
	e := m.away
	m.away = nil
	switch {
	case e.make == stranger:
		m.giveUpAll() // nobody touches the buffers now
	case m.broken == nil:
		m.met(e, r)
	}
}

// met takes what is known of a peer now.
func (m *module) met(e *errand, r introduced) {
	p := &m.peers[e.to]
	p.address, p.stage = r.address, e.make
	if r.err != nil {
		p.unreachable = true
		m.Forget(e.to, &framework.TransportError{Component: component, Peer: m.env.Worlds.Proc(p.ID).String(), Op: "connect", Err: r.err})
	}
	if e.slot != nil {
		if r.err != nil || r.code != 0 {
			m.release(e.slot)
		} else {
			m.posted++
		}
	}
	for _, number := range m.cancels {
		m.ep.Cancel(number)
	}
	m.cancels = m.cancels[:0]
	if p.wanted > p.stage {
		m.strangers = append(m.strangers, e.to)
	}
}

// awaitAway waits until the endpoint is nobody's, and reports whether that came about.
// Called without the engine's lock, when nobody polls.
func (m *module) awaitAway() bool {
	if m.away == nil {
		m.calls.Wait() // the last one may still ring the bell
		return true
	}
	m.strangers = nil
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case r := <-m.away.over:
			m.back(r)
			m.calls.Wait()
			return true
		case <-tick.C:
			if m.away.wait.over() {
				return false
			}
		}
	}
}

// lose ends everything while the endpoint is still a call's: it stays open.
func (m *module) lose(err error) {
	m.half = true
	if m.broken == nil {
		m.broken = &framework.TransportError{Component: component, Op: "connect", Err: fmt.Errorf("%s: %w within %v (mtl.ofi.connect_timeout)", m.about.Provider, err, m.connect)}
	}
	m.giveUpAll()
}

// isClosing reports whether the endpoint of a module that has failed is being closed.
func (m *module) isClosing() bool { return m.away != nil && m.away.make == stranger && !m.half }

// mustWait reports whether an operation can't be given to the provider yet, and fills in
// what was not known when it was asked for. code is set if it never can.
func (m *module) mustWait(s *slot) (wait bool, code libfabric.Errno) {
	if m.away != nil {
		return true, 0
	}
	need := inserted
	switch {
	case s.kind.isSend():
		need = greeted
	case s.to == mtl.NoEndpoint || s.kind == claimed || !m.layout.data:
		return false, 0
	}
	p := &m.peers[s.to]
	s.address = p.address
	if p.unreachable {
		return false, libfabric.Unreachable
	}
	if p.stage >= need {
		return false, 0
	}
	m.want(s.to, need)
	m.introduce()
	return true, 0
}

// waits is mustWait for a look.
func (m *module) waits(s *slot) bool {
	wait, code := m.mustWait(s)
	return wait || code != 0
}
