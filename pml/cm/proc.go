package cm

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// proc is one life of a process: a process that closes its last session and opens
// one again is another proc, told by its nonce.
type proc struct {
	m    *Module
	life framework.Life
	card framework.Card

	connected   bool
	to          mtl.Endpoint
	unreachable error         // nothing can be sent to it any more, and why
	err         error         // nothing comes from it any more either
	left        bool          // it has closed its session in good order
	forgotten   bool          // by the MTL, which has given up all that was on its way there
	talked      bool          // a control message went there or came from it
	stats       pml.PeerStats // without Received

	sent     uint64 // messages to it that no communicator counts any more
	received uint64 // messages of it
	aside    uint64 // messages of it that were taken out of the network and not received: unexpected, claimed, dropped
	total    uint64 // once it has left: how many messages it has sent here
	early    early
}

func (p *proc) String() string { return p.m.env.Worlds.Proc(p.life.ID).String() }

// learn takes the card of a process, which names its present life. Lock held.
func (m *Module) learn(life framework.Life, card framework.Card) {
	old := m.procs[life.ID]
	if old != nil && old.life == life {
		return
	}
	p := &proc{m: m, life: life, card: card}
	p.stats.Peer, p.stats.Transport = life, m.name
	m.procs[life.ID] = p
	m.byNonce[life.Nonce] = p
	switch {
	case old == nil:
	case old.err != nil:
		delete(m.byNonce, old.life.Nonce)
	case !old.left: // its goodbye may come later, and what it has sent before
		old.leave(unknown)
	}
	if reason, dead := m.dead[life]; dead {
		p.fail(&procFailed{reason})
	}
	m.meet(p)
}

// member returns the process of a new communicator's member, or nil if its card has
// not come. A life of which only the end is known is one that can't be reached.
func (m *Module) member(life framework.Life) *proc {
	if p := m.byNonce[life.Nonce]; p != nil && p.life == life {
		return p
	}
	if m.procs[life.ID] == nil {
		return nil
	}
	p := &proc{m: m, life: life}
	p.fail(&framework.TransportError{Component: "pml cm", Peer: p.String(), Op: "learn", Err: framework.ErrPeerClosed})
	return p
}

// peer returns what the MTL needs to connect.
func (p *proc) peer() (framework.Peer, error) {
	return p.card.Peer(p.life, p.m.env.Worlds.Proc(p.life.ID), framework.MTL, p.m.name)
}

// connect makes the process known to the MTL at its first use. One that can't be
// reached has failed. Lock held.
func (p *proc) connect() error {
	if p.connected || p.unreachable != nil {
		return p.unreachable
	}
	peer, err := p.peer()
	if err == nil {
		p.to, err = p.m.mtl.Connect(peer)
	}
	if err != nil {
		p.fail(&framework.TransportError{Component: "pml cm", Peer: p.String(), Op: "connect", Err: err})
		return p.err
	}
	p.connected = true
	p.m.hook(pml.Event{Kind: pml.EventTransportUp, Peer: p.life, Note: p.m.name})
	return nil
}

// shut ends what is to be sent to this process, and is not on its way yet. Lock held.
func (p *proc) shut(err error) {
	p.unreachable, p.early = err, early{}
	for _, r := range p.m.requests {
		if r.c != nil && r.send && r.p.proc == p {
			r.end(r.c.explain(err, r.p.rank))
		}
	}
}

// forget ends what is on its way to this process. Lock held.
func (p *proc) forget() {
	if !p.connected || p.forgotten {
		return
	}
	p.forgotten = true
	p.m.mtl.Forget(p.to, p.unreachable)
	p.m.hook(pml.Event{Kind: pml.EventTransportOut, Peer: p.life, Note: p.unreachable.Error()})
}

// fail ends everything that is pending with this process. Receives that the MTL
// has are withdrawn, and end when that is certain. That it has died replaces what the
// network had said before. Lock held.
func (p *proc) fail(err error) {
	if _, died := err.(*procFailed); p.err != nil && (p.left || !died) {
		return
	}
	m := p.m
	p.err, p.unreachable, p.left, p.early = err, err, errors.Is(err, framework.ErrPeerClosed), early{}
	p.forget()
	m.failures = true
	if m.procs[p.life.ID] != p { // it has a newer life
		delete(m.byNonce, p.life.Nonce)
	}
	for _, r := range m.requests {
		switch {
		case r.c == nil || r.state == complete:
		case r.p != nil && r.p.proc == p:
			r.end(r.c.explain(err, r.p.rank))
		case r.p == nil && !p.left:
			if rank := r.c.rankOf(p); rank >= 0 {
				r.end(pendingOf(rank, err))
			}
		}
	}
	for _, c := range m.resting {
		c.settle()
	}
}

func pendingOf(rank int, err error) error {
	return fmt.Errorf("%w: rank %d: %w", framework.ErrProcFailedPending, rank, err)
}

// explain turns the failure of a process into the error of an operation.
func (c *comm) explain(err error, rank int) error {
	if f, ok := err.(*procFailed); ok {
		return &framework.ProcFailedError{Ranks: []int{rank}, Cause: f.reason}
	}
	return err
}

// procFailed is the err of a proc that the bootstrap reported dead.
type procFailed struct{ reason string }

func (e *procFailed) Error() string { return "process failed: " + e.reason }

func (e *procFailed) Is(target error) bool { return target == framework.ErrProcFailed }
