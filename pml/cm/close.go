package cm

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// How an id comes to be used again.
//
// A network keeps a message until a receive with its id takes it. So before the id
// of a closed communicator may name another one, all that was sent under it must be
// out of the network. A member that closes tells everybody with whom it has
// exchanged anything there how many messages it has sent to him on each plane; he
// answers with the number of his, and sends no more. The index rests until all of
// them have said so, and until that many messages were received, or found by the
// reaper and dropped. Control messages may overtake messages: the counts make up
// for it.
//
// A member with whom nothing was exchanged, and that knows the id from the
// communicator's creation, is not told: it may still send. The reaper goes on
// looking, until mostQuiet others have closed after this one; from then on only the
// generation in the id, of which a layout may have few bits, keeps such a message
// from meeting a newer communicator.

// Close implements pml.Comm.
func (c *comm) Close() {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if c.closing {
		return
	}
	c.closing = true
	for plane := range pml.Plane(pml.Planes) {
		c.discardKept(plane)
	}
	m.wakeProbes()
	m.resting = append(m.resting, c)
	m.reaper.gap, m.reaper.next = 0, time.Time{}
	c.mayRest()
}

// discardKept drops the unexpected messages of a plane that closes. No receive can be
// posted there any more: what is here, and what still comes, is for nobody, and its
// senders must not wait for a receiver. Receives that wait for the end of a pull come
// first. Lock held.
func (c *comm) discardKept(plane pml.Plane) {
	if c.pulling[plane].left > 0 {
		return
	}
	c.queues[plane].Unexpected(func(msg *match.Message[message]) { c.unkeep(msg, plane).discard() })
}

// mayRest tells the others, once the communicator is closed and nothing is pending.
// Lock held.
func (c *comm) mayRest() {
	m := c.m
	if !c.closing || c.pending > 0 || m.closed {
		return
	}
	if c.rested { // a look had begun before it closed, and found something
		c.settle()
		return
	}
	c.rested = true
	m.table.Rest(c.spec.Local)
	for rank, p := range c.peers {
		switch {
		case p == nil || p.told || p.proc.err != nil || c.near != nil && c.near[rank]:
		case rank == c.spec.Rank:
			p.last, p.final, p.told = p.sent, true, true
		case p.asked || p.sent != [pml.Planes]uint64{} || p.taken != [pml.Planes]uint64{}:
			p.tell(controlClosed)
		}
	}
	c.settle()
}

// closed takes a member's word that it has closed the communicator, or that it has
// heard that it is closed here: either way nobody there waits for messages, and it
// sends nothing more. Lock held.
func (p *peer) closed(f *control) {
	if !p.final {
		p.final, p.last = true, f.sent
	}
	p.act(p.exchange.RecvClosed())
	if f.typ == controlClosed && !p.told {
		p.tell(controlAnswer)
	}
	p.c.settle()
}

// mostQuiet is the number of communicators whose index rests only because of members
// with whom nothing was exchanged.
const mostQuiet = 256

// settle gives the index up when nothing can come any more. Lock held.
func (c *comm) settle() {
	m := c.m
	if !c.rested || c.removed || c.quiet {
		return
	}
	known := 0
	for rank, p := range c.peers {
		switch {
		case c.near != nil && c.near[rank]:
		case p == nil || !p.told && !p.final:
			continue
		case p.proc.err != nil:
		case !p.final:
			return
		default:
			for plane := range p.last {
				if p.taken[plane] < p.last[plane] {
					return
				}
			}
		}
		known++
	}
	if strangers := c.spec.Agreed || c.spec.Indices != nil; !strangers || known == len(c.peers) || len(c.peers) == 1 {
		c.remove()
		return
	}
	c.quiet = true
	m.quiet = append(m.quiet, c)
	if len(m.quiet) > min(mostQuiet, 1<<m.ids.indexBits/4) {
		first := m.quiet[0]
		m.quiet = slices.Delete(m.quiet, 0, 1)
		first.remove()
	}
}

// remove takes the communicator out: nobody looks for messages to it any more. Lock
// held.
func (c *comm) remove() {
	c.removed = true
	c.giveBack()
}

// giveBack frees the index of a communicator that was taken out, once the last look
// for its messages is over: it could find one of the index's next user. Lock held.
func (c *comm) giveBack() {
	if !c.removed || c.looks > 0 {
		return
	}
	m := c.m
	for _, p := range c.peers {
		if p != nil {
			p.proc.sent += p.sentAll()
		}
	}
	delete(m.byID, c.spec.ID)
	m.comms[c.spec.Local.Index()] = nil
	m.gone.Add(c.spec.ID)
	m.table.Rested(c.spec.Local)
}

// dropped counts a message that nobody will receive. Lock held.
func (c *comm) dropped(msg *message) {
	p, err := c.sender(&msg.op.Result)
	if err != nil {
		return
	}
	p.taken[msg.plane]++
	p.proc.stats.Dropped++
	if c.rested && !p.told && p.proc.err == nil {
		p.tell(controlClosed)
	}
	c.settle()
}

// reaping looks for messages to closed communicators, round after round. A round
// that finds nothing makes the time to the next longer.
type reaping struct {
	at    int // what is looked at next: in Module.resting, and plane
	plane pml.Plane
	busy  int  // looks that are under way
	found bool // something, in this round
	gap   time.Duration
	next  time.Time // when the round begins
}

const (
	firstReapGap = 200 * time.Microsecond
	lastReapGap  = 250 * time.Millisecond
	mostReaps    = 16 // looks at a time
)

// reap begins some looks. Lock held.
func (m *Module) reap() {
	rp := &m.reaper
	if rp.at >= len(m.resting) {
		if rp.busy > 0 {
			return
		}
		m.resting = slices.DeleteFunc(m.resting, func(c *comm) bool { return c.removed })
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
	for rp.busy < mostReaps && rp.at < len(m.resting) {
		c, plane := m.resting[rp.at], rp.plane
		if rp.plane++; c.removed || int(rp.plane) == pml.Planes {
			rp.at, rp.plane = rp.at+1, 0
		}
		if c.removed || c.pulling[plane].left > 0 { // receives may wait for the end of the pull
			continue
		}
		msg := m.newMessage(c, plane)
		msg.looker = reaper
		if m.mtl.Probe(&msg.op, 0, mtl.Envelope{CID: c.word | uint32(plane), Source: mtl.AnySource, Tag: mtl.AnyTag}, true) != nil {
			m.freeMessage(msg)
			continue
		}
		rp.busy++
	}
}

// reaped takes the outcome of a look.
func (m *Module) reaped(msg *message) {
	m.reaper.busy--
	if msg.op.Err != nil || !msg.op.Found {
		m.freeMessage(msg)
		return
	}
	m.reaper.found = true
	msg.c.tookOut(&msg.op.Result) // of a rank that isn't there: dropped too
	msg.discard()
}
