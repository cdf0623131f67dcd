package cm

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// proc is one life of a process: a process that closes its last session and opens
// one again is another proc, told by its nonce.
type proc struct {
	m     *Module
	id    framework.ProcID
	nonce uint64
	card  pml.Card

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

func (p *proc) String() string { return p.m.env.Worlds.Proc(p.id).String() }

// learn takes the card of a process, which names its present life. Lock held.
func (m *Module) learn(id framework.ProcID, card pml.Card) {
	old := m.procs[id]
	if old != nil && old.nonce == card.Nonce {
		return
	}
	p := &proc{m: m, id: id, nonce: card.Nonce, card: card}
	p.stats.ID, p.stats.Transport = id, m.name
	m.procs[id] = p
	m.byNonce[card.Nonce] = p
	switch {
	case old == nil:
	case old.err != nil:
		delete(m.byNonce, old.nonce)
	case !old.left: // its goodbye may come later, and what it has sent before
		old.leave(unknown)
	}
	if reason, dead := m.dead[id]; dead {
		p.fail(&procFailed{reason})
	}
	m.meet(p)
}

// peer returns what the MTL needs to connect.
func (p *proc) peer() (mtl.Peer, error) {
	for _, a := range p.card.Addresses {
		if a.Component == p.m.name {
			return mtl.Peer{ID: p.id, Proc: p.m.env.Worlds.Proc(p.id), Nonce: p.nonce, Blob: a.Blob}, nil
		}
	}
	return mtl.Peer{}, fmt.Errorf("the peer has no address for mtl %s: it is not open there", p.m.name)
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
	p.m.hook(pml.Event{Kind: pml.EventTransportUp, Peer: p.id, Note: p.m.name})
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
	p.m.hook(pml.Event{Kind: pml.EventTransportOut, Peer: p.id, Note: p.unreachable.Error()})
}

// fail ends everything that is pending with this process. Receives that the MTL
// has are withdrawn, and end when that is certain. That it has died replaces what the
// network had said before. Lock held.
func (p *proc) fail(err error) {
	if _, died := err.(*procFailed); p.err != nil && (p.left || !died) {
		return
	}
	m := p.m
	p.err, p.unreachable, p.left, p.early = err, err, errors.Is(err, btl.ErrPeerClosed), early{}
	p.forget()
	m.failures = true
	if m.procs[p.id] != p { // it has a newer life
		delete(m.byNonce, p.nonce)
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
