package ob1

import (
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// comm is one communicator.
type comm struct {
	m       *Module
	peers   base.Table[*peer]
	slow    bool       // no fast path: a plane is barred, or hooks want to see all
	refused bool       // by a member
	asked   base.Asked // whether they are in it
	base.Comm[*proc]
	base.Probes
	queues [pml.Planes]match.Queues[request, message]
	probes []*progress.Completion // of blocked probes; completed at an arrival
	// barred says that no receive may be posted on a plane: the communicator is closed,
	// or somebody watches.
	barred   [pml.Planes]bool
	watchers [pml.Planes]pml.Watcher
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
	inWord   uint64
	sendSeq  uint64 // of the next message to it, modulo 1<<32
	recvSeq  uint32 // of the next message from it
	closing  cid.Closing
	inquired bool // it was asked whether it is in the communicator
	refused  bool // it is not
	match    [pml.Planes]match.Peer[request, message]
}

// AddComm implements pml.Module.
func (m *Module) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	m.engine.Lock()
	defer m.engine.Unlock()
	known, err := m.procs.Comm(spec, cid.Rest{})
	if err != nil {
		return nil, err
	}
	c := &comm{Comm: known, m: m, slow: m.env.Hooks != nil, peers: base.NewTable[*peer](known.Len(), known.IsWhole())}
	c.Probes = base.NewProbes(m.engine, c)
	if err := m.comms.Add(name, &c.State, c); err != nil {
		m.procs.Drop(&c.Comm)
		return nil, err
	}
	m.deliverEarly(c)
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
	p := &peer{c: c, proc: proc, rank: rank, exchange: c.Exchange(rank, cid.Inline), inWord: firstWord(c.Spec.Local)}
	p.learnt()
	c.peers.Set(rank, p)
	return p
}

// cidFrame is one from the communicator's handle here to the peer's.
func (p *peer) cidFrame(typ byte) control {
	c := p.c
	to := cid.EndpointID{Extended: c.Spec.ID, Endpoint: c.EndpointOf(p.rank)}
	return cidFrame(typ, to, c.Endpoint, c.Spec.Rank, c.Spec.Local)
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

// Close implements pml.Comm.
func (c *comm) Close() {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if !c.Rest.Close() {
		return
	}
	for _, p := range c.peers.All() {
		p.word = 0 // a send that races this finds out, see startSend
	}
	// No receive can be posted any more: what is here, and what still comes, is
	// for nobody, and its senders must not wait for a receiver.
	for plane := range c.queues {
		c.bar(pml.Plane(plane))
		c.queues[plane].Unexpected(func(msg *match.Message[message]) {
			c.queues[plane].Take(msg)
			m.discard(msg.Owner)
		})
	}
	c.wakeProbes()
	if c.Pending == 0 {
		c.part()
	}
}

// discard drops an unexpected message that nobody will receive.
func (m *Module) discard(msg *message) {
	msg.p.proc.Stats.Dropped++
	if msg.rts {
		msg.p.proc.control(droppedFrame(msg.handle))
	}
	m.giveUp(msg)
}

// giveUp frees a message whose payload nobody needs any more, and owes its credit.
func (m *Module) giveUp(msg *message) {
	msg.p.proc.release(msg.rts, msg.data)
	m.freeMessage(msg)
}

// Abort implements pml.Comm.
func (c *comm) Abort(plane pml.Plane, err error) {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if c.Aborted[plane] != nil {
		return
	}
	c.Aborted[plane] = err
	m.failures++ // receives look for a reason why nothing can come
	for _, r := range m.requests {
		if r.c == c && r.plane == plane {
			r.Cancel() // fails it with err, now or when the peer has answered
		}
	}
	c.changed()
}

// Suspend implements pml.Comm.
func (c *comm) Suspend(plane pml.Plane, why error) {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	c.SetSuspended(plane, why)
	if why != nil {
		m.failures++ // receives are rechecked when they are posted
	}
	q := &c.queues[plane]
	if err := c.CannotCome(pml.AnySource, plane); err != nil {
		for r := q.FirstPosted(nil); r != nil; r = q.FirstPosted(nil) {
			q.Cancel(r)
			r.Owner.fail(err)
		}
	}
	q.Posted(nil, func(r *match.Recv[request]) { r.Owner.SetSuspended(why) })
	c.changed()
}

// wakeProbes has blocked probes look again. Lock held.
func (c *comm) wakeProbes() {
	for _, p := range c.probes {
		if !p.Done() {
			c.m.engine.Complete(p)
		}
	}
}
