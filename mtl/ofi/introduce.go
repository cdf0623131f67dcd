package ofi

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
)

// Providers connect, or look for a way, when they learn an address (psm2, psm3), or with the
// first message that goes there (sockets, verbs;ofi_rxm), and some return only when that is done:
// after seconds, if the peer is busy or gone. Both are errands.

// stage is how far libfabric knows a peer.
type stage uint8

const (
	stranger stage = iota
	inserted       // it has the address: receives may name it
	greeted        // something was sent there: others may follow
)

// want asks for a peer to be known so far.
func (m *module) want(to mtl.Endpoint, s stage) {
	p := &m.peers[to]
	if s <= p.wanted {
		return
	}
	queued := p.wanted > p.stage
	p.wanted = s
	if !queued {
		m.queue(func() { m.introduce(to) })
	}
}

// introduce makes a peer known as far as is wanted now.
func (m *module) introduce(to mtl.Endpoint) {
	p := &m.peers[to]
	if p.gone != nil { // forgotten meanwhile; receives may still name it
		p.wanted = min(p.wanted, inserted)
	}
	from, goal := p.stage, p.wanted
	if goal <= from {
		return
	}
	slot, number, flags := (*slot)(nil), uint32(0), libfabric.Inject
	if goal == greeted && m.caps.Inject == 0 {
		var err error
		if slot, err = m.take(flush, nil, m.greeting); err == nil {
			err = m.register(slot)
		}
		if err != nil {
			m.fail(err)
			return
		}
		slot.to, slot.posted = to, true // so that it stays, whatever becomes of the peer
		number, flags = slot.number, 0
	}
	ep, name, address := m.ep, p.name, p.address
	var err error
	var code libfabric.Errno
	m.run(func() {
		if from == stranger {
			address, err = ep.Insert(name)
		}
		if err == nil && goal == greeted {
			// Nobody reads it. Whether it arrives does not matter either.
			code = ep.Send(number, m.greeting, address, flags)
		}
	}, func() {
		switch {
		case slot == nil:
		case err != nil || code != 0:
			m.release(slot)
		default:
			m.posted++
			m.sends++
			m.peers[to].sends++
		}
		if code == libfabric.Again && m.peers[to].isQueued {
			m.hears(&m.peers[to], false)
		}
		m.met(to, goal, address, err)
	})
}

// met takes what is known of a peer now.
func (m *module) met(to mtl.Endpoint, s stage, address uint64, err error) {
	p := &m.peers[to]
	p.address, p.stage = address, s
	if err != nil {
		p.unreachable = true
		m.Forget(to, &framework.TransportError{Component: component, Peer: m.env.Worlds.Proc(p.ID).String(), Op: "connect", Err: err})
	}
	if p.wanted > s {
		m.queue(func() { m.introduce(to) })
	}
}

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
	m.next()
	return true, 0
}
