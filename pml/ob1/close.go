package ob1

import (
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// leave removes a closed communicator without pending operations, and notifies its members
// (see cid.CommClose). Paths keep the order of frames, so after a member's CLOSED no message from
// it uses the index. A member without exchanged messages may still send. Such a message
// has the old generation of the index, which the table reuses as late as possible. Lock held.
func (c *comm) leave() {
	m := c.m
	m.comms.Remove(&c.State)
	m.procs.Drop(&c.Comm)
	m.comms.Table.Quarantine(c.Spec.Local)
	m.quarantined[c.ID()] = c
	for rank, p := range c.peers.All() {
		if p.proc.lastPeer == p {
			p.proc.lastPeer = nil
		}
		switch {
		case rank == c.Spec.Rank:
		case p.proc.Err != nil:
			c.Closing.MemberEnded(&p.closing)
		case c.Closing.NotifyPeer(&p.closing, p.sendSeq != 0 || p.recvSeq != 0, true)&cid.SendClosed != 0:
			if p.proc.openPath() != nil {
				c.Closing.MemberEnded(&p.closing)
			} else {
				p.proc.sendControl(p.memberFrame(frameClosed, 0))
			}
		}
	}
	c.releaseIndex(c.Closing.FinishNotify())
}

// releaseIndex ends the quarantine of the index if act requires it. Lock held.
func (c *comm) releaseIndex(act cid.Action) {
	if act&cid.FreeIndex != 0 {
		delete(c.m.quarantined, c.ID())
		c.m.comms.Table.EndQuarantine(c.Spec.Local)
	}
}

// handleClosed handles a CLOSED frame. Lock held.
func (p *proc) handleClosed(f []byte) error {
	m, in := p.m, parseMemberFrame(f)
	isReply := in.flags&closedReply != 0
	c := m.comms.ByID[in.to]
	if c == nil {
		c = m.quarantined[in.to]
	}
	if c == nil {
		switch {
		case isReply:
		case m.comms.IsEnded(in.to):
			p.confirmClosed(in.to, in.from)
		default: // not created here yet, since members close and create at different times
			m.keepEarly(keyOf(in.to), p, f)
		}
		return nil
	}
	rank := in.rank
	if isReply { // a process that has dropped the communicator does not know its rank
		rank = uint32(c.RankOf(p, in.from))
	}
	q, err := c.memberAtEndpoint(p, rank, in.from)
	if err != nil {
		return err
	}
	act := c.Closing.RecvClosed(&q.closing, isReply, true)
	if in.flags&closedRefused != 0 {
		q.handleRefusal()
	}
	if act&cid.SendClosedAck != 0 {
		p.confirmClosed(in.to, in.from)
	}
	c.releaseIndex(act)
	return nil
}

// handleRefusal ends all operations with a member that has failed to create the communicator.
func (q *peer) handleRefusal() {
	c := q.c
	if c.IsClosed() || q.hasRefused {
		return
	}
	q.hasRefused, c.hasRefusal, q.sendWord = true, true, 0
	for _, r := range c.m.requests {
		switch {
		case r.c != c || r.p != q && r.p != nil:
		case r.state == statePosted:
			c.queues[r.plane].Cancel(&r.node)
			r.fail(c.m.procs.NotMemberError(q.proc.Incarnation))
		case r.state == stateQueued || r.state == stateOffered:
			r.Cancel()
		}
	}
	c.recheckWaiters()
}

// refusalError returns an error if src, or any member for AnySource, has failed to create the
// communicator.
func (c *comm) refusalError(src int) error {
	if !c.hasRefusal {
		return nil
	}
	for _, q := range c.peers.All() {
		if q.hasRefused && (src == q.rank || src == pml.AnySource) {
			return c.m.procs.NotMemberError(q.proc.Incarnation)
		}
	}
	return nil
}

// Inquire implements pml.Module.
func (m *Module) Inquire(by framework.ProcID) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.drainTransports()
	m.inquiries.RecordProcess(by)
	m.inquire()
}

// inquire asks members without any message whether they have created the communicator,
// if an operation waits for them. The creation fails at some members if a process fails
// meanwhile. Lock held.
func (m *Module) inquire() {
	m.inquiries.RecordEvent()
	// Later receives, probes and watchers inquire as well.
	m.failures++
	for _, r := range m.requests {
		if r.state == statePosted || r.state == stateOffered {
			r.c.inquire(r.source())
		}
	}
	for _, c := range m.comms.ByID {
		c.recheckWaiters()
	}
}

// inquire asks the member src, or for AnySource those that base.RanksToAsk selects. Lock held.
func (c *comm) inquire(src int) {
	if src != pml.AnySource {
		c.peer(src).inquire()
		return
	}
	if !c.inquired.IsDue(&c.m.inquiries) {
		return
	}
	for rank := range base.RanksToAsk(&c.Comm, &c.peers, &c.m.inquiries) {
		if !c.Spec.IsElsewhere(rank) {
			c.peer(rank).inquire()
		}
	}
}

func (p *peer) inquire() {
	if p.isInquired || p.recvSeq != 0 || p.rank == p.c.Spec.Rank || p.proc.Err != nil {
		return
	}
	p.isInquired = true
	p.proc.sendControl(p.memberFrame(frameCID, cidInquiry))
}

// Refuse implements pml.Module.
func (m *Module) Refuse(s cid.Span, endpoint int) {
	m.engine.Lock()
	defer m.engine.Unlock()
	covers := m.comms.Refuse(s, endpoint)
	for key := range m.early {
		if covers(key.id) {
			m.replayEarly(key)
		}
	}
	m.dropEarly()
}

// confirmClosed answers a frame for a closed or refused handle, which endpoint to of the
// process has sent.
func (p *proc) confirmClosed(id cid.EndpointID, to uint16) {
	flags := byte(closedReply)
	if p.m.comms.IsRefused(id) {
		flags |= closedRefused
	}
	p.sendControl(newMemberFrame(frameClosed, memberFrame{
		flags: flags, to: cid.EndpointID{Extended: id.Extended, Endpoint: to}, from: id.Endpoint, local: cid.NoLocal,
	}))
}
