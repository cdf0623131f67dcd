package ob1

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// Watch implements pml.Watchable. A watched plane keeps its communicator, as operations
// that are pending do.
func (c *comm) Watch(plane pml.Plane, w pml.Watcher) {
	if w == nil {
		c.watchers[plane] = nil
		if c.Done() {
			c.part()
		}
		return
	}
	c.watchers[plane] = w
	c.bar(plane)
	c.Pending++
	c.queues[plane].Unexpected(func(msg *match.Message[message]) {
		c.queues[plane].Take(msg)
		c.handOver(msg.Owner)
	})
	c.wakeProbes()
	if c.m.failures != 0 || c.refused {
		w.Changed()
	}
}

// passEager passes an eager message to the watcher of its plane, and reports whether that has
// copied the payload. Lock held.
func (c *comm) passEager(p *peer, plane pml.Plane, in *inMessage) bool {
	if !c.watchers[plane].Eager(p.rank, int(in.tag), in.payload) {
		return false
	}
	if c.m.env.Hooks != nil {
		c.m.env.Event(pml.Event{Kind: pml.EventMatch, Peer: p.proc.Life, Comm: c.Spec.ID, Tag: int(in.tag), Bytes: in.length, Plane: plane})
	}
	p.proc.owe(in.length)
	return true
}

// handOver gives a message that is in no queue to the watcher of its plane. The sender can
// still withdraw an RTS. Lock held.
func (c *comm) handOver(msg *message) {
	c.Pending++
	msg.handed = base.MakeClaimed(c.m.engine, msg)
	// The watcher may start or drop the message at once, after which msg may be another one.
	if u := c.watchers[msg.plane].Arrived(&msg.handed, msg.status()); u != nil {
		msg.unmatched = u
		if msg.rts {
			msg.withdrawable()
		}
	}
}

// takeBack takes a message that a watcher has, and that its sender withdraws, out of the
// watcher's queue. It reports false if the message has matched. Lock held.
func (c *comm) takeBack(msg *message) bool {
	if !msg.unmatched.Return() {
		return false
	}
	c.m.giveUp(msg)
	if c.Done() {
		c.part()
	}
	return true
}

// bar has no receive posted on a plane any more.
func (c *comm) bar(plane pml.Plane) { c.barred[plane], c.slow = true, true }

// barredBy returns why receives can't be posted on a barred plane.
func (c *comm) barredBy() error {
	if c.Closed() {
		return framework.ErrClosed
	}
	return pml.ErrWatched
}

// changed has whoever waits for a message look whether one can still come. Lock held.
func (c *comm) changed() {
	c.wakeProbes()
	for _, w := range c.watchers {
		if w != nil {
			w.Changed()
		}
	}
}

// ReceiveNext implements pml.NextReceiver.
func (c *comm) ReceiveNext(buf []byte, src, tag int, plane pml.Plane) (came, bytes int, ok bool) {
	p := c.peers.Get(src)
	if p == nil || c.m.env.Hooks != nil {
		return 0, 0, false
	}
	return c.receiveNow(p, buf, tag, plane)
}
