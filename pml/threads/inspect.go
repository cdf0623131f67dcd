package threads

import (
	"context"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
)

var offerStates = [...]string{"queued", "offered", "offered", "claimed", "offered", "copying", "withdrawn"}

// Inspect describes the rank's queues and the contents of its ring. It returns within 100 ms, as
// pml.Module.Inspect does.
func (r *Rank) Inspect(ctx context.Context) (x pml.Inspection, err error) {
	r.deliver(nil)
	err = r.engine.Observe(ctx, func() { x = r.inspect() })
	return x, err
}

// inspect is Inspect with the lock held.
func (r *Rank) inspect() (ins pml.Inspection) {
	for _, m := range r.earlyArrivals {
		if m.offer == nil || !m.offer.isWithdrawn() {
			ins.EarlyArrivals++
		}
	}
	sends := map[*comm][]pml.Pending{}
	for s := r.offeredSends.head; s != nil; s = s.next {
		sends[s.c] = append(sends[s.c], pml.Pending{Peer: s.dst, Tag: s.tag, Bytes: s.bytes, Plane: s.plane, State: offerStates[s.offer.state.Load()], Wait: s.Awaited()})
	}
	for _, c := range r.commByID {
		ci := pml.CommInspection{ID: c.Spec.ID, Endpoint: r.endpoint, Name: c.Spec.Name, Local: c.Spec.Local, Sends: sends[c]}
		for plane := range c.queues {
			c.inspect(&ci, pml.Plane(plane))
		}
		ins.Comms = append(ins.Comms, ci)
	}
	return ins
}

// inspect appends the queues of a plane. Lock held.
func (c *comm) inspect(ci *pml.CommInspection, plane pml.Plane) {
	q := &c.queues[plane]
	post := func(n *match.Recv[receive]) {
		ci.Posted = append(ci.Posted, pml.Pending{Peer: n.Source, Tag: n.Tag, Bytes: n.Owner.buf.Len(), Plane: plane, State: "posted", Wait: n.Owner.Awaited()})
	}
	q.Posted(nil, post)
	c.peers.each(func(p *peer) { q.Posted(&p.match[plane], post) })
	q.Unexpected(func(n *match.Message[message]) {
		m, state := n.Owner, "arrived"
		if m.offer != nil {
			if m.offer.isWithdrawn() {
				return
			}
			state = "offered"
		}
		ci.Unexpected = append(ci.Unexpected, pml.Pending{Peer: n.Source, Tag: n.Tag, Bytes: m.length(), Plane: plane, State: state})
	})
}

// Uses reports whether an offer or an incomplete receive of the rank uses a part of the memory.
func (r *Rank) Uses(memory []byte) bool {
	r.deliver(nil)
	r.engine.Lock()
	defer r.engine.Release()
	found := false
	r.offeredSends.each(func(s *send) { found = found || mem.Overlap(s.offer.buf.Bytes, memory) })
	posted := func(n *match.Recv[receive]) { found = found || mem.Overlap(n.Owner.buf.Bytes, memory) }
	for _, c := range r.commByID {
		for plane := range c.queues {
			q := &c.queues[plane]
			q.Posted(nil, posted)
			c.peers.each(func(p *peer) { q.Posted(&p.match[plane], posted) })
		}
	}
	for o := range r.activeTransfers {
		found = found || mem.Overlap(o.receive.buf.Bytes, memory)
	}
	return found
}
