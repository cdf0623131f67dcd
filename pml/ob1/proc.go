package ob1

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// proc is what this process knows of another one (or of itself): its card, the
// path to it, and what waits for that path. Each life of a process is a proc, with
// paths and credit of its own; communicators keep those with which they were made.
type proc struct {
	// What every message needs comes first: instructions that reach it are shorter.

	// direct: a message may be sent at once. There is a path, and nothing queues.
	direct bool
	short  btl.ShortSender // of endpoint
	eager  int             // the largest eager frame
	// Messages from this size on are not eager if they are in memory from AllocMem.
	onceFrom int
	// Credit for messages that may be unexpected: what this process may still send of
	// what the card grants, and what it has received and not yet given back.
	credit, owed, granted int64
	in                    inPath
	last                  *peer // whose message came last, on a communicator that exists
	m                     *Module

	base.Proc
	card     framework.Card
	endpoint btl.Endpoint
	gather   btl.Gatherer     // of endpoint; nil: it can't
	wide     btl.WideReserver // the same
	out      *transport       // of endpoint; the last one, if that has been closed
	frame    int              // the largest frame
	inBy     *transport       // the path from it; nil: there is none
	refused  []refused
	was      *btl.Description // of the path, when it was closed (pml.Env.LateRoutes)

	controls []control     // that wait for the path
	queue    requestList   // sends of which nothing is out
	pushing  requestList   // accepted sends whose payload goes out
	offered  uint64        // handle of the last RTS
	since    time.Duration // when the window began that it belongs to; 0: to none
	windowed bool          // others were under way with it
	busy     bool          // in Module.busy
	why      error         // it is in doubt, because of that
	cut      bool          // messages needed a path, and none opened
	steps    int           // that it still is

	unmatched map[uint64]*message // its RTSs for which there was no receive yet, by handle

	packing  *[linesKinds][classes]packing // nil until the first part that may be timed
	packed   uint64                        // first parts of messages that are alone
	incoming incoming
	writes   bool                                      // it can write into this process's memory, its last RTS says
	parts    [btl.Memories][depthsSent][classes]advice // of this process's messages to it
}

// learn takes the card of a life, which is the process's present one from now on.
func (m *Module) learn(life framework.Life, card framework.Card) error {
	granted, err := parseAddress(card.Find(framework.PML, name))
	if err != nil {
		return err
	}
	p := m.procs.Get(life)
	if !p.Known {
		p.granted, p.credit = granted, granted
	}
	p.card, p.refused = card, nil // a newer one may be of a transport that was started again
	if old := m.procs.Present(p); old != nil {
		m.procs.Forget(old)
		old.drain()
		old.Fail(m.procs.Ended(old.Life))
	}
	if len(p.controls) > 0 { // answers that waited for the card
		p.reopen()
		m.engine.Nudge()
	}
	return nil
}

// Over implements pml.Renewer.
func (m *Module) Over() []framework.Life {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.procs.Over()
}

// Renew implements pml.Renewer. Communicators keep the process with which they were made,
// and which has ended.
func (m *Module) Renew(life framework.Life) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.lastPolls()
	p := m.procs.Find(life)
	if !m.procs.Renew(life, p) {
		return
	}
	for _, t := range m.transports {
		if t.renewer != nil {
			t.renewer.Renew(life)
		}
	}
	if p != nil {
		m.procs.Get(life).Stats = p.Stats // they are of the life
	}
}

// DropPeer implements pml.PeerDropper.
func (m *Module) DropPeer(life framework.Life) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	p, ok := m.procs.Remove(life)
	if !ok {
		return false
	}
	if p != nil {
		m.early.drop(p)
		p.last = nil
	}
	m.forget(life)
	return true
}

// drain takes what has come from the process already.
func (p *proc) drain() {
	s := p.inPath().source // which may find what others send, too
	for i := 0; i < mostLastPolls && s != nil && s.Poll() > 0; i++ {
	}
}

// messageCost is what a message takes at a receiver that has no receive for it,
// besides its payload: the node in the queue and the buffer's rounding.
const messageCost = 128

