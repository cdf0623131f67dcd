package cm

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// pullState is the state of the pull on one plane.
type pullState struct {
	sourcePeer *peer
	// remainingMessages is the number of messages that the pull may still claim, including the
	// one that is probed for. It is 0 if no pull is in progress.
	remainingMessages int
}

const (
	// maxPulls bounds the concurrent pulls.
	maxPulls = 16
	// maxPulledMessages bounds the messages of one pull, because receives on the plane wait
	// for its end, and members may send without a pause. 44,000 took 1.3 s over tcp;ofi_rxm.
	maxPulledMessages = 4096
)

// startPull starts to claim the messages of a member on a plane that are in the network. Each
// is the oldest unreceived message of its sender. Messages that match a receive posted since the
// start of the pull are delivered to it. The others go into the unexpected queue, which receives
// search first. Receives without a match there wait for the end of the pull. startPull does nothing
// if a pull is in progress, or none is possible. Lock held.
func (c *comm) startPull(plane pml.Plane, from *peer) {
	if c.pullsByPlane[plane].remainingMessages > 0 || c.isRecalling(plane) || c.StartError(plane) != nil || c.m.isClosed || from.proc.connect() != nil && !from.proc.isConnected {
		return
	}
	c.beginPull(plane, from)
}

// beginPull is startPull without its checks. Lock held.
func (c *comm) beginPull(plane pml.Plane, from *peer) {
	c.pullsByPlane[plane] = pullState{from, maxPulledMessages}
	c.m.activePulls++
	c.probePull(plane)
}

// probePull probes for the next message of a pull. Lock held.
func (c *comm) probePull(plane pml.Plane) {
	p := c.pullsByPlane[plane].sourcePeer
	e := c.from(p, mtl.AnyTag, uint32(plane))
	msg := c.m.newMessage(c, plane)
	msg.purpose = forPuller
	if err := c.m.mtl.Probe(&msg.op, p.proc.mtlEndpoint, e, true); err != nil {
		c.m.freeMessage(msg)
		c.failPull(plane, err)
	}
}

// failPull ends a pull after an error of the network.
func (c *comm) failPull(plane pml.Plane, err error) {
	if s := c.sweepersByPlane[plane]; s != nil {
		s.pullFailed(c.pullsByPlane[plane].sourcePeer, err)
	}
	c.endPull(plane)
}

// pullProbeDone handles the completion of a pull's probe.
func (msg *message) pullProbeDone() {
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
	p, err := c.countClaimed(&msg.op.Result)
	if msg.from = p; msg.mustInspect() {
		msg.inspect()
		return
	}
	if err != nil {
		msg.discard()
		c.continuePull(plane)
		return
	}
	msg.deliverPulled()
}

// deliverPulled delivers or queues a message that was pulled.
func (msg *message) deliverPulled() {
	c, plane, p := msg.c, msg.plane, msg.from
	msg.purpose = forCaller
	if s := c.sweepersByPlane[plane]; s != nil {
		s.hasFound = true
	}
	if msg.isLost() {
		msg.discard()
	} else if e := c.matchQueues[plane].Arrive(&p.matchPeers[plane], int(msg.op.Tag)); e != nil {
		c.deferredRecvs[plane].Remove(e)
		msg.deliverTo(e.Owner)
	} else {
		c.queueUnexpected(msg, p)
	}
	c.continuePull(plane)
}

// continuePull probes for the next message, or ends the pull.
func (c *comm) continuePull(plane pml.Plane) {
	left, isOver := &c.pullsByPlane[plane].remainingMessages, c.StartError(plane) != nil
	if s := c.sweepersByPlane[plane]; s != nil && s.isRunning {
		isOver = !s.isNeeded()
	}
	if *left == 1 && c.sweepersByPlane[plane] != nil {
		c.sweepersByPlane[plane].isPartial = c.sweepersByPlane[plane].isPartial || c.pullsByPlane[plane].sourcePeer.proc.HasEnded()
	}
	if *left == 1 || isOver {
		c.endPull(plane)
	} else {
		*left--
		c.probePull(plane)
	}
}

// deferReceive queues a receive that has no match in the unexpected queue until the end of a pull.
func (r *request) deferReceive() {
	c, plane := r.c, r.plane
	r.state = deferred
	r.queueEntry.Source, r.queueEntry.Tag = r.source(), r.tag
	c.matchQueues[plane].Post(c.matchPeer(r.source(), plane), &r.queueEntry)
	c.deferredRecvs[plane].Push(&r.queueEntry)
}

// undefer removes a receive from the deferred ones.
func (r *request) undefer() {
	c, plane := r.c, r.plane
	c.matchQueues[plane].Cancel(&r.queueEntry)
	c.deferredRecvs[plane].Remove(&r.queueEntry)
}

// endPull ends a pull, and posts the deferred receives unless a sweep continues. Lock held.
func (c *comm) endPull(plane pml.Plane) {
	c.pullsByPlane[plane] = pullState{}
	c.m.activePulls--
	if s := c.sweepersByPlane[plane]; s != nil {
		s.pullDone()
	} else {
		c.postDeferred(plane)
	}
}

// postDeferred gives the deferred receives to the network. If the plane was closed or aborted meanwhile,
// it then drops the unexpected messages. Lock held.
func (c *comm) postDeferred(plane pml.Plane) {
	for e := c.deferredRecvs[plane].First(); e != nil; e = c.deferredRecvs[plane].First() {
		r := e.Owner
		r.undefer()
		r.state = idle
		r.post()
	}
	if c.StartError(plane) != nil {
		c.discardUnexpected(plane)
	}
	c.m.wakeProbes()
}

// awaitPull waits for the end of a pull, at most probeInterval. Lock held, and released
// during the wait.
func (m *Module) awaitPull(ctx context.Context) error {
	return m.waitForPoll(ctx, time.Now().Add(probeInterval)) // endPull wakes it.
}

// queueUnexpected puts a claimed message into the unexpected queue. Lock held.
func (c *comm) queueUnexpected(msg *message, p *peer) {
	msg.queueNode.Source, msg.queueNode.Tag = p.rank, int(msg.op.Tag)
	c.matchQueues[msg.plane].AddUnexpected(&p.matchPeers[msg.plane], &msg.queueNode)
	c.m.unexpectedCount++
	p.proc.Stats.Unexpected++
}

// takeUnexpected removes a message from the unexpected queue. Lock held.
func (c *comm) takeUnexpected(found *match.Message[message], plane pml.Plane) *message {
	c.matchQueues[plane].RemoveUnexpected(found)
	c.m.unexpectedCount--
	return found.Owner
}
