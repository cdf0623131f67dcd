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
	m     *Module
	peers base.Table[*peer]
	// needsSlowPath is set if a plane is barred, or if hooks must see each message.
	needsSlowPath bool
	// hasRefusal is set if a member has failed to create the communicator.
	hasRefusal bool
	inquired   base.InquiryMark
	base.Comm[*proc]
	base.Probes
	queues [pml.Planes]match.Queues[request, unexpectedMessage]
	// blockedProbes complete at the arrival of an unexpected message.
	blockedProbes []*progress.Completion
	// isBarred is set for planes that take no receives, since the communicator is closed or the
	// plane is watched.
	isBarred [pml.Planes]bool
	watchers [pml.Planes]pml.Watcher
}

// peer is one rank of a communicator.
type peer struct {
	c        *comm
	proc     *proc
	rank     int
	exchange cid.Exchange
	// sendWord is the first word of a compact eager header to the peer, on plane 0, and recvWord
	// that of a header from it. sendWord is 0 while the peer's index is unknown.
	sendWord uint64
	recvWord uint64
	// sendSeq and recvSeq are the next sequence numbers, modulo 1<<32.
	sendSeq uint64
	recvSeq uint32
	closing cid.PeerClose
	// isInquired is set after an inquiry whether the peer is a member, and hasRefused if it is not.
	isInquired bool
	hasRefused bool
	match      [pml.Planes]match.Peer[request, unexpectedMessage]
}

// AddComm implements pml.Module.
func (m *Module) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	m.engine.Lock()
	defer m.engine.Unlock()
	known, err := m.procs.Comm(spec, cid.CommClose{})
	if err != nil {
		return nil, err
	}
	c := &comm{Comm: known, m: m, needsSlowPath: m.env.Hooks != nil, peers: base.NewTable[*peer](known.Len(), known.IsWhole())}
	c.Probes = base.NewProbes(m.engine, c)
	if err := m.comms.Add(name, &c.State, c); err != nil {
		m.procs.Drop(&c.Comm)
		return nil, err
	}
	m.deliverEarly(c)
	return c, nil
}

// peer returns the state of a rank, and creates it at the first use. Lock held.
func (c *comm) peer(rank int) *peer {
	if p := c.peers.Get(rank); p != nil {
		return p
	}
	proc := c.Proc(rank)
	// The failure of a process, which Proc may detect, creates it as well.
	if p := c.peers.Get(rank); p != nil {
		return p
	}
	p := &peer{c: c, proc: proc, rank: rank, exchange: c.Exchange(rank, cid.Inline), recvWord: eagerWord(c.Spec.Local)}
	p.updateSendWord()
	c.peers.Set(rank, p)
	return p
}

// memberFrame returns a frameCID or frameClosed to the peer.
func (p *peer) memberFrame(typ, flags byte) controlFrame {
	c := p.c
	to := cid.EndpointID{Extended: c.Spec.ID, Endpoint: c.EndpointOf(p.rank)}
	return newMemberFrame(typ, memberFrame{flags: flags, to: to, from: c.Endpoint, rank: uint32(c.Spec.Rank), local: c.Spec.Local})
}

// updateSendWord enables compact headers once the exchange has learned the peer's index.
func (p *peer) updateSendWord() {
	if p.exchange.Known() {
		p.sendWord = eagerWord(p.exchange.Remote())
	}
}

// Close implements pml.Comm.
func (c *comm) Close() {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if !c.Closing.Close() {
		return
	}
	for _, p := range c.peers.All() {
		// A concurrent eager send takes the slow path, where startSend checks for Close.
		p.sendWord = 0
	}
	// Senders of unexpected messages must not wait, since no receive can be posted from here on.
	for plane := range c.queues {
		c.barReceives(pml.Plane(plane))
		c.queues[plane].Unexpected(func(msg *match.Message[unexpectedMessage]) {
			c.queues[plane].RemoveUnexpected(msg)
			m.discardUnexpected(msg.Owner)
		})
	}
	c.wakeProbes()
	if c.Pending == 0 {
		c.leave()
	}
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
	// New receives check whether a message can still arrive.
	m.failures++
	for _, r := range m.requests {
		if r.c == c && r.plane == plane {
			// It fails with err, at once or when the peer has answered.
			r.Cancel()
		}
	}
	c.recheckWaiters()
}

// Suspend implements pml.Comm.
func (c *comm) Suspend(plane pml.Plane, why error) {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	c.SetSuspended(plane, why)
	if why != nil {
		// New receives are checked when they are posted.
		m.failures++
	}
	q := &c.queues[plane]
	if err := c.SourceError(pml.AnySource, plane); err != nil {
		for r := q.FirstPosted(nil); r != nil; r = q.FirstPosted(nil) {
			q.Cancel(r)
			r.Owner.fail(err)
		}
	}
	q.Posted(nil, func(r *match.Recv[request]) { r.Owner.SetSuspended(why) })
	c.recheckWaiters()
}

// wakeProbes lets blocked probes search again. Lock held.
func (c *comm) wakeProbes() {
	for _, p := range c.blockedProbes {
		if !p.Done() {
			c.m.engine.Complete(p)
		}
	}
}
