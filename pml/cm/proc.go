package cm

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// proc is one incarnation of a process.
type proc struct {
	base.Proc
	m    *Module
	card framework.Card

	isConnected bool
	mtlEndpoint mtl.Endpoint
	// failureOrder is Module.failureCount right after this process failed, 0 if it has not.
	failureOrder uint32
	// hasContact is set once a control message was sent to or came from the process.
	hasContact bool
	// sentOnClosed counts messages sent on communicators that have been released.
	sentOnClosed  uint64
	earlyArrivals earlyArrivals
}

// learn stores the card of a process's present incarnation. Lock held.
func (m *Module) learn(incarnation framework.Incarnation, card framework.Card) error {
	p := m.procs.Get(incarnation)
	if p.HasCard {
		return nil
	}
	p.card = card
	p.Stats.Transport = m.mtlName
	if old := m.procs.SetPresent(p); old != nil {
		if old.HasEnded() {
			m.procs.Forget(old)
		} else { // Its messages and its goodbye may still come.
			old.startLeaving(base.Unknown, maxFruitlessSearches)
		}
	}
	m.adoptEarly(p)
	if m.leftNonces[incarnation.ID] == incarnation.Nonce {
		p.handleLeft()
	}
	return nil
}

// mtlPeer returns the MTL's address of the process.
func (p *proc) mtlPeer() (framework.Peer, error) {
	return p.card.Peer(p.Incarnation, p.m.env.Worlds.Proc(p.Incarnation.ID), framework.MTL, p.m.mtlName)
}

// connect connects the MTL to the process on first use. A process that cannot be
// reached counts as failed. Lock held.
func (p *proc) connect() error {
	if p.isConnected || p.Err != nil {
		return p.Err
	}
	if err := p.connectMTL(); err != nil {
		if why := p.card.Failure(); why != "" {
			err = fmt.Errorf("%w; the peer could not open %s", err, why)
		}
		if p.m.openFailure != "" {
			err = fmt.Errorf("%w; this process could not open %s", err, p.m.openFailure)
		}
		p.Fail(&framework.TransportError{Component: "pml cm", Peer: p.String(), Op: "connect", Err: err})
		return p.Err
	}
	return nil
}

// connectMTL connects the MTL to the process and emits the event. An error leaves p as
// it is.
func (p *proc) connectMTL() error {
	peer, err := p.mtlPeer()
	if err == nil {
		p.mtlEndpoint, err = p.m.mtl.Connect(peer)
	}
	if err == nil {
		p.isConnected = true
		p.m.env.Event(pml.Event{Kind: pml.EventTransportUp, Peer: p.Incarnation, Note: p.m.mtlName})
	}
	return err
}

// failSends sets p.Err and fails all sends to p that are not in the network yet. Lock held.
func (p *proc) failSends(err error) {
	p.Err = err
	p.dropEarly()
	for _, r := range p.m.allRequests {
		if r.c != nil && r.isSend && r.p.proc == p {
			r.abort(r.c.MemberError(err, r.p.rank))
		}
	}
}

// forgetEndpoint makes the MTL abort its sends to p. Lock held.
func (p *proc) forgetEndpoint() {
	if p.isConnected {
		p.m.mtl.Forget(p.mtlEndpoint, p.Err)
		p.m.env.Event(pml.Event{Kind: pml.EventTransportOut, Peer: p.Incarnation, Note: p.Err.Error()})
	}
}

// Fail implements base.Process. It withdraws receives that the MTL has. They end when
// the MTL completes them. Lock held.
func (p *proc) Fail(err error) {
	if !p.MarkEnded(err) {
		return
	}
	m := p.m
	p.dropEarly()
	if p.HasFailed() {
		m.failureCount++
		p.failureOrder = m.failureCount
	}
	if p.MarkAborted() {
		p.forgetEndpoint()
	}
	m.mustCheckFailures = true
	if !m.procs.IsPresent(p) { // A newer incarnation exists.
		m.procs.Forget(p)
	}
	for _, c := range m.comms.ByID {
		c.handleProcEnd(p)
	}
	for _, r := range m.allRequests {
		if r.c == nil || r.state == complete || r.state == gathered || r.state == deferred && r.c.sweepersByPlane[r.plane] != nil {
			continue // The sweep ends its deferred receives.
		}
		if err := r.c.EndError(r.source(), r.plane, p); err != nil {
			r.abort(err)
		} else if r.state == doubtful && r.p == nil && r.c.isFailedMember(p) {
			r.fail(r.c.MemberError(p.Err, r.c.Ranks(p)[0])) // Its message was lost.
		}
	}
	for _, c := range m.reapedComms {
		if !c.IsClosed() {
			continue
		}
		for _, rank := range c.Ranks(p) {
			if !c.Spec.IsElsewhere(rank) {
				q := c.peer(rank)
				q.applyClosing(c.Closing.MemberEnded(&q.closeState))
			}
		}
	}
}
