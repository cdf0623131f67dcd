package cm

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// How an id comes to be used again.
//
// A network keeps a message until a receive with its id takes it. So before the id
// of a closed communicator may name another one, all that was sent under it must be
// out of the network. cid.Rest says when that is: control messages may overtake messages,
// and carry counts. What nobody has received the reaper finds and drops. For strangers,
// which may still send, it goes on looking until mostQuiet others have closed after this
// one; from then on only the generation in the id, of which a layout may have few bits,
// keeps such a message from meeting a newer communicator.
//
// For those of a member that has failed nobody waits, whatever it had said. But its
// messages that have come must not meet a newer communicator either, least of all those
// that can't be received any more: the reaper looks once more, after the failure.

// Close implements pml.Comm.
func (c *comm) Close() {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if !c.Rest.Close() {
		return
	}
	for plane := range pml.Plane(pml.Planes) {
		c.discardKept(plane)
	}
	m.wakeProbes()
	c.beReaped()
	c.mayRest()
}

// beReaped has the messages that come for nobody any more looked for and dropped: all, or
// those on planes that are aborted. Lock held.
func (c *comm) beReaped() {
	m := c.m
	if !slices.Contains(m.reaped, c) {
		m.reaped = append(m.reaped, c)
	}
	m.reaper.gap, m.reaper.next = 0, time.Time{}
}

// discardKept drops the unexpected messages of a plane that is closed or aborted. No receive can be
// posted there, and their senders must not wait for one. Receives that wait for the end of a pull come
// first. Lock held.
func (c *comm) discardKept(plane pml.Plane) {
	if c.pulling[plane].left > 0 {
		return
	}
	c.queues[plane].Unexpected(func(msg *match.Message[message]) { c.unkeep(msg, plane).reject() })
}

// mayRest tells the others, once the communicator is closed and nothing is pending.
// Lock held.
func (c *comm) mayRest() {
	m := c.m
	switch stage := c.Rest.Stage(); {
	case stage == cid.Open || c.Pending > 0 || m.closed:
		return
	case stage != cid.Ending: // a matched probe had begun before, and what it has found is received
		for _, p := range c.peers.All() {
			if p.tally.Any() {
				p.late()
			}
		}
		return
	}
	m.comms.Table.Rest(c.Spec.Local)
	for rank, p := range c.peers.All() {
		switch {
		case c.Spec.IsElsewhere(rank):
		case rank == c.Spec.Rank:
			p.tally.Final(p.tally.Sent)
			c.Rest.PartSelf(&p.closing, p.tally.All())
		case p.proc.Gone():
			c.Rest.Gone(&p.closing)
		default:
			p.end(c.Rest.Part(&p.closing, p.asked || p.tally.Any(), p.tally.All()))
		}
	}
	c.end(c.Rest.Parted())
}

// closed takes a member's word that it has closed the communicator, or that it has
// heard that it is closed here: either way nobody there waits for messages, and it
// sends nothing more. Lock held.
func (p *peer) closed(f *control) {
	p.tally.Final(f.sent)
	if f.typ == controlRefused {
		p.refuse()
	}
	p.act(p.exchange.RecvClosed())
	p.end(p.c.Rest.RecvClosed(&p.closing, f.typ != controlClosed, p.tally.All()))
}

// refuse takes the word of a member that its part in the creation has failed: nothing
// comes of it. Lock held.
func (p *peer) refuse() {
	c := p.c
	if c.Closed() || p.refused {
		return
	}
	p.refused, c.refused, p.ready = true, true, false
	err := c.m.procs.NotMember(p.proc.Life)
	for e := p.held.First(); e != nil; e = p.held.First() {
		e.Owner.end(err)
	}
	for _, r := range c.m.requests {
		if r.c == c && r.state == posted && (r.p == p || r.p == nil) {
			r.end(err)
		}
		if r.c == c && r.state == announced && r.p == p {
			r.end(err)
		}
		if r.c == c && r.state == sent && r.p == p {
			r.fail(err) // the network has its buffer, for a message that nobody asks for
		}
	}
	c.hurrySweeps()
	c.m.wakeProbes()
}

// refusedBy returns the error of a receive from a member that has refused, or from any if
// one has.
func (c *comm) refusedBy(src int) error {
	if !c.refused {
		return nil
	}
	for _, p := range c.peers.All() {
		if p.refused && (src == p.rank || src == pml.AnySource) {
			return c.m.procs.NotMember(p.proc.Life)
		}
	}
	return nil
}

// Inquire implements pml.Module.
func (m *Module) Inquire(by framework.ProcID) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.failures = true // receives and probes that come later ask
	m.lastPolls()
	m.inquiries.Name(by)
	m.inquire()
}

// inquire has whoever waits ask the members from which nothing has come on a communicator
// whether they are in it at all: their part in its creation may have failed, as it does in
// some when a process fails. Lock held.
func (m *Module) inquire() {
	m.inquiries.Begin()
	for _, r := range m.requests {
		switch {
		case r.c == nil:
		case r.state == posted:
			r.c.inquire(r.source())
		case r.state == sent || r.state == announced: // nobody may receive it
			r.p.inquire()
		}
	}
	m.wakeProbes()
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
	if p.inquired || p.tally.Taken != (cid.Counts{}) || p.rank == p.c.Spec.Rank || p.proc.Err != nil {
		return
	}
	p.inquired = true
	p.tell(controlRequest)
}

