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
}

// handOver gives a message that is in no queue to the watcher of its plane. Lock held.
func (c *comm) handOver(msg *message) {
	k := base.NewClaimed(c.m.engine, c.claim(msg))
	c.watchers[msg.plane].Arrived(k, msg.status())
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
