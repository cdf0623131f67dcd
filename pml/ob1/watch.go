package ob1

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// Watch implements pml.Watchable. A watcher counts as pending, and keeps its communicator.
func (c *comm) Watch(plane pml.Plane, w pml.Watcher) {
	if w == nil {
		c.watchers[plane] = nil
		if c.FinishOperation() {
			c.leave()
		}
		return
	}
	c.watchers[plane] = w
	c.barReceives(plane)
	c.Pending++
	c.queues[plane].Unexpected(func(msg *match.Message[unexpectedMessage]) {
		c.queues[plane].RemoveUnexpected(msg)
		c.passToWatcher(msg.Owner)
	})
	c.wakeProbes()
	if c.m.failures != 0 || c.hasRefusal {
		w.Changed()
	}
}

// passEager passes an eager message to the watcher of its plane, and reports whether the
// watcher has consumed the payload. Lock held.
func (c *comm) passEager(p *peer, plane pml.Plane, in *parsedMessage) bool {
	if !c.watchers[plane].Eager(p.rank, int(in.tag), in.payload) {
		return false
	}
	if c.m.env.Hooks != nil {
		c.m.env.Event(pml.Event{Kind: pml.EventMatch, Peer: p.proc.Incarnation, Comm: c.Spec.ID, Tag: int(in.tag), Bytes: in.length, Plane: plane})
	}
	p.proc.oweCredit(in.length)
	return true
}

// passToWatcher gives an unexpected message, which is in no queue, to the watcher of its
// plane. The sender can still withdraw an RTS. Lock held.
func (c *comm) passToWatcher(msg *unexpectedMessage) {
	c.Pending++
	msg.claimed = base.MakeClaimed(c.m.engine, msg)
	// If the watcher consumes the message at once, msg may already be in use again.
	if u := c.watchers[msg.plane].Arrived(&msg.claimed, msg.status()); u != nil {
		msg.watcherEntry = u
		if msg.isRTS {
			msg.allowWithdrawal()
		}
	}
}

// withdrawFromWatcher takes a message back that its sender withdraws. It reports false if the
// message has matched. Lock held.
func (c *comm) withdrawFromWatcher(msg *unexpectedMessage) bool {
	if !msg.watcherEntry.Return() {
		return false
	}
	c.m.releaseUnexpected(msg)
	if c.FinishOperation() {
		c.leave()
	}
	return true
}

// barReceives lets receives on a plane fail as they are posted.
func (c *comm) barReceives(plane pml.Plane) { c.isBarred[plane], c.needsSlowPath = true, true }

// barError returns the error of a receive on a barred plane.
func (c *comm) barError() error {
	if c.IsClosed() {
		return framework.ErrClosed
	}
	return pml.ErrWatched
}

// recheckWaiters lets probes and watchers check whether a message can still arrive. Lock held.
func (c *comm) recheckWaiters() {
	c.wakeProbes()
	for _, w := range c.watchers {
		if w != nil {
			w.Changed()
		}
	}
}

// ReceiveNext implements pml.NextReceiver.
func (c *comm) ReceiveNext(buf []byte, src, tag int, plane pml.Plane) (gotTag, bytes int, ok bool) {
	p := c.peers.Get(src)
	if p == nil || c.m.env.Hooks != nil {
		return 0, 0, false
	}
	return c.receivePolling(p, buf, tag, plane)
}
