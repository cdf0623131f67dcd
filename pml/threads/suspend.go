package threads

import (
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
)

// Suspend implements pml.Comm. Ranks of this process fail together, so that only communicators with members of other
// processes are concerned.
func (c *comm) Suspend(plane pml.Plane, why error) {
	e := c.rank.engine
	e.Lock()
	c.Suspended[plane] = why
	c.queues[plane].Posted(nil, func(x *match.Recv[receive]) { x.Owner.SetSuspended(why) })
	c.wakeProbes()
	e.Release()
	if why == nil && c.below != nil { // The PML below ends them if no other member is left.
		c.below.commBelow.Suspend(plane, nil)
	}
}
