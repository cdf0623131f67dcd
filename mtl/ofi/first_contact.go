package ofi

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// Some providers connect, or search a route, when an address is inserted (psm2, psm3), others with the first
// message to it (sockets, verbs;ofi_rxm). Either call may block for seconds if the peer is busy or
// has failed, so both are offloaded.

// contactStage is the progress of the contact with a peer.
type contactStage uint8

const (
	noContact contactStage = iota
	// The address is in libfabric's address vector: receives may name it.
	addressKnown
	// A first message was sent: others may follow.
	connected
)

func (s contactStage) String() string {
	return [...]string{"noContact", "addressKnown", "connected"}[s]
}

// requestContact queues the calls that bring a peer to a stage.
func (m *module) requestContact(to mtl.Endpoint, s contactStage) {
	p := &m.peerTable.peersByEndpoint[to]
	if s <= p.requestedStage {
		return
	}
	isQueued := p.requestedStage > p.contactStage
	p.requestedStage = s
	if !isQueued {
		m.queueOffload(func() { m.advanceContact(to) })
	}
}

// advanceContact brings a peer to the stage that is requested now.
func (m *module) advanceContact(to mtl.Endpoint) {
	p := &m.peerTable.peersByEndpoint[to]
	if p.SendErr != nil { // Receives may still name it.
		p.requestedStage = min(p.requestedStage, addressKnown)
	}
	from, goal := p.contactStage, p.requestedStage
	if goal <= from {
		return
	}
	greeting, number, flags := (*slot)(nil), uint32(0), libfabric.Inject
	if goal == connected && m.Capabilities.Inject == 0 {
		var err error
		if greeting, err = m.takeSlot(base.SlotFlush, nil, m.controlReceives.flushFrame); err == nil {
			err = m.attachRegion(greeting)
		}
		if err != nil {
			m.failModule(err)
			return
		}
		greeting.Peer, greeting.IsPosted = to, true // Forget must leave the slot in use.
		number, flags = greeting.Number, 0
	}
	ep, rawAddress, address := m.ep, p.rawAddress, p.addressIndex
	var err error
	var code libfabric.Errno
	m.runOffloaded(func() {
		if from == noContact {
			address, err = ep.Insert(rawAddress)
		}
		if err == nil && goal == connected {
			// The peer ignores the frame, and its arrival is not required.
			code = ep.Send(number, m.controlReceives.flushFrame, address, flags)
		}
	}, func() {
		switch {
		case greeting == nil:
		case err != nil || code != 0:
			m.releaseSlot(greeting)
		default:
			m.postedCounts.operations++
			m.postedCounts.sends++
			m.peerTable.peersByEndpoint[to].postedSends++
		}
		if code == libfabric.Again && m.peerTable.peersByEndpoint[to].isBlocked {
			m.setAccepting(&m.peerTable.peersByEndpoint[to], false)
		}
		m.completeContact(to, goal, address, err)
	})
}

// completeContact records the result of advanceContact. An error disconnects the peer.
func (m *module) completeContact(to mtl.Endpoint, s contactStage, address uint64, err error) {
	p := &m.peerTable.peersByEndpoint[to]
	p.addressIndex, p.contactStage = address, s
	if err != nil {
		p.isUnreachable = true
		m.Forget(to, &framework.TransportError{Component: component, Peer: m.Env.Worlds.Proc(p.ID).String(), Op: "connect", Err: err})
	}
	if p.requestedStage > s {
		m.queueOffload(func() { m.advanceContact(to) })
	}
}

// deferForContact reports whether an operation must wait for an offloaded call, and requests contact with its
// peer if necessary. Otherwise it sets the address of the operation. A code other than 0 means that the
// peer is unreachable.
func (m *module) deferForContact(s *slot) (mustWait bool, code libfabric.Errno) {
	if m.offloader.activeCall != nil {
		return true, 0
	}
	need := addressKnown
	switch {
	case s.Kind.IsSend():
		need = connected
	case s.Peer == mtl.NoEndpoint || s.Kind == base.SlotClaimed || !m.tagLayout.hasSourceData:
		return false, 0
	}
	p := &m.peerTable.peersByEndpoint[s.Peer]
	s.addressIndex = p.addressIndex
	if p.isUnreachable {
		return false, libfabric.Unreachable
	}
	if p.contactStage >= need {
		return false, 0
	}
	m.requestContact(s.Peer, need)
	m.startOffloads()
	return true, 0
}
