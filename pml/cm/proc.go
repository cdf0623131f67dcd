package cm

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// proc is one life of a process: a process that closes its last session and opens
// one again is another proc, told by its nonce.
type proc struct {
	base.Proc
	m    *Module
	card framework.Card

	connected bool
	to        mtl.Endpoint
	death     uint32 // it was that many failures that the module had heard of; 0: it has not failed
	talked    bool   // a control message went there or came from it
	sent      uint64 // messages to it that no communicator counts any more
	early     early
}

// learn takes the card of a process, which names its present life. Lock held.
func (m *Module) learn(life framework.Life, card framework.Card) error {
	p := m.procs.Get(life)
	if p.Known {
		return nil
	}
	p.card = card
	p.Stats.Transport = m.name
	if old := m.procs.Present(p); old != nil {
		if old.Gone() {
			m.procs.Forget(old)
		} else { // its goodbye may come later, and what it has sent before
			old.leave(base.Unknown, mostVain)
		}
	}
	m.meet(p)
	if m.left[life.ID] == life.Nonce {
		p.left()
	}
	return nil
}

// peer returns what the MTL needs to connect.
func (p *proc) peer() (framework.Peer, error) {
	return p.card.Peer(p.Life, p.m.env.Worlds.Proc(p.Life.ID), framework.MTL, p.m.name)
}

// connect makes the process known to the MTL at its first use. One that can't be
// reached has failed. Lock held.
func (p *proc) connect() error {
	if p.connected || p.Err != nil {
		return p.Err
	}
	if err := p.introduce(); err != nil {
		if why := p.card.Failure(); why != "" {
			err = fmt.Errorf("%w; the peer could not open %s", err, why)
		}
		if p.m.failure != "" {
			err = fmt.Errorf("%w; this process could not open %s", err, p.m.failure)
		}
		p.Fail(&framework.TransportError{Component: "pml cm", Peer: p.String(), Op: "connect", Err: err})
		return p.Err
	}
	return nil
}

func (p *proc) introduce() error {
	peer, err := p.peer()
	if err == nil {
		p.to, err = p.m.mtl.Connect(peer)
	}
	if err == nil {
		p.connected = true
		p.m.env.Event(pml.Event{Kind: pml.EventTransportUp, Peer: p.Life, Note: p.m.name})
	}
	return err
}

// shut ends what is to be sent to this process, and is not on its way yet. Lock held.
func (p *proc) shut(err error) {
	p.Err = err
	p.dropEarly()
	for _, r := range p.m.requests {
		if r.c != nil && r.send && r.p.proc == p {
			r.end(r.c.Explain(err, r.p.rank))
		}
	}
}

// forget ends what is on its way to this process. Lock held.
func (p *proc) forget() {
	if p.connected {
		p.m.mtl.Forget(p.to, p.Err)
		p.m.env.Event(pml.Event{Kind: pml.EventTransportOut, Peer: p.Life, Note: p.Err.Error()})
	}
}

// Fail implements base.Process. Receives that the MTL
// has are withdrawn, and end when that is certain. Lock held.
func (p *proc) Fail(err error) {
	if !p.End(err) {
		return
	}
	m := p.m
	p.dropEarly()
	if p.Failed() {
		m.deaths++
		p.death = m.deaths
	}
	if p.ForgetOnce() {
		p.forget()
	}
	m.failures = true
	if !m.procs.IsPresent(p) { // it has a newer life
		m.procs.Forget(p)
	}
	for _, c := range m.comms.ByID {
		c.ended(p)
	}
	for _, r := range m.requests {
		if r.c == nil || r.state == complete || r.state == gathered || r.state == deferred && r.c.sweepers[r.plane] != nil {
			continue // A sweep ends those that wait for it.
		}
		if err := r.c.Ends(r.source(), r.plane, p); err != nil {
			r.end(err)
		} else if r.state == doubtful && r.p == nil && r.c.isDead(p) {
			r.fail(r.c.Explain(p.Err, r.c.Ranks(p)[0])) // its message was lost
		}
	}
	for _, c := range m.reaped {
		if !c.Closed() {
			continue
		}
		for _, rank := range c.Ranks(p) {
			if !c.Spec.IsElsewhere(rank) {
				q := c.peer(rank)
				q.end(c.Rest.Gone(&q.closing))
			}
		}
	}
}
