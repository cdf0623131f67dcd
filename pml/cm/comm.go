package cm

import (
	"fmt"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// comm is one communicator.
type comm struct {
	base.Comm[*proc]
	base.Probes
	m       *Module
	word    uint32 // its id at this process, see ids
	peers   base.Table[*peer]
	refused bool       // by a member
	asked   base.Asked // whether they are in it
	// searched is how many processes had failed, by plane, when the reaper began the last
	// probe that has found nothing.
	searched [pml.Planes]uint32
	unwanted int // Messages that are held, of all members.
	probing  int // messages that are not freed: of probes that are under way, and what they found

	// Messages that were taken out of the network and have no receive, and receives
	// that wait while that is being done, which are in deferred, too. See pull.
	queues   [pml.Planes]match.Queues[request, message]
	pulling  [pml.Planes]pulling
	deferred [pml.Planes]match.Order[request]
	sweepers [pml.Planes]*sweeper // nil where the network matches.
	hasDead  bool                 // The bootstrap has reported the death of a member.
}

// peer is one rank of one communicator.
type peer struct {
	c        *comm
	proc     *proc
	rank     int
	exchange cid.Exchange
	ready    bool   // word is known, and nothing is held: a message may go at once
	endpoint uint16 // of its process, that the rank is
	word     uint32 // the communicator's id there, see ids
	held     match.Order[request]
	asked    bool // it has been told this process's id
	inquired bool // it was asked whether it is in the communicator
	refused  bool // it is not
	closing  cid.Closing
	tally    cid.Tally
	missed   missed
	unwanted unwanted
	syncs    syncs
	match    [pml.Planes]match.Peer[request, message]
}

// AddComm implements pml.Module.
func (m *Module) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	if n := int64(spec.Members.Len()); n > 1<<m.caps.SourceBits {
		return nil, fmt.Errorf("%w: pml cm: %d members: mtl %s (%s) has %d bits for ranks, room for %d: use fewer ranks",
			framework.ErrUnsupported, n, m.name, m.mtl.Describe().Mode, m.caps.SourceBits, int64(1)<<m.caps.SourceBits)
	}
	m.engine.Lock()
	defer m.engine.Unlock()
	strangers := 0
	if spec.Agreed || spec.Indices != nil { // otherwise who sends has asked before
		for rank := range spec.Members.Len() {
			if rank != spec.Rank && !spec.IsElsewhere(rank) {
				strangers++
			}
		}
	}
	known, err := m.procs.Comm(spec, cid.NewRest(cid.Held, strangers))
	if err != nil {
		return nil, err
	}
	if err := m.fits(&known); err != nil {
		m.procs.Drop(&known)
		return nil, err
	}
	c := &comm{Comm: known, m: m, word: m.ids.word(spec.Local), peers: base.NewTable[*peer](known.Len(), known.IsWhole())}
	c.Probes = base.NewProbes(m.engine, c)
	c.hasDead = m.deaths > 0 && c.lastDead() != nil
	if err := m.comms.Add("cm", &c.State, c); err != nil {
		m.procs.Drop(&c.Comm)
		return nil, err
	}
	if !c.IsWhole() {
		m.handles[spec.ID]++
	}
	c.takeEarly()
	return c, nil
}

// peer returns a rank's state, and makes it at the first use. Lock held.
func (c *comm) peer(rank int) *peer {
	if p := c.peers.Get(rank); p != nil {
		return p
	}
	proc := c.Proc(rank)
	if p := c.peers.Get(rank); p != nil { // The end of a process may have made it.
		return p
	}
	p := &peer{c: c, proc: proc, rank: rank, endpoint: c.EndpointOf(rank), exchange: c.Exchange(rank, cid.Held)}
	p.learnt()
	c.peers.Set(rank, p)
	return p
}

// id identifies the member's handle in its process.
func (p *peer) id() cid.EndpointID {
	return cid.EndpointID{Extended: p.c.Spec.ID, Endpoint: p.endpoint}
}

// learnt follows every event of the exchange.
func (p *peer) learnt() {
	if p.exchange.Known() {
		p.word = p.c.m.ids.word(p.exchange.Remote())
	}
	p.ready = p.exchange.Known() && !p.exchange.Closed() && p.held.First() == nil && !p.syncs.hasStopped
}

// cannotCome returns why no message will come from src, or from anybody of whom one
// might, on this plane. Where it is not known that a member is in the communicator, that
// one is asked.
func (c *comm) cannotCome(src int, plane pml.Plane) error {
	if !c.m.failures && !c.refused {
		return nil
	}
	return c.whyNone(src, plane)
}

// whyNone is cannotCome where something has failed.
func (c *comm) whyNone(src int, plane pml.Plane) error {
	if err := c.refusedBy(src); err != nil {
		return err
	}
	err := c.CannotCome(src, plane)
	if err == nil {
		c.inquire(src)
	}
	return err
}

// Abort implements pml.Comm. The network may read the buffer of a send that it has, for a
// member that is notified later. Such a send ends when that member has received the message or
// dropped it, because all members empty a plane that is aborted. So does a send in parts, whose head may have matched.
func (c *comm) Abort(plane pml.Plane, err error) {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if c.Aborted[plane] != nil {
		return
	}
	c.Aborted[plane] = err
	m.failures = true
	for _, r := range m.requests {
		if r.c == c && r.plane == plane && r.state != announced && r.state != assembling && r.state != confirming {
			r.end(err)
		}
	}
	c.discardKept(plane)
	c.beReaped()
	m.wakeProbes()
}
