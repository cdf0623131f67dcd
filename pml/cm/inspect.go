package cm

import (
	"maps"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
)

// Inspect implements pml.Module. A network does not tell what waits in it: Inspect
// takes the messages out, mostPulled of a plane, and keeps them, in order, for the
// receives to come.
func (m *Module) Inspect() pml.Inspection {
	var node pml.Inspection
	if m.node != nil {
		node = m.node.Inspect()
	}
	m.engine.Lock()
	defer m.engine.Unlock()
	comms := slices.Collect(maps.Values(m.comms.ByID))
	for _, c := range comms {
		for plane := range pml.Plane(pml.Planes) {
			for m.pulls == mostPulls || c.pulling[plane].left > 0 {
				m.awaitPull(nil)
			}
			c.pull(plane, nil)
		}
	}
	for m.pulls > 0 {
		m.awaitPull(nil)
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

// snapshot describes communicators. Lock held.
func (m *Module) snapshot(comms []*comm) pml.Inspection {
	var ins pml.Inspection
	ins.Parked = m.parked()
	posted, sends := map[*comm][]pml.Pending{}, map[*comm][]pml.Pending{}
	for _, r := range m.requests {
		if r.c == nil || r.state == complete {
			continue
		}
		p := pml.Pending{Peer: r.source(), Tag: r.tag, Bytes: r.buf.Len(), Plane: r.plane, State: stateNames[r.state]}
		if r.send || r.state == receiving || r.state == given {
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
		if c.Rest.Stage() >= cid.Parted {
			continue
		}
		ci := pml.CommInspection{ID: c.Spec.ID, Name: c.Spec.Name, Local: c.Spec.Local, Posted: posted[c], Sends: sends[c], Unexpected: near[c]}
		for plane := range c.queues {
			c.queues[plane].Unexpected(func(msg *match.Message[message]) {
				ci.Unexpected = append(ci.Unexpected, pml.Pending{Peer: msg.Source, Tag: msg.Tag, Bytes: msg.Owner.op.Bytes, Plane: pml.Plane(plane), State: "arrived"})
			})
		}
		ins.Comms = append(ins.Comms, ci)
	}
	return ins
}
