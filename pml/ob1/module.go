package ob1

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/pml/ob1/choose"
	"github.com/ferrympi/ferry/progress"
)

// Module is ob1 in one process. Everything is guarded by the engine's lock.
type Module struct {
	env    pml.Env
	engine *progress.Engine

	transports []*transport // by preference
	caps       pml.Caps

	comms       base.Comms[comm]
	quarantined map[cid.EndpointID]*comm // closed here, and not by all who may still send
	procs       base.Procs[*proc]
	early       earlyArrivals
	inquiries   base.Inquiries
	failures    int // processes with an error, and aborted planes

	requests     []*request // all there are, by slot
	free         *request
	freeMessages *message
	fast         uint // receives that polled one path only, so far
	pool         pool
	fragment     int64          // bytes of payload in a frame of a large message
	budget       int64          // bytes of unexpected messages per peer
	header       [dataSize]byte // of the frame that is gathered
	sends        int            // that are not complete

	reading []*request // that copy from or to another process's memory
	inReads bool       // readSome is going through them

	opened time.Time
	way    string     // pml.ob1.way
	ways   choose.Set // that it allows
	drawn  uint64     // the last random number

	busy     []*proc // that have something to send
	spare    []*proc // busy's other backing array
	doubting doubting
}

// Offer implements pml.Module.
func (m *Module) Offer() pml.Offer {
	return pml.Offer{PML: name, Version: WireVersion, Priority: component{}.Info().Priority}
}

// Addresses implements pml.Module: the credit that this process grants to each
// peer, and where its BTLs are reached.
func (m *Module) Addresses() []framework.Address {
	all := []framework.Address{{Component: framework.ComponentName(framework.PML, name), Blob: putAddress(m.budget)}}
	for _, t := range m.transports {
		if blob := t.Blob(); blob != nil {
			all = append(all, framework.Address{Component: framework.ComponentName(framework.BTL, t.name), Blob: blob})
		}
	}
	return all
}

// CIDs implements pml.Module.
func (m *Module) CIDs() *cid.Table { return m.comms.Table }

// Caps implements pml.Module. They are asked for by each communicator that is made.
func (m *Module) Caps() pml.Caps { return m.caps }

// capsOf returns what transports make of them: theirs are fixed.
func capsOf(transports []*transport) pml.Caps {
	caps := pml.Caps{TagMax: tagMax, MaxMessage: math.MaxInt64, Withdraw: true, Arrivals: true}
	for _, t := range transports {
		caps.Steps = append(caps.Steps, t.EagerLimit, t.FrameLimit, 4*t.FrameLimit)
	}
	slices.Sort(caps.Steps)
	caps.Steps = slices.Compact(caps.Steps)
	return caps
}

// Learn implements pml.Module.
func (m *Module) Learn(peer framework.Life, card framework.Card) error {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.learn(peer, card)
}

// Poll implements progress.Source: it sends what waits for a path.
func (m *Module) Poll() (n int) {
	if len(m.reading) > 0 {
		n = m.readSome()
	}
	if m.doubting.any() {
		m.resolve()
	}
	if len(m.busy) == 0 {
		return n
	}
	work := m.busy
	m.busy, m.spare = m.spare[:0], work
	for _, p := range work {
		p.busy = false
		n += p.pump()
		if !p.idle() && p.why == nil {
			p.markBusy()
		}
	}
	clear(work)
	return n
}

// Route implements pml.Module.
func (m *Module) Route(peer framework.Life) pml.Route {
	m.engine.Lock()
	defer m.engine.Unlock()
	p := m.known(peer)
	route := pml.Route{PML: name}
	if p == nil {
		return route
	}
	cut := p.cut
	t, rejected := p.route()
	if t != nil && p.neverOpened() {
		rejected = append(rejections{{Name: t.name, Reason: p.Err.Error()}}, rejected...)
		t, cut = nil, true
	}
	// What only a late answer needed has failed nobody: its peer may have closed its session.
	route.Rejected, route.Failed = rejected, t == nil && cut
	route.Learnt = p.incoming.report()
	if t != nil {
		route.Used = t == p.out
		d := p.fully(t)
		route.Transport, route.Device, route.Notes, route.Unused = t.name, cmp.Or(d.Device, t.Device), d.Notes, d.Unused
	}
	return route
}

