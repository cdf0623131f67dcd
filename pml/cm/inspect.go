package cm

import (
	"context"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
)

// unlistedNote is the note of every inspection.
const unlistedNote = "networks do not list waiting messages: messages without a posted receive are missing here"

// Inspect implements pml.Module.
func (m *Module) Inspect(ctx context.Context) (x pml.Inspection, err error) {
	err = m.engine.Observe(ctx, func() { x = m.inspect() })
	return x, err
}

// inspect is Inspect with the lock held.
func (m *Module) inspect() pml.Inspection {
	ins := pml.Inspection{EarlyArrivals: m.countEarly(), Notes: []string{unlistedNote}}
	posted, sends := map[*comm][]pml.Pending{}, map[*comm][]pml.Pending{}
	for _, r := range m.allRequests {
		if r.c == nil || r.state == complete {
			continue
		}
		p := pml.Pending{Peer: r.source(), Tag: r.tag, Bytes: r.userBuf.Len(), Plane: r.plane, State: stateNames[r.state], Wait: r.Awaited()}
		if r.isSend || r.state == receiving || r.state == receivingFragment {
			sends[r.c] = append(sends[r.c], p)
		} else {
			posted[r.c] = append(posted[r.c], p)
		}
	}
	for _, c := range m.comms.ByID {
		if c.Closing.Stage() >= cid.StageNotified {
			continue
		}
		ci := pml.CommInspection{ID: c.Spec.ID, Endpoint: c.Endpoint, Name: c.Spec.Name, Local: c.Spec.Local, Posted: posted[c], Sends: sends[c]}
		for plane := range c.matchQueues {
			c.matchQueues[plane].Unexpected(func(msg *match.Message[message]) {
				ci.Unexpected = append(ci.Unexpected, pml.Pending{Peer: msg.Source, Tag: msg.Tag, Bytes: msg.Owner.op.Bytes, Plane: pml.Plane(plane), State: "arrived"})
			})
		}
		ins.Comms = append(ins.Comms, ci)
	}
	return ins
}
