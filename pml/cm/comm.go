package cm

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
)

// comm is one communicator.
type comm struct {
	m       *Module
	spec    pml.CommSpec
	word    uint32  // its id at this process, see ids
	peers   []*peer // by rank; nil until used
	procs   []*proc // by rank, as they were when the communicator was made
	near    []bool  // by rank: messages go through the node's PML; nil: none do
	pending int     // requests that are not complete, and claimed messages
	looks   int     // messages that are not freed: of looks that are under way, and what they found
	aborted [pml.Planes]error

	// Messages that were taken out of the network and have no receive, and receives
	// that wait while that is being done. See pull.
	queues   [pml.Planes]match.Queues[request, message]
	pulling  [pml.Planes]pulling
	deferred [pml.Planes][]*request

	closing bool // Close was called
	rested  bool // nothing is pending any more, and peers have been told
	quiet   bool // only members with whom nothing was exchanged may still send
	removed bool
}

// peer is one rank of one communicator.
type peer struct {
	c        *comm
	proc     *proc
	rank     int
	exchange cid.Exchange
	ready    bool   // word is known, and nothing is held: a message may go at once
	word     uint32 // the communicator's id there, see ids
	held     []*request
	asked    bool // it has been told this process's id
	told     bool // it has been told that the communicator is closed here
	final    bool // it sends nothing more than last says
	sent     [pml.Planes]uint64
	taken    [pml.Planes]uint64 // received, or dropped
	last     [pml.Planes]uint64
	match    [pml.Planes]match.Peer[request, message]
}

// AddComm implements pml.Module.
func (m *Module) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	if spec.Rank < 0 || spec.Rank >= len(spec.Group) || spec.Group[spec.Rank].Life != m.self {
		return nil, fmt.Errorf("%w: pml cm: rank %d is not this process", framework.ErrGroup, spec.Rank)
	}
	if spec.Indices != nil && len(spec.Indices) != len(spec.Group) {
		return nil, fmt.Errorf("%w: pml cm: %d indices for %d members", framework.ErrGroup, len(spec.Indices), len(spec.Group))
	}
	if int64(len(spec.Group)) > 1<<m.caps.SourceBits {
		return nil, fmt.Errorf("%w: pml cm: %d members; mtl %s has %d bits for a rank (%s)",
			framework.ErrUnsupported, len(spec.Group), m.name, m.caps.SourceBits, m.mtl.Describe().Mode)
	}
	near, n := m.nearMembers(&spec)
	if n == 0 {
		return m.addComm(spec)
	}
	node, err := m.nodeComm(spec)
	if err != nil {
		return nil, err
	}
	if n == len(spec.Group) {
		return &nearComm{node, m, spec}, nil
	}
	c, err := m.addComm(spec)
	if err != nil {
		node.Close()
		return nil, err
	}
	c.near = near
	return &mixed{comm: c, node: node}, nil
}

// addComm makes a communicator's part in the network.
func (m *Module) addComm(spec pml.CommSpec) (*comm, error) {
	m.engine.Lock()
	defer m.engine.Unlock()
	if m.byID[spec.ID] != nil {
		return nil, fmt.Errorf("%w: pml cm: communicator %v exists", framework.ErrGroup, spec.ID)
	}
	c := &comm{m: m, spec: spec, word: m.ids.word(spec.Local), peers: make([]*peer, len(spec.Group)), procs: make([]*proc, len(spec.Group))}
	for rank, member := range spec.Group {
		if c.procs[rank] = m.member(member.Life); c.procs[rank] == nil {
			return nil, fmt.Errorf("%w: pml cm: rank %d (%v) has not been learnt", framework.ErrGroup, rank, m.env.Worlds.Proc(member.ID))
		}
	}
	m.byID[spec.ID] = c
	index := int(spec.Local.Index())
	for len(m.comms) <= index {
		m.comms = append(m.comms, make([]*comm, max(64, len(m.comms)))...)
	}
	m.comms[index] = c
	c.unpark()
	return c, nil
}

// peer returns a rank's state, and makes it at the first use. Lock held.
func (c *comm) peer(rank int) *peer {
	if p := c.peers[rank]; p != nil {
		return p
	}
	p := &peer{c: c, proc: c.procs[rank], rank: rank, exchange: cid.NewExchange(cid.Held)}
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

// learnt follows every event of the exchange.
func (p *peer) learnt() {
	if p.exchange.Known() {
		p.word = p.c.m.ids.word(p.exchange.Remote())
	}
	p.ready = p.exchange.Known() && !p.exchange.Closed() && len(p.held) == 0
}

// rankOf returns the rank of a process, or -1.
func (c *comm) rankOf(p *proc) int { return slices.Index(c.procs, p) }

// over returns why nothing new begins on a plane, or nil. Lock held.
func (c *comm) over(plane pml.Plane) error {
	if c.closing {
		return framework.ErrClosed
	}
	return c.aborted[plane]
}

// cannotCome returns why no message will come from p, or from anybody of whom one
// might (nil), on this plane.
func (c *comm) cannotCome(p *peer, plane pml.Plane) error {
	if err := c.over(plane); err != nil {
		return err
	}
	return c.gone(p)
}

// gone returns the failure of p, or of any member (nil), of whom no message will
// come any more.
func (c *comm) gone(p *peer) error {
	if p != nil {
		if p.proc.err != nil {
			return c.explain(p.proc.err, p.rank)
		}
		return nil
	}
	if !c.m.failures {
		return nil
	}
	for rank, q := range c.procs {
		if q.err != nil && !q.left {
			return pendingOf(rank, q.err)
		}
	}
	return nil
}

// Abort implements pml.Comm. A send that the MTL has, and that nobody has received,
// ends too: the network may still read its buffer, for a message that nobody waits
// for any more.
func (c *comm) Abort(plane pml.Plane, err error) {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if c.aborted[plane] != nil {
		return
	}
	c.aborted[plane] = err
	m.failures = true
	for _, r := range m.requests {
		if r.c != c || r.plane != plane || r.state == complete {
			continue
		}
		if r.state == sent {
			r.fail(err)
		} else {
			r.end(err)
		}
	}
	m.wakeProbes()
}