// owe gives the credit of a received message back, in few frames. Lock held.
func (p *proc) owe(bytes int64) {
	if p.owed += bytes + messageCost; p.owed >= p.m.budget/4 {
		p.pay()
	}
}

// release owes what the sender has charged for a message with which that payload came:
// for an RTS without any it has charged nothing. Lock held.
func (p *proc) release(rts bool, payload []byte) {
	if !rts || len(payload) > 0 {
		p.owe(int64(len(payload)))
	}
}

func (p *proc) pay() {
	p.control(creditFrame(p.owed))
	p.owed = 0
}

// control sends a control frame, now or when the path allows, and reports
// whether there is a path. Lock held.
func (p *proc) control(c control) bool {
	if p.m.procs.Meet(p); !p.Known && p.Err == nil {
		// Its frames came before its card: it has made a communicator with this
		// process that is not complete here. The answer goes when the card comes.
		p.controls = append(p.controls, c)
		return true
	}
	open := p.open
	if c.needed() {
		open = p.connect
	}
	if open() != nil || p.endpoint == nil {
		// It has left, perhaps in good order, and waits for nothing. What it sent
		// before is delivered.
		return false
	}
	p.m.env.Event(pml.Event{Kind: pml.EventControl, Peer: p.Life, Note: frameNames[c.b[0]]})
	if len(p.controls) == 0 && p.put(&c) {
		return true
	}
	p.controls = append(p.controls, c)
	p.markBusy()
	return true
}

// needed reports whether the receiver of a control frame must be there: it has sent an RTS.
// Other answers are for a process that may have left in good order.
func (c *control) needed() bool { return c.b[0] == frameCTS || c.b[0] == frameShare }

// put sends a control frame if the path has room for it.
func (p *proc) put(c *control) bool {
	b := p.endpoint.Reserve(c.size)
	if b == nil {
		return false
	}
	copy(b, c.b[:c.size])
	p.endpoint.Commit(c.size)
	return true
}

// markBusy has Module.Poll look after this process.
func (p *proc) markBusy() {
	if !p.busy {
		p.busy = true
		p.m.busy = append(p.m.busy, p)
	}
}

// settle keeps direct up to date after a change of the queue.
func (p *proc) settle() {
	p.direct = p.Err == nil && p.endpoint != nil && p.queue.head == nil
}

// pump sends what waits, as far as the path takes it: control frames, then new
// messages in their order, then payload. It returns how much went. Lock held.
func (p *proc) pump() (n int) {
	if p.Err != nil || p.endpoint == nil {
		return 0
	}
	for n < len(p.controls) && p.put(&p.controls[n]) {
		n++
	}
	if p.controls = slices.Delete(p.controls, 0, n); len(p.controls) > 0 {
		return n
	}
	for p.queue.head != nil && p.queue.head.first() {
		n++
	}
	if p.queue.head == nil {
		p.settle()
	}
	for p.pushing.head != nil {
		k := p.pushing.head.push()
		if k == 0 {
			break
		}
		n += k
	}
	return n
}

// idle reports whether nothing waits for the path.
func (p *proc) idle() bool {
	return len(p.controls) == 0 && p.queue.head == nil && p.pushing.head == nil
}

// Fail implements base.Process. Lock held.
func (p *proc) Fail(err error) {
	if !p.End(err) {
		return
	}
	p.m.failures++
	p.why = nil
	p.closePath(err)
	p.controls = nil
	p.queue, p.pushing = requestList{}, requestList{}
	p.incoming.turns, p.incoming.n, p.incoming.bytes = requestList{}, 0, 0
	for _, r := range p.m.requests {
		if r.state == idle || r.state == complete || r.p == nil && r.state != posted {
			continue
		}
		if err := r.c.Ends(r.source(), r.plane, p); err != nil {
			if r.state == posted {
				r.c.queues[r.plane].Cancel(&r.node)
			}
			r.fail(err)
		}
	}
	for _, c := range p.m.comms.ByID {
		c.changed()
	}
	for _, c := range p.m.quarantined {
		for _, rank := range c.Ranks(p) {
			if q := c.peers.Get(rank); q != nil { // with others nothing was exchanged
				c.end(c.Rest.Gone(&q.closing))
			}
		}
	}
}
