package cm

import (
	"slices"

	"github.com/ferrympi/ferry/cid"
)

// parked is a control message that came too early.
type parked struct {
	control
	lot *parking // of its sender
}

// parking counts what one process has sent too early, or all those whose card has not
// come.
type parking struct {
	n    int
	lost bool // and some of it was dropped
}

// mostParked is how many control messages of a process are kept for communicators
// that are not here yet (80 bytes each): there are programs that make 40,000 at once.
const mostParked = 1 << 16

// noComm is the id under which goodbyes are parked. No communicator has it.
var noComm cid.Extended

// park keeps a control message that came too early, once. Lock held.
func (m *Module) park(f *control) {
	all := m.parked[f.id]
	if slices.ContainsFunc(all, func(k parked) bool { return k.from == f.from && k.typ == f.typ }) {
		return
	}
	p, lot := m.byNonce[f.from], &m.strange
	if p != nil {
		lot = &p.early
	}
	if lot.n >= mostParked {
		if !lot.lost {
			m.env.Logger.Warn("pml cm: control messages for communicators that are not here yet are dropped: too many; the ids are told again when they are made", "kept", mostParked)
		}
		lot.lost, m.lost = true, true
		if p != nil {
			p.stats.Dropped++
		}
		return
	}
	lot.n++
	m.parked[f.id] = append(all, parked{*f, lot})
}

// tellLost tells this process's id of a new communicator to those whose request for
// it may have been dropped. Who has closed there already answers. Lock held.
func (c *comm) tellLost() {
	for rank, p := range c.procs {
		if rank == c.spec.Rank || c.near != nil && c.near[rank] || !p.early.lost && !c.m.strange.lost {
			continue
		}
		c.peer(rank).tell(controlReply)
	}
}
