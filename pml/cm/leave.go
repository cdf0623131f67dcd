package cm

import (
	"context"
	"slices"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// How others hear that a session is over.
//
// A network does not tell that a process has closed its last session: what is sent to
// it afterwards is tried for ever. So a process says goodbye, when all that it has
// sent is on its way, to each with whom it has exchanged anything over the network.
// What is sent to it later ends with btl.ErrPeerClosed, and so does, some milliseconds
// after, what is on its way still: it may have been received, and the goodbye have
// overtaken the network's word of that. Nobody answers, and nobody is waited for.
//
// A goodbye may overtake messages, and names their number. Receives go on until that
// many have come: those that were received or dropped are counted, and the rest may
// lie in the network while receives wait for others, so that it is taken out (see
// pull) and counted too. Only then do receives from the process end with an error.

// What is on its way to a process that has left is given so many looks of farewell, at
// least farewellGap apart.
const (
	looksBeforeForget = 10
	farewellGap       = 2 * time.Millisecond
)

// goodbyePatience is how long a session that closes waits until its goodbyes are on
// their way. There is no room for one to a peer that has left without a word, nor will
// there be.
const goodbyePatience = 200 * time.Millisecond

// Flush implements pml.Module.
func (m *Module) Flush(ctx context.Context) error {
	if m.node != nil {
		if err := m.node.Flush(ctx); err != nil {
			return err
		}
	}
	if err := pml.Until(ctx, m.engine, m.idle); err != nil {
		return err
	}
	m.engine.Lock()
	m.sayGoodbye()
	m.engine.Unlock()
	ctx, cancel := context.WithTimeout(ctx, goodbyePatience)
	defer cancel()
	_ = pml.Until(ctx, m.engine, m.idle) // who does not get it has left
	return nil
}

// idle reports whether nothing is left that only this process can bring on its way.
// Lock held.
func (m *Module) idle() bool { return m.sends == 0 && m.mtl.Idle() }

// sayGoodbye tells all with whom anything was exchanged. Lock held.
func (m *Module) sayGoodbye() {
	sent := map[*proc]uint64{}
	for _, c := range m.byID {
		for _, p := range c.peers {
			if p != nil {
				sent[p.proc] += p.sentAll()
			}
		}
	}
	for _, p := range m.procs {
		if p.id == m.self || p.unreachable != nil || !p.talked && p.stats.Sent+p.stats.Received+p.stats.Dropped == 0 {
			continue
		}
		p.control(control{typ: controlGoodbye, rank: anyRank, sent: [pml.Planes]uint64{p.sent + sent[p]}})
	}
}

// sentAll is the number of messages to a member, on all planes.
func (p *peer) sentAll() (n uint64) {
	for _, k := range p.sent {
		n += k
	}
	return n
}

// leaving are the processes that have said goodbye, and of which messages may still
// come.
type leaving struct {
	procs []*proc
	gap   time.Duration // between looks for them
	next  time.Time
}

// goodbye takes the goodbye of p; nil: a process whose card has not come. Lock held.
func (m *Module) goodbye(p *proc, f *control) {
	switch {
	case p == nil:
		m.park(f)
	case p.id == m.self || p.left:
	case p.connect() == nil: // receives name it still
		m.hook(pml.Event{Kind: pml.EventControl, Peer: p.id, Note: controlNames[f.typ]})
		p.left, p.last = true, f.sent[0]
		p.shut(&framework.TransportError{Component: "pml cm", Peer: p.String(), Op: "send", Err: btl.ErrPeerClosed})
		l := &m.leaving
		l.procs, l.gap = append(l.procs, p), farewellGap
		if soon := time.Now().Add(farewellGap); l.next.After(soon) {
			l.next = soon
		}
		m.engine.Nudge()
	}
}

// unparkGoodbye takes a goodbye that came before the card. Lock held.
func (m *Module) unparkGoodbye(p *proc) {
	all := m.parked[noComm]
	i := slices.IndexFunc(all, func(k parked) bool { return k.from == p.nonce })
	if i < 0 {
		return
	}
	k := all[i]
	m.parked[noComm] = slices.Delete(all, i, i+1)
	k.lot.n--
	m.goodbye(p, &k.control)
}

// farewell ends what waits for processes that have left, once all of their messages
// are accounted for. Lock held.
func (m *Module) farewell() {
	l := &m.leaving
	now := time.Now()
	if now.Before(l.next) {
		return
	}
	l.gap = min(2*l.gap, lastReapGap)
	l.procs = slices.DeleteFunc(l.procs, func(p *proc) bool {
		if p.looks++; p.looks < looksBeforeForget && p.err == nil {
			l.gap = farewellGap
			return false
		}
		p.forget()
		if p.stats.Received+p.reaped+p.kept < p.last && p.err == nil {
			return false
		}
		p.fail(p.unreachable)
		return true
	})
	l.next = now.Add(l.gap)
	if len(l.procs) == 0 {
		return
	}
	for _, r := range m.requests {
		if r.state == posted && r.p != nil {
			r.p.proc.seek(r.c, r.plane)
		}
	}
}

// seek takes messages out of the network for somebody who waits on a plane for this
// process, if it has left and some of its messages are not accounted for. Lock held.
func (p *proc) seek(c *comm, plane pml.Plane) {
	if p.left && p.err == nil {
		c.pull(plane)
	}
}
