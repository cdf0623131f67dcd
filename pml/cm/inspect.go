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
	return m.snapshot(comms)
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
		if r.send || r.state == receiving {
			sends[r.c] = append(sends[r.c], p)
		} else {
			posted[r.c] = append(posted[r.c], p)
		}
	}
	for _, c := range comms {
		if c.Rest.Stage() >= cid.Parted {
			continue
		}
		ci := pml.CommInspection{ID: c.Spec.ID, Name: c.Spec.Name, Local: c.Spec.Local, Posted: posted[c], Sends: sends[c]}
		for plane := range c.queues {
			c.queues[plane].Unexpected(func(msg *match.Message[message]) {
				ci.Unexpected = append(ci.Unexpected, pml.Pending{Peer: msg.Source, Tag: msg.Tag, Bytes: msg.Owner.op.Bytes, Plane: pml.Plane(plane), State: "arrived"})
			})
		}
		ins.Comms = append(ins.Comms, ci)
	}
	return ins
}
