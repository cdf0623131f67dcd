package ob1

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/base"
)

// proc is one incarnation of a process, or of this process itself, with its card, paths,
// credit and queued frames. Communicators keep the incarnations that they were created with.
type proc struct {
	// The fields that every message reads come first, since small offsets shorten instructions.

	eagerPath
	creditAccount
	recvPath recvPath
	// lastPeer is the sender of the last message, if its communicator still exists.
	lastPeer *peer
	m        *Module

	base.Proc
	card framework.Card
	outPath
	// inTransport is the transport of the path from the process, or nil.
	inTransport *transport
	sendQueues
	doubt
	// withdrawableRTSs are unexpected RTSs of the process by handle.
	withdrawableRTSs map[uint64]*unexpectedMessage
	outgoing         largeSends
	incoming         largeReceives
}

// learn adds the card of an incarnation, which becomes the current one of its process. The
// former one fails. Lock held.
func (m *Module) learn(incarnation framework.Incarnation, card framework.Card) error {
	granted, err := parseAddress(card.Find(framework.PML, name))
	if err != nil {
		return err
	}
	p := m.procs.Get(incarnation)
	if !p.HasCard {
		p.grant(granted)
	}
	// A newer card may announce a transport that has restarted, so refusals no longer apply.
	p.card, p.refusals = card, nil
	if old := m.procs.SetPresent(p); old != nil {
		m.procs.Forget(old)
		old.drainPath()
		old.Fail(m.procs.ReplacedError(old.Incarnation))
	}
	// Answers have waited for the card.
	if len(p.pendingControls) > 0 {
		p.reopenPath()
		m.engine.Nudge()
	}
	return nil
}

// EndedPeers implements pml.Reconnector.
func (m *Module) EndedPeers() []framework.Incarnation {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.procs.EndedIncarnations()
}

// Reconnect implements pml.Reconnector. Existing communicators keep the failed process.
func (m *Module) Reconnect(incarnation framework.Incarnation) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.drainTransports()
	p := m.procs.Find(incarnation)
	if !m.procs.Reconnect(incarnation, p) {
		return
	}
	for _, t := range m.transports {
		if t.reconnector != nil {
			t.reconnector.Reconnect(incarnation)
		}
	}
	if p != nil {
		m.procs.Get(incarnation).Stats = p.Stats
	}
}

// DropPeer implements pml.PeerDropper.
func (m *Module) DropPeer(incarnation framework.Incarnation) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	p, ok := m.procs.Remove(incarnation)
	if !ok {
		return false
	}
	if p != nil {
		m.early.drop(p)
		p.lastPeer = nil
	}
	m.forgetPeer(incarnation)
	return true
}

// drainPath polls the frames that the process has already sent.
func (p *proc) drainPath() {
	// The source may find frames of other processes as well.
	s := p.receivePath().source
	for i := 0; i < maxDrainPolls && s != nil && s.Poll() > 0; i++ {
	}
}

// Fail implements base.Process. All operations with the process end with err. Lock held.
func (p *proc) Fail(err error) {
	if !p.MarkEnded(err) {
		return
	}
	p.m.failures++
	p.suspectedFor = nil
	p.closePath(err)
	p.sendQueues.drop()
	p.incoming.scheduled, p.incoming.inFlight, p.incoming.bytesInFlight = requestList{}, 0, 0
	for _, r := range p.m.requests {
		if r.state == stateIdle || r.state == stateComplete || r.p == nil && r.state != statePosted {
			continue
		}
		if err := r.c.EndError(r.source(), r.plane, p); err != nil {
			if r.state == statePosted {
				r.c.queues[r.plane].Cancel(&r.node)
			}
			r.fail(err)
		}
	}
	for _, c := range p.m.comms.ByID {
		c.recheckWaiters()
	}
	for _, c := range p.m.quarantined {
		for _, rank := range c.Ranks(p) {
			if q := c.peers.Get(rank); q != nil {
				c.releaseIndex(c.Closing.MemberEnded(&q.closing))
			}
		}
	}
}
