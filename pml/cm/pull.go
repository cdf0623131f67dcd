package cm

import (
	"time"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// mostPulls is how many planes Inspect takes messages out of at a time.
const mostPulls = 16

// pull begins to take the messages of a plane out of the network into the unexpected
// queue. They are the first that their senders have sent and that nobody has
// received, so that a receive looks there first. Receives that are posted meanwhile
// wait for the end. Lock held.
func (c *comm) pull(plane pml.Plane) {
	if c.pulling[plane] || c.closing || c.m.closed {
		return
	}
	c.pulling[plane] = true
	c.m.pulls++
	c.pullOne(plane)
}

// pullOne looks for the next message. Lock held.
func (c *comm) pullOne(plane pml.Plane) {
	if c.closing {
		c.endPull(plane)
		return
	}
	msg := c.m.newMessage(c, plane)
	msg.looker = puller
	err := c.m.mtl.Probe(&msg.op, 0, mtl.Envelope{CID: c.word | uint32(plane), Source: mtl.AnySource, Tag: mtl.AnyTag}, true)
	if err != nil {
		c.m.freeMessage(msg)
		c.endPull(plane)
	}
}

// pulled takes the outcome of a look of a pull.
func (msg *message) pulled() {
	c, plane := msg.c, msg.plane
	if msg.op.Err != nil || !msg.op.Found {
		c.m.freeMessage(msg)
		c.endPull(plane)
		return
	}
	if p, err := c.sender(&msg.op.Result); err != nil {
		msg.discard()
	} else {
		msg.looker = user
		c.keep(msg, p)
	}
	c.pullOne(plane)
}

// endPull posts the receives that have waited. On a plane that has closed meanwhile
// they were the last. Lock held.
func (c *comm) endPull(plane pml.Plane) {
	c.pulling[plane] = false
	c.m.pulls--
	for len(c.deferred[plane]) > 0 {
		r := c.deferred[plane][0]
		c.dropDeferred(r)
		r.state = idle
		r.post()
	}
	if c.closing {
		c.discardKept(plane)
	}
	c.m.wakeProbes()
}

// awaitPulls waits until at most most pulls are under way. Lock held, and released
// meanwhile.
func (m *Module) awaitPulls(most int) {
	for m.pulls > most {
		m.pause(nil, time.Now().Add(probeInterval)) // the end of one wakes it
	}
}

// keep puts a claimed message into the unexpected queue. Lock held.
func (c *comm) keep(msg *message, p *peer) {
	msg.node.Source, msg.node.Tag = p.rank, int(msg.op.Tag)
	c.queues[msg.plane].Keep(&p.match[msg.plane], &msg.node)
	c.m.kept++
	p.proc.kept++
	p.proc.stats.Unexpected++
}

// unkeep takes a message out of the unexpected queue. Lock held.
func (c *comm) unkeep(found *match.Message[message], plane pml.Plane) *message {
	c.queues[plane].Take(found)
	c.m.kept--
	c.procs[found.Source].kept--
	return found.Owner
}
