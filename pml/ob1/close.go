package ob1

import (
	"slices"

	"github.com/ferrympi/ferry/cid"
)

// How an index comes to be used again.
//
// A member that closes a communicator tells everybody with whom it has exchanged
// messages there (frameClosed), and its index rests until all of them have said
// the same. Paths keep the order of frames: after a peer's marker no message of
// its comes that names the index. A peer with whom it exchanged nothing may still
// send; such a message names the old generation of the index, and the table never
// gives the same index and generation out twice without need (package cid).

// rest begins the rest of a closed communicator's index. Lock held.
func (c *comm) rest() {
	m := c.m
	m.table.Rest(c.spec.Local)
	for rank, p := range c.peers {
		if p == nil || rank == c.spec.Rank || p.proc.err != nil || p.sendSeq == 0 && p.recvSeq == 0 && !p.closed {
			continue
		}
		p.told = true
		if p.proc.control(cidFrame(frameClosed, c.spec.ID, c.spec.Rank, c.spec.Local)) && !p.closed {
			c.waiting++
		}
	}
	if c.waiting == 0 {
		m.table.Rested(c.spec.Local)
		return
	}
	m.resting[c.spec.ID] = c
}

// closedBy says that nothing more comes from a peer. Lock held.
func (c *comm) closedBy(p *peer) {
	if p.closed {
		return
	}
	p.closed = true
	if m := c.m; m.resting[c.spec.ID] == c && p.told {
		if c.waiting--; c.waiting == 0 {
			delete(m.resting, c.spec.ID)
			m.table.Rested(c.spec.Local)
		}
	}
}

// closed takes a frameClosed. Lock held.
func (p *proc) closed(f []byte) error {
	m := p.m
	id := cid.Extended{Base: le.Uint64(f[16:]), Sub: le.Uint64(f[24:])}
	reply := f[1]&closedReply != 0
	c := m.byID[id]
	if c == nil {
		c = m.resting[id]
	}
	if c != nil {
		rank := le.Uint32(f[4:])
		if reply { // whoever has forgotten the communicator has forgotten its rank
			rank = uint32(c.rankOf(p))
		}
		q, err := c.from(p, rank)
		if err != nil {
			return err
		}
		c.closedBy(q)
		if !c.closing || q.told || reply {
			return nil
		}
		q.told = true
		p.confirmClosed(id)
		return nil
	}
	switch {
	case reply:
	case m.gone.Has(id):
		p.confirmClosed(id)
	default: // not here yet: members close and create at different times
		m.parked.byID[id] = append(m.parked.byID[id], parkedFrame{from: p, frame: slices.Clone(f)})
		m.parked.count++
	}
	return nil
}

// confirmClosed answers a frameClosed of a communicator on which this process
// had nothing to say.
func (p *proc) confirmClosed(id cid.Extended) {
	answer := cidFrame(frameClosed, id, 0, cid.NoLocal)
	answer.b[1] = closedReply
	p.control(answer)
}
