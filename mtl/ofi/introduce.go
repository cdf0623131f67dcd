package ofi

import (
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
)

// Some providers connect when they learn an address, or with the first message that goes
// there, and the call takes as long as that takes: seconds, if the peer is busy or gone
// (known.go, Aside). With the engine's lock held the process would stand still. So
// a goroutine makes such a call. The endpoint is its own meanwhile: calls on one come one
// at a time. What others want of it is queued, and Poll does nothing but look whether the
// call is over. What waits for the address itself waits further.

// introduction is a call that learns the address of a peer.
type introduction struct {
	to   mtl.Endpoint
	over chan introduced // has room for the end
	wait *patience
}

type introduced struct {
	address uint64
	err     error
}

// errHanging is what everything ends with if such a call does not come back.
var errHanging = errors.New("the call that makes an address known does not return")

// introduce begins the next call.
func (m *module) introduce() {
	for len(m.strangers) > 0 && m.peers[m.strangers[0]].gone != nil { // forgotten meanwhile
		m.strangers = m.strangers[1:]
	}
	if m.away != nil || len(m.strangers) == 0 {
		return
	}
	to := m.strangers[0]
	m.strangers = m.strangers[1:]
	i := &introduction{to, make(chan introduced, 1), newPatience(m.connect)}
	m.away = i
	ep, name, bell := m.ep, m.peers[to].name, func() {}
	if m.env.Engine != nil {
		bell = m.env.Bell().Ring
	}
	m.calls.Add(1)
	go func() {
		defer m.calls.Done()
		var r introduced
		if r.address, r.err = ep.Insert(name); r.err == nil {
			// Nobody reads it. Whether it arrives does not matter either.
			ep.Send(0, []byte{frameFlush}, r.address, libfabric.Inject)
		}
		i.over <- r
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
		m.met(m.away.to, r)
		return m.away != nil
	default:
	}
	if m.away.wait.over() {
		m.lose(errHanging)
	}
	return true
}

// met takes the outcome of a call, and begins the next.
func (m *module) met(to mtl.Endpoint, r introduced) {
	m.away = nil
	p := &m.peers[to]
	p.address, p.unknown, p.name = r.address, false, nil
	if r.err != nil && p.gone == nil {
		m.Forget(to, &framework.TransportError{Component: component, Peer: m.env.Worlds.Proc(p.ID).String(), Op: "connect", Err: r.err})
		p.unreachable = true
	}
	for _, number := range m.cancels {
		m.ep.Cancel(number)
	}
	m.cancels = m.cancels[:0]
	m.introduce()
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
			m.met(m.away.to, r)
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
	m.broken = &framework.TransportError{Component: component, Op: "connect", Err: fmt.Errorf("%s: %w within %v (mtl.ofi.connect_timeout)", m.about.Provider, err, m.connect)}
	m.giveUpAll()
}

// mustWait reports whether an operation can't be given to the provider yet, and fills in
// what was not known when it was asked for. code is set if it never can.
func (m *module) mustWait(s *slot) (wait bool, code libfabric.Errno) {
	if m.away != nil {
		return true, 0
	}
	if s.to == mtl.NoEndpoint || s.kind == claimed || !m.layout.data && !s.kind.isSend() {
		return false, 0
	}
	p := &m.peers[s.to]
	s.address = p.address
	if p.unreachable {
		return false, libfabric.Unreachable
	}
	return p.unknown, 0
}

// waits is mustWait for a look.
func (m *module) waits(s *slot) bool {
	wait, code := m.mustWait(s)
	return wait || code != 0
}