// Refuse implements pml.Module.
func (m *Module) Refuse(s cid.Span, endpoint int) {
	m.engine.Lock()
	defer m.engine.Unlock()
	covers := m.comms.Refuse(s, endpoint)
	for _, p := range m.procs.Lives {
		for key, f := range p.early.kept {
			if covers(key.to) {
				delete(p.early.kept, key)
				m.takeControl(&f)
			}
		}
	}
}

// end does what the end of the communicator asks for after an event. Lock held.
func (p *peer) end(act cid.Action) {
	if act&cid.Tell != 0 {
		p.tell(controlClosed)
	}
	if act&cid.Answer != 0 {
		p.tell(controlAnswer)
	}
	p.c.end(act)
}

// mostQuiet is the number of communicators whose index rests only because of strangers.
const mostQuiet = 256

// end is that of a peer for what concerns all: the index is given up when nothing can
// come any more. Lock held.
func (c *comm) end(act cid.Action) {
	if act&cid.Rested != 0 {
		c.giveBack()
	}
	if act&cid.Quiet == 0 {
		return
	}
	m := c.m
	m.quiet = append(m.quiet, c)
	if len(m.quiet) > min(mostQuiet, 1<<m.ids.indexBits/4) {
		first := m.quiet[0]
		m.quiet = slices.Delete(m.quiet, 0, 1)
		first.Rest.Forget()
		first.giveBack()
	}
}

// late says that messages of the member came after the others had been told. Lock held.
func (p *peer) late() { p.end(p.c.Rest.Came(&p.closing, p.tally.All())) }

// over reports whether nothing comes to a communicator any more, and nothing that has come
// is in the network still. Nobody waits for the messages of a member that has failed; those
// that are there are looked for once more.
func (c *comm) over() bool {
	return c.Rest.Stage() == cid.Over && slices.Min(c.searched[:]) >= c.lastDeath()
}

// lastDeath returns the number of the last failure of a member.
func (c *comm) lastDeath() (last uint32) {
	if c.m.deaths > 0 {
		for p := range c.Failed() {
			if last < p.death && !c.Spec.IsElsewhere(c.Ranks(p)[0]) {
				last = p.death
			}
		}
	}
	return last
}

// giveBack takes a communicator out to which nothing comes any more, and frees its
// index, once the last probe for its messages is over: it could find one of the index's
// next user. Lock held.
func (c *comm) giveBack() {
	if c.probing > 0 || !c.over() {
		return
	}
	m := c.m
	for _, p := range c.peers.All() {
		p.proc.sent += p.sentAll()
	}
	if n := m.handles[c.Spec.ID]; n > 1 {
		m.handles[c.Spec.ID] = n - 1
	} else if n > 0 {
		delete(m.handles, c.Spec.ID)
	}
	m.comms.Remove(&c.State)
	m.procs.Drop(&c.Comm)
	m.comms.Table.Rested(c.Spec.Local)
}

// dropped counts a message that nobody will receive. Lock held.
func (c *comm) dropped(msg *message) {
	p := msg.from
	if p == nil {
		return
	}
	p.proc.Stats.Dropped++
	p.tally.Taken[msg.plane]++
	if c.Rest.Stage() >= cid.Parted {
		p.late()
	}
}

// reaping looks for messages to closed communicators, round after round. A round
// that finds nothing makes the time to the next longer.
type reaping struct {
	at    int // what is probed next: in Module.reaped, and plane
	plane pml.Plane
	busy  int  // probes that are under way
	found bool // something, in this round
	gap   time.Duration
	next  time.Time // when the round begins

	mustSettle bool // Something has come about that messages which are held wait for.
}

const (
	firstReapGap = 200 * time.Microsecond
	lastReapGap  = 250 * time.Millisecond
	mostReaps    = 16 // probes at a time
)

// reap begins some probes. Lock held.
func (m *Module) reap() {
	rp := &m.reaper
	if rp.mustSettle {
		m.settle()
	}
	if rp.at >= len(m.reaped) {
		if rp.busy > 0 {
			return
		}
		m.settle()
		m.reaped = slices.DeleteFunc(m.reaped, (*comm).over)
		rp.at, rp.plane = 0, 0
		if rp.gap = min(max(2*rp.gap, firstReapGap), lastReapGap); rp.found {
			rp.gap = 0
		}
		rp.found = false
		rp.next = time.Now().Add(rp.gap)
	}
	if !rp.next.IsZero() {
		if time.Now().Before(rp.next) {
			return
		}
		rp.next = time.Time{}
	}
	for rp.busy < mostReaps && rp.at < len(m.reaped) {
		c, plane := m.reaped[rp.at], rp.plane
		over := c.over()
		if rp.plane++; over || int(rp.plane) == pml.Planes {
			rp.at, rp.plane = rp.at+1, 0
		}
		if over || c.pulling[plane].left > 0 || c.sweepers[plane] != nil || c.Over(plane) == nil { // receives may wait for the end of the pull
			continue
		}
		msg := m.newMessage(c, plane)
		msg.purpose, msg.deaths = forReaper, m.deaths
		if m.mtl.Probe(&msg.op, 0, c.from(nil, mtl.AnyTag, uint32(plane)), true) != nil {
			m.freeMessage(msg)
			continue
		}
		rp.busy++
	}
}

// reapedOne takes the outcome of a probe.
func (m *Module) reapedOne(msg *message) {
	m.reaper.busy--
	if msg.op.Err != nil || !msg.op.Found {
		if msg.op.Err == nil {
			msg.c.searched[msg.plane] = msg.deaths
		}
		m.freeMessage(msg)
		return
	}
	m.reaper.found = true
	msg.from, _ = msg.c.tookOut(&msg.op.Result) // of a rank that isn't there: dropped too
	msg.reject()
}
