package ob1

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// comm is one communicator.
type comm struct {
	m       *Module
	spec    pml.CommSpec
	peers   []*peer // by rank; nil until used
	procs   []*proc // by rank, as they were when the communicator was made
	queues  [pml.Planes]match.Queues[request, message]
	probes  []*progress.Completion // of blocked probes; completed at an arrival
	pending int                    // requests that are not complete, and claimed messages
	closing bool                   // Close was called
	removed bool                   // nothing is pending any more, and the index is given up
	waiting int                    // while resting: peers that may still send here
	aborted [pml.Planes]error
}

// peer is one rank of one communicator.
type peer struct {
	c        *comm
	proc     *proc
	rank     int
	exchange cid.Exchange
	// word is the first word of a compact eager header to it, without the plane:
	// type and the peer's index; 0 while that is not known. See putHeader.
	word uint64
	// inWord is that of its messages to this process.
	inWord  uint64
	sendSeq uint64 // of the next message to it, modulo 1<<32
	recvSeq uint32 // of the next message from it
	closed  bool   // it has closed the communicator: nothing more comes
	told    bool   // it has been told that this process has
	match   [pml.Planes]match.Peer[request, message]
}

// AddComm implements pml.Module.
func (m *Module) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	if spec.Rank < 0 || spec.Rank >= len(spec.Group) || spec.Group[spec.Rank].Life != m.self {
		return nil, fmt.Errorf("%w: pml ob1: rank %d is not this process", framework.ErrGroup, spec.Rank)
	}
	if spec.Indices != nil && len(spec.Indices) != len(spec.Group) {
		return nil, fmt.Errorf("%w: pml ob1: %d indices for %d members", framework.ErrGroup, len(spec.Indices), len(spec.Group))
	}
	m.engine.Lock()
	defer m.engine.Unlock()
	if m.byID[spec.ID] != nil {
		return nil, fmt.Errorf("%w: pml ob1: communicator %v exists", framework.ErrGroup, spec.ID)
	}
	c := &comm{m: m, spec: spec, peers: make([]*peer, len(spec.Group)), procs: make([]*proc, len(spec.Group))}
	for rank, member := range spec.Group {
		if c.procs[rank] = m.member(member.Life); c.procs[rank] == nil {
			return nil, fmt.Errorf("%w: pml ob1: rank %d (%v) has not been learnt", framework.ErrGroup, rank, m.env.Worlds.Proc(member.ID))
		}
	}
	m.byID[spec.ID] = c
	index := int(spec.Local.Index())
	for len(m.comms) <= index {
		m.comms = append(m.comms, make([]*comm, max(64, len(m.comms)))...)
	}
	m.comms[index] = c
	m.deliverParked(c)
	return c, nil
}

// peer returns a rank's state, and makes it at the first use. Lock held.
func (c *comm) peer(rank int) *peer {
	if p := c.peers[rank]; p != nil {
		return p
	}
	p := &peer{c: c, proc: c.procs[rank], rank: rank, exchange: cid.NewExchange(cid.Inline), inWord: firstWord(c.spec.Local)}
	switch {
	case c.spec.Agreed || rank == c.spec.Rank:
		p.exchange.Preset(c.spec.Local)
	case c.spec.Indices != nil:
		p.exchange.Preset(c.spec.Indices[rank])
	}
	p.learnt()
	c.peers[rank] = p
	return p
}

// learnt follows every event of the exchange that may have taught the peer's
// index.
func (p *peer) learnt() {
	if p.exchange.Known() {
		p.word = firstWord(p.exchange.Remote())
	}
}

// firstWord is the first word of a compact eager header, on plane 0, for a
// receiver whose index of the communicator is local.
func firstWord(local cid.Local) uint64 { return frameMatch | uint64(local)<<32 }

// rankOf returns the rank of a process, or -1.
func (c *comm) rankOf(p *proc) int { return slices.Index(c.procs, p) }

// Close implements pml.Comm.
func (c *comm) Close() {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if c.closing {
		return
	}
	c.closing = true
	for _, p := range c.peers {
		if p != nil {
			p.word = 0 // a send that races this finds out, see startSend
		}
	}
	// No receive can be posted any more: what is here, and what still comes, is
	// for nobody, and its senders must not wait for a receiver.
	for plane := range c.queues {
		c.queues[plane].Unexpected(func(msg *match.Message[message]) {
			c.queues[plane].Take(msg)
			m.discard(msg.Owner)
		})
	}
	c.wakeProbes()
	if c.pending == 0 {
		c.remove()
	}
}

// remove takes the communicator out. Lock held.
func (c *comm) remove() {
	m := c.m
	c.removed = true
	for _, p := range c.peers {
		if p != nil && p.proc.last == p {
			p.proc.last = nil
		}
	}
	delete(m.byID, c.spec.ID)
	m.comms[c.spec.Local.Index()] = nil
	m.gone.Add(c.spec.ID)
	c.rest()
}

// discard drops an unexpected message that nobody will receive.
func (m *Module) discard(msg *message) {
	msg.p.proc.stats.Dropped++
	if msg.offer {
		msg.p.proc.control(acceptFrame(msg.handle, 0, 0))
	}
	m.giveUp(msg)
}

// giveUp frees a message whose payload nobody needs any more, and owes its credit.
func (m *Module) giveUp(msg *message) {
	if bytes, ok := msg.charged(); ok {
		msg.p.proc.owe(bytes)
	}
	m.freeMessage(msg)
}

// wakeProbes has blocked probes look again. Lock held.
func (c *comm) wakeProbes() {
	for _, p := range c.probes {
		if !p.Done() {
			c.m.engine.Complete(p)
		}
	}
}

// over returns why nothing new begins on a plane, or nil. Lock held.
func (c *comm) over(plane pml.Plane) error {
	if c.closing {
		return framework.ErrClosed
	}
	return c.aborted[plane]
}
