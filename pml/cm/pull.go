package cm

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// pulling is how the messages of a plane are taken out of the network.
type pulling struct {
	from *peer // of which member
	left int   // so many at most, with the one that is probed for; 0: no pull is under way
}

const (
	mostPulls = 16 // pulls at a time
	// mostPulled is how many messages one pull takes: the receives of the plane wait
	// for its end, and others may go on sending. 44,000 took 1.3 s over tcp;ofi_rxm.
	mostPulled = 4096
)

// pull begins to take the messages of a member on a plane out of the network. They are
// the first that their senders have sent and that nobody has
// received: a receive that was posted since the beginning of the pull gets them, and
// the others go into the unexpected queue, where a receive looks first. Receives that
// find nothing there wait for the end. Lock held.
func (c *comm) pull(plane pml.Plane, from *peer) {
	if c.pulling[plane].left > 0 || c.isRecalling(plane) || c.Over(plane) != nil || c.m.closed || from.proc.connect() != nil && !from.proc.connected {
		return
	}
	c.beginPull(plane, from)
}

// beginPull is pull for a plane on which none is under way. Lock held.
func (c *comm) beginPull(plane pml.Plane, from *peer) {
	c.pulling[plane] = pulling{from, mostPulled}
	c.m.pulls++
	c.pullOne(plane)
}

// pullOne probes for the next message. Lock held.
func (c *comm) pullOne(plane pml.Plane) {
	p := c.pulling[plane].from
	e := c.from(p, mtl.AnyTag, uint32(plane))
	msg := c.m.newMessage(c, plane)
	msg.purpose = forPuller
	if err := c.m.mtl.Probe(&msg.op, p.proc.to, e, true); err != nil {
		c.m.freeMessage(msg)
		c.failPull(plane, err)
	}
}

// failPull ends a pull for which the network returned an error.
func (c *comm) failPull(plane pml.Plane, err error) {
	if s := c.sweepers[plane]; s != nil {
		s.refused(c.pulling[plane].from, err)
	}
	c.endPull(plane)
}

// pulled takes the outcome of a probe of a pull.
func (msg *message) pulled() {
	c, plane := msg.c, msg.plane
	if err := msg.op.Err; err != nil || !msg.op.Found {
		c.m.freeMessage(msg)
		if err != nil {
			c.failPull(plane, err)
		} else {
			c.endPull(plane)
		}
		return
	}
	p, err := c.tookOut(&msg.op.Result)
	if msg.from = p; msg.mustOpen() {
		msg.open()
		return
	}
	if err != nil {
		msg.discard()
		c.pullNext(plane)
		return
	}
	msg.place()
}

// place puts a message that was pulled where it belongs.
func (msg *message) place() {
	c, plane, p := msg.c, msg.plane, msg.from
	msg.purpose = forCaller
	if s := c.sweepers[plane]; s != nil {
		s.found = true
	}
	if msg.isLost() {
		msg.discard()
	} else if e := c.queues[plane].Arrive(&p.match[plane], int(msg.op.Tag)); e != nil {
		c.deferred[plane].Remove(e)
		msg.giveTo(e.Owner)
	} else {
		c.keep(msg, p)
	}
	c.pullNext(plane)
}

// pullNext goes on with a pull, or ends it.
func (c *comm) pullNext(plane pml.Plane) {
	left, isOver := &c.pulling[plane].left, c.Over(plane) != nil
	if s := c.sweepers[plane]; s != nil && s.isRunning {
		isOver = !s.wanted()
	}
	if *left == 1 && c.sweepers[plane] != nil {
		c.sweepers[plane].isPartial = c.sweepers[plane].isPartial || c.pulling[plane].from.proc.Gone()
	}
	if *left == 1 || isOver {
		c.endPull(plane)
	} else {
		*left--
		c.pullOne(plane)
	}
}

// wait has a receive that matches nothing in the unexpected queue wait for the end of a pull.
func (r *request) wait() {
	c, plane := r.c, r.plane
	r.state = deferred
	r.node.Source, r.node.Tag = r.source(), r.tag
	c.queues[plane].Post(c.matchPeer(r.source(), plane), &r.node)
	c.deferred[plane].Push(&r.node)
}

// unwait takes it out of those that wait.
func (r *request) unwait() {
	c, plane := r.c, r.plane
	c.queues[plane].Cancel(&r.node)
	c.deferred[plane].Remove(&r.node)
}

// endPull posts the receives that have waited, unless a sweep goes on. Lock held.
func (c *comm) endPull(plane pml.Plane) {
	c.pulling[plane] = pulling{}
	c.m.pulls--
	if s := c.sweepers[plane]; s != nil {
		s.pullDone()
	} else {
		c.postDeferred(plane)
	}
}

// postDeferred gives the network the receives that have waited. On a plane that has closed or was aborted meanwhile
// they were the last. Lock held.
func (c *comm) postDeferred(plane pml.Plane) {
	for e := c.deferred[plane].First(); e != nil; e = c.deferred[plane].First() {
		r := e.Owner
		r.unwait()
		r.state = idle
		r.post()
	}
	if c.Over(plane) != nil {
		c.discardKept(plane)
	}
	c.m.wakeProbes()
}

// awaitPull waits for the end of a pull, or a moment. Lock held, and released
// meanwhile.
func (m *Module) awaitPull(ctx context.Context) error {
	return m.pause(ctx, time.Now().Add(probeInterval)) // the end wakes it
}

// keep puts a claimed message into the unexpected queue. Lock held.
func (c *comm) keep(msg *message, p *peer) {
	msg.node.Source, msg.node.Tag = p.rank, int(msg.op.Tag)
	c.queues[msg.plane].Keep(&p.match[msg.plane], &msg.node)
	c.m.kept++
	p.proc.Stats.Unexpected++
}

// unkeep takes a message out of the unexpected queue. Lock held.
func (c *comm) unkeep(found *match.Message[message], plane pml.Plane) *message {
	c.queues[plane].Take(found)
	c.m.kept--
	return found.Owner
}
