package threads

import (
	"time"

	"github.com/ferrympi/ferry/pml"
)

// hooked is the bit of comm.noSends that sends messages the slow way, which calls the hooks.
const hooked = 1 << 31

func (c *comm) isHooked() bool { return c.rank.team.hooks != nil }

// event calls the hooks, if there are any. Lock held.
func (c *comm) event(kind pml.EventKind, tag int, bytes int64, plane pml.Plane) {
	if h := c.rank.team.hooks; h != nil {
		h.Event(pml.Event{Kind: kind, Peer: c.rank.team.ownIncarnation, Comm: c.Spec.ID, Tag: tag, Bytes: bytes, Plane: plane})
	}
}

// hookMatch calls the hooks for a receive that has matched. Lock held.
func (x *receive) hookMatch(source, tag int, bytes int64) {
	e := pml.Event{Kind: pml.EventMatch, Peer: x.c.Spec.Members.Member(source).Incarnation, Comm: x.c.Spec.ID, Tag: tag, Bytes: bytes, Plane: x.plane}
	if !x.postedAt.IsZero() {
		e.Waited = time.Since(x.postedAt)
		x.postedAt = time.Time{}
	}
	x.rank.team.hooks.Event(e)
}
