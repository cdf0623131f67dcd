package cm

import (
	"maps"
	"slices"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
)

// Inspect implements pml.Module. A network does not tell what waits in it: Inspect
// takes the messages out, and keeps them, in order, for the receives to come.
func (m *Module) Inspect() pml.Inspection {
	m.inspecting.Lock()
	defer m.inspecting.Unlock()
	var node pml.Inspection
	if m.node != nil {
		node = m.node.Inspect()
	}
	m.engine.Lock()
	defer m.engine.Unlock()
	comms := slices.Collect(maps.Values(m.byID))
	for _, c := range comms {
		for plane := range pml.Plane(pml.Planes) {
			c.pull(plane)
		}
	}
	return joined(m.snapshot(comms), node)
}

// joined adds what there is of the same communicators on the node.
func joined(net, node pml.Inspection) pml.Inspection {
	net.Parked += node.Parked
	for _, n := range node.Comms {
		i := slices.IndexFunc(net.Comms, func(c pml.CommInspection) bool { return c.ID == n.ID })
		if i < 0 {
			net.Comms = append(net.Comms, n)
			continue
		}
		c := &net.Comms[i]
		c.Posted, c.Unexpected, c.Sends = append(c.Posted, n.Posted...), append(c.Unexpected, n.Unexpected...), append(c.Sends, n.Sends...)
	}
	return net
}

// pull takes the messages of a plane out of the network into the unexpected queue.
// They are the first that their senders have sent and that nobody has received, so
// that a receive looks there first. Receives that are posted meanwhile wait. Lock
// held, and released meanwhile.
func (c *comm) pull(plane pml.Plane) {
	if c.closing || c.m.closed {
		return
	}
	c.pulling[plane] = true
	for !c.closing {
		msg, err := c.ask(pml.AnySource, pml.AnyTag, plane, true)
		if msg == nil || err != nil {
			break
		}
		if c.closing {
			msg.discard()
			break
		}
		p := c.peer(int(msg.op.Source))
		msg.node.Source, msg.node.Tag = p.rank, int(msg.op.Tag)
		c.queues[plane].Keep(&p.match[plane], &msg.node)
		c.m.kept++
		p.proc.stats.Unexpected++
	}
	c.pulling[plane] = false
	waiting := c.deferred[plane]
	c.deferred[plane] = nil
	for _, r := range waiting {
		r.post()
	}
	c.m.wakeProbes()
}

// snapshot describes communicators. Lock held.
func (m *Module) snapshot(comms []*comm) pml.Inspection {
	var ins pml.Inspection
	for _, parked := range m.parked {
		ins.Parked += len(parked)
	}
	posted, sends := map[*comm][]pml.Pending{}, map[*comm][]pml.Pending{}
	for _, r := range m.requests {
		if r.c == nil || r.state == complete {
			continue
		}
		p := pml.Pending{Peer: r.source(), Tag: r.tag, Bytes: r.buf.Len(), Plane: r.plane, State: stateNames[r.state]}
		if r.send || r.state == receiving {
			sends[r.c] = append(sends[r.c], p)
		} else {
			posted[r.c] = append(posted[r.c], p)
		}
	}
	near := map[*comm][]pml.Pending{} // messages of the node that were claimed
	for w := range m.wilds {
		add := func(msg *nearMessage) {
			near[w.c.comm] = append(near[w.c.comm], pml.Pending{Peer: msg.node.Source, Tag: msg.node.Tag, Bytes: int64(msg.bytes), Plane: w.plane, State: "arrived"})
		}
		w.queues.Unexpected(func(msg *match.Message[nearMessage]) { add(msg.Owner) })
		for _, msg := range w.arrived {
			add(msg)
		}
	}
	for _, c := range comms {
		if c.removed || c.rested {
			continue
		}
		ci := pml.CommInspection{ID: c.spec.ID, Name: c.spec.Name, Local: c.spec.Local, Posted: posted[c], Sends: sends[c], Unexpected: near[c]}
		for plane := range c.queues {
			c.queues[plane].Unexpected(func(msg *match.Message[message]) {
				ci.Unexpected = append(ci.Unexpected, pml.Pending{Peer: msg.Source, Tag: msg.Tag, Bytes: msg.Owner.op.Bytes, Plane: pml.Plane(plane), State: "arrived"})
			})
		}
		ins.Comms = append(ins.Comms, ci)
	}
	return ins
}
