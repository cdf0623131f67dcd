package ob1

import (
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// part takes a closed communicator out, on which nothing is pending any more, and tells
// its members: see cid.Rest. Paths keep the order of frames, so that after a member's
// frameClosed no message of its comes that names the index. A member with whom nothing
// was exchanged may still send; such a message names the old generation of the index,
// and the table never gives the same index and generation out twice without need. Lock
// held.
func (c *comm) part() {
	m := c.m
	m.comms.Remove(&c.State)
	m.procs.Drop(&c.Comm)
	m.comms.Table.Rest(c.Spec.Local)
	m.quarantined[c.ID()] = c
	for rank, p := range c.peers.All() {
		if p.proc.last == p {
			p.proc.last = nil
		}
		switch {
		case rank == c.Spec.Rank:
		case p.proc.Err != nil:
			c.Rest.Gone(&p.closing)
		case c.Rest.Part(&p.closing, p.sendSeq != 0 || p.recvSeq != 0, true)&cid.Tell != 0:
			if !p.proc.control(p.cidFrame(frameClosed)) {
				c.Rest.Gone(&p.closing)
			}
		}
	}
	c.end(c.Rest.Parted())
}

// end gives the index up if act says so. Lock held.
func (c *comm) end(act cid.Action) {
	if act&cid.Rested != 0 {
		delete(c.m.quarantined, c.ID())
		c.m.comms.Table.Rested(c.Spec.Local)
	}
}

// closed takes a frameClosed. Lock held.
func (p *proc) closed(f []byte) error {
	m := p.m
	id, from := getCIDFrame(f)
	reply := f[1]&closedReply != 0
	c := m.comms.ByID[id]
	if c == nil {
		c = m.quarantined[id]
	}
	if c != nil {
		rank := le.Uint32(f[4:])
		if reply { // whoever has forgotten the communicator has forgotten its rank
			rank = uint32(c.RankOf(p, from))
		}
		q, err := c.fromEndpoint(p, rank, from)
		if err != nil {
			return err
		}
		act := c.Rest.RecvClosed(&q.closing, reply, true)
		if f[1]&closedRefused != 0 {
			q.refuse()
		}
		if act&cid.Answer != 0 {
			p.confirmClosed(id, from)
		}
		c.end(act)
		return nil
	}
	switch {
	case reply:
	case m.comms.Over(id):
		p.confirmClosed(id, from)
	default: // not here yet: members close and create at different times
		m.keepEarly(keyOf(id), p, f)
	}
	return nil
}

// refuse takes the word of a member that its part in the creation has failed: nothing
// comes of it.
func (q *peer) refuse() {
	c := q.c
	if c.Closed() || q.refused {
		return
	}
	q.refused, c.refused, q.word = true, true, 0
	for _, r := range c.m.requests {
		switch {
		case r.c != c || r.p != q && r.p != nil:
		case r.state == posted:
			c.queues[r.plane].Cancel(&r.node)
			r.fail(c.m.procs.NotMember(q.proc.Life))
		case r.state == queued || r.state == rtsSent:
			r.Cancel()
		}
	}
	c.changed()
}

// refusedBy returns the error of a receive from a member that has refused, or from any if
// one has.
func (c *comm) refusedBy(src int) error {
	if !c.refused {
		return nil
	}
	for _, q := range c.peers.All() {
		if q.refused && (src == q.rank || src == pml.AnySource) {
			return c.m.procs.NotMember(q.proc.Life)
		}
	}
	return nil
}

// Inquire implements pml.Module.
func (m *Module) Inquire(by framework.ProcID) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.lastPolls()
	m.inquiries.Name(by)
	m.inquire()
}

// inquire has whoever waits, with a send too, ask the members from which nothing has come
// on a communicator whether they are in it at all: their part in its creation may have
// failed, as it does in some when a process fails. Lock held.
func (m *Module) inquire() {
	m.inquiries.Begin()
	m.failures++ // watchers, and receives and probes that come later, ask
	for _, r := range m.requests {
		if r.state == posted || r.state == rtsSent {
			r.c.inquire(r.source())
		}
	}
	for _, c := range m.comms.ByID {
		c.changed()
	}
}

// inquire asks the member that is src, or those of base.ToAsk. Lock held.
func (c *comm) inquire(src int) {
	if src != pml.AnySource {
		c.peer(src).inquire()
		return
	}
	if !c.asked.Once(&c.m.inquiries) {
		return
	}
	for rank := range base.ToAsk(&c.Comm, &c.peers, &c.m.inquiries) {
		if !c.Spec.IsElsewhere(rank) {
			c.peer(rank).inquire()
		}
	}
}

func (p *peer) inquire() {
	if p.inquired || p.recvSeq != 0 || p.rank == p.c.Spec.Rank || p.proc.Err != nil {
		return
	}
	p.inquired = true
	ask := p.cidFrame(frameCID)
	ask.b[1] = cidInquiry
	p.proc.control(ask)
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

// confirmClosed answers a frame that endpoint to of the process has sent to a handle that is
// closed, or refused.
func (p *proc) confirmClosed(id cid.EndpointID, to uint16) {
	answer := cidFrame(frameClosed, cid.EndpointID{Extended: id.Extended, Endpoint: to}, id.Endpoint, 0, cid.NoLocal)
	if answer.b[1] = closedReply; p.m.comms.Refused(id) {
		answer.b[1] |= closedRefused
	}
	p.control(answer)
}