// Stats implements pml.Module.
func (m *Module) Stats() []pml.PeerStats {
	m.engine.Lock()
	defer m.engine.Unlock()
	for _, p := range m.procs.Lives {
		// Who has only received knows the transport by which the peer came.
		if t := cmp.Or(p.out, p.inBy); t != nil && p.Stats.Sent+p.Stats.Received > 0 {
			d := p.describe(t)
			p.Stats.Transport = cmp.Or(p.Stats.Transport, t.name)
			p.Stats.Reconnects, p.Stats.Resent = d.Reconnects, d.Resent
		}
	}
	return m.procs.Stats()
}

// Inspect implements pml.Module.
func (m *Module) Inspect(ctx context.Context) (x pml.Inspection, err error) {
	err = m.engine.Observe(ctx, func() { x = m.inspect() })
	return x, err
}

// inspect is Inspect with the lock held.
func (m *Module) inspect() pml.Inspection {
	ins := pml.Inspection{EarlyArrivals: m.early.count()}
	sends := map[*comm][]pml.Pending{}
	for _, r := range m.requests {
		if r.state == idle || r.state == complete || r.state == posted {
			continue
		}
		state := stateNames[r.state]
		if !r.send {
			state = "receiving"
		}
		sends[r.c] = append(sends[r.c], pml.Pending{Peer: r.p.rank, Tag: r.tag, Bytes: r.buf.Len(), Plane: r.plane, State: state, Wait: r.Awaited()})
	}
	for _, c := range m.comms.ByID {
		ci := pml.CommInspection{ID: c.Spec.ID, Endpoint: c.Endpoint, Name: c.Spec.Name, Local: c.Spec.Local, Sends: sends[c]}
		for plane := range c.queues {
			q := &c.queues[plane]
			post := func(r *match.Recv[request]) {
				ci.Posted = append(ci.Posted, pml.Pending{Peer: r.Source, Tag: r.Tag, Bytes: r.Owner.buf.Len(), Plane: pml.Plane(plane), State: stateNames[posted], Wait: r.Owner.Awaited()})
			}
			q.Posted(nil, post)
			for _, p := range c.peers.All() {
				q.Posted(&p.match[plane], post)
			}
			q.Unexpected(func(msg *match.Message[message]) {
				state := "arrived"
				if msg.Owner.rts {
					state = stateNames[rtsSent]
				}
				ci.Unexpected = append(ci.Unexpected, pml.Pending{Peer: msg.Source, Tag: msg.Tag, Bytes: msg.Owner.length, Plane: pml.Plane(plane), State: state})
			})
		}
		for _, p := range c.peers.All() {
			if l := p.proc.incoming.report(); l != nil {
				if ci.Learnt == nil {
					ci.Learnt = map[int][]pml.Learnt{}
				}
				ci.Learnt[p.rank] = l
			}
		}
		ins.Comms = append(ins.Comms, ci)
	}
	for _, p := range m.procs.Lives {
		t := cmp.Or(p.out, p.inBy)
		for _, l := range p.incoming.report() {
			ins.Notes = append(ins.Notes, fmt.Sprintf("%v: messages from there, %v", p, l))
		}
		for _, note := range p.describe(t).Notes {
			ins.Notes = append(ins.Notes, fmt.Sprintf("%v: %s: %s", p, t.name, note))
		}
	}
	slices.Sort(ins.Notes)
	return ins
}

// flushed reports whether nothing that was accepted depends on this process any
// more. Lock held.
func (m *Module) flushed() bool {
	if m.sends > 0 {
		return false
	}
	for _, p := range m.procs.Lives {
		if !p.idle() || p.endpoint != nil && !p.endpoint.Idle() {
			return false
		}
	}
	return true
}

// Flush implements pml.Module.
func (m *Module) Flush(ctx context.Context) error { return pml.Until(ctx, m.engine, m.flushed) }

// Close implements pml.Module. What is pending ends: whoever waits for it later hears it.
func (m *Module) Close() error {
	m.engine.Remove(m)
	m.engine.Lock()
	defer m.engine.Unlock()
	err := fmt.Errorf("%w: the last session was closed meanwhile", framework.ErrClosed)
	for _, c := range m.comms.ByID {
		c.Rest = cid.Rest{} // it goes with the module, and tells nobody
	}
	for _, p := range m.procs.Lives {
		p.closePath(err) // first: what is gathered is read until then
		p.incoming.turns = requestList{}
	}
	for _, r := range m.requests { // receives that nobody matched, sends that did not leave in time
		if r.state != idle && r.state != complete {
			r.fail(err)
		}
	}
	m.endShares()
	return nil
}
