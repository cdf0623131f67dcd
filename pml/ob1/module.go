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
	"github.com/ferrympi/ferry/pml/ob1/selector"
	"github.com/ferrympi/ferry/progress"
)

// Module is the ob1 instance of a process.
type Module struct {
	env    pml.Env
	engine *progress.Engine

	// transports are in order of preference.
	transports []*transport
	caps       pml.Caps

	comms base.Comms[comm]
	// quarantined are closed communicators that some members may still send to.
	quarantined map[cid.EndpointID]*comm
	procs       base.Procs[*proc]
	early       earlyArrivals
	inquiries   base.Inquiries
	// failures counts failed processes, aborted planes and the like. Unless it is 0, each receive
	// checks whether its message can still arrive.
	failures int

	requestPool
	// fastReceives counts receives that polled a single path (receivesPerProgress).
	fastReceives uint
	settings
	// gatherHeader is scratch memory for the header of a gathered frame.
	gatherHeader [dataSize]byte
	copies       copyList
	openedAt     time.Time
	randomState  uint64
	busyQueue
	suspects suspicion
}

// settings are the parameters of a module.
type settings struct {
	// fragmentSize and unexpectedLimit are in bytes.
	fragmentSize    int64
	unexpectedLimit int64
	// protocolParam is the parameter way, and allowedProtocols the protocols that it allows.
	protocolParam    string
	allowedProtocols selector.Set
}

// busyQueue has the processes with queued frames.
type busyQueue struct {
	busyProcs []*proc
	// spareBusyProcs is the memory of the list before the last Poll.
	spareBusyProcs []*proc
}

// Capabilities implements pml.Module.
func (m *Module) Capabilities() pml.Capabilities {
	return pml.Capabilities{PML: name, Version: WireVersion, Priority: component{}.Info().Priority}
}

// Addresses implements pml.Module. It returns ob1's own entry with the credit for each peer,
// and the addresses of the BTLs.
func (m *Module) Addresses() []framework.Address {
	all := []framework.Address{{Component: framework.ComponentName(framework.PML, name), Blob: encodeAddress(m.unexpectedLimit)}}
	for _, t := range m.transports {
		if blob := t.Blob(); blob != nil {
			all = append(all, framework.Address{Component: framework.ComponentName(framework.BTL, t.name), Blob: blob})
		}
	}
	return all
}

// CIDs implements pml.Module.
func (m *Module) CIDs() *cid.Table { return m.comms.Table }

// Caps implements pml.Module.
func (m *Module) Caps() pml.Caps { return m.caps }

// capsOf combines the fixed properties of the transports.
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
func (m *Module) Learn(peer framework.Incarnation, card framework.Card) error {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.learn(peer, card)
}

// Poll implements progress.Source. It steps copies between processes, resolves suspicions,
// and sends pending frames.
func (m *Module) Poll() (n int) {
	if len(m.copies.requests) > 0 {
		n = m.stepCopies()
	}
	if m.suspects.isActive() {
		m.resolveSuspects()
	}
	if len(m.busyProcs) == 0 {
		return n
	}
	work := m.busyProcs
	m.busyProcs, m.spareBusyProcs = m.spareBusyProcs[:0], work
	for _, p := range work {
		p.isBusy = false
		m.procs.LearnCard(p)
		n += p.sendPending()
		// Without a card, learn continues.
		if !p.isIdle() && p.suspectedFor == nil && p.HasCard {
			p.markBusy()
		}
	}
	clear(work)
	return n
}

// Route implements pml.Module.
func (m *Module) Route(peer framework.Incarnation) pml.Route {
	m.engine.Lock()
	defer m.engine.Unlock()
	p := m.known(peer)
	route := pml.Route{PML: name}
	if p == nil {
		return route
	}
	cut := p.hasNoRoute
	t, rejected := p.route()
	if t != nil && p.neverOpened() {
		rejected = append(rejections{{Name: t.name, Reason: p.Err.Error()}}, rejected...)
		t, cut = nil, true
	}
	// A path that only an answer needed has failed no operation. The peer may have closed its session.
	route.Rejected, route.Failed = rejected, t == nil && cut
	route.Estimates = p.incoming.estimates()
	if t != nil {
		route.Used = t == p.outTransport
		d := p.describePath(t)
		route.Transport, route.Device, route.Notes, route.Unused = t.name, cmp.Or(d.Device, t.Device), d.Notes, d.Unused
	}
	return route
}

// Stats implements pml.Module.
func (m *Module) Stats() []pml.PeerStats {
	m.engine.Lock()
	defer m.engine.Unlock()
	for _, p := range m.procs.Incarnations {
		// A process that only receives reports the transport of the incoming path.
		if t := cmp.Or(p.outTransport, p.inTransport); t != nil && p.Stats.Sent+p.Stats.Received > 0 {
			d := p.describeTransport(t)
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

// inspect implements Inspect. Lock held.
func (m *Module) inspect() pml.Inspection {
	ins := pml.Inspection{EarlyArrivals: m.early.count()}
	sends := map[*comm][]pml.Pending{}
	for _, r := range m.requests {
		if r.state == stateIdle || r.state == stateComplete || r.state == statePosted {
			continue
		}
		state := r.state.String()
		if !r.isSend {
			state = "receiving"
		}
		sends[r.c] = append(sends[r.c], pml.Pending{Peer: r.p.rank, Tag: r.tag, Bytes: r.buf.Len(), Plane: r.plane, State: state, Transfer: r.describeTransfer(), Wait: r.Awaited()})
	}
	for _, c := range m.comms.ByID {
		ci := pml.CommInspection{ID: c.Spec.ID, Endpoint: c.Endpoint, Name: c.Spec.Name, Local: c.Spec.Local, Sends: sends[c]}
		for plane := range c.queues {
			q := &c.queues[plane]
			post := func(r *match.Recv[request]) {
				ci.Posted = append(ci.Posted, pml.Pending{Peer: r.Source, Tag: r.Tag, Bytes: r.Owner.buf.Len(), Plane: pml.Plane(plane), State: statePosted.String(), Wait: r.Owner.Awaited()})
			}
			q.Posted(nil, post)
			for _, p := range c.peers.All() {
				q.Posted(&p.match[plane], post)
			}
			q.Unexpected(func(msg *match.Message[unexpectedMessage]) {
				state := "arrived"
				if msg.Owner.isRTS {
					state = stateOffered.String()
				}
				ci.Unexpected = append(ci.Unexpected, pml.Pending{Peer: msg.Source, Tag: msg.Tag, Bytes: msg.Owner.length, Plane: pml.Plane(plane), State: state})
			})
		}
		for _, p := range c.peers.All() {
			if l := p.proc.incoming.estimates(); l != nil {
				if ci.Estimates == nil {
					ci.Estimates = map[int][]pml.TransferEstimates{}
				}
				ci.Estimates[p.rank] = l
			}
		}
		ins.Comms = append(ins.Comms, ci)
	}
	for _, p := range m.procs.Incarnations {
		t := cmp.Or(p.outTransport, p.inTransport)
		for _, l := range p.incoming.estimates() {
			ins.Notes = append(ins.Notes, fmt.Sprintf("%v: messages from there, %v", p, l))
		}
		for _, note := range p.describeTransport(t).Notes {
			ins.Notes = append(ins.Notes, fmt.Sprintf("%v: %s: %s", p, t.name, note))
		}
	}
	slices.Sort(ins.Notes)
	return ins
}

// isFlushed reports whether all accepted messages have left this process. Lock held.
func (m *Module) isFlushed() bool {
	if m.pendingSends > 0 {
		return false
	}
	for _, p := range m.procs.Incarnations {
		if !p.isIdle() || p.endpoint != nil && !p.endpoint.Idle() {
			return false
		}
	}
	return true
}

// Flush implements pml.Module.
func (m *Module) Flush(ctx context.Context) error { return pml.Until(ctx, m.engine, m.isFlushed) }

// Close implements pml.Module. Pending operations fail with ErrClosed.
func (m *Module) Close() error {
	m.engine.Remove(m)
	m.engine.Lock()
	defer m.engine.Unlock()
	err := fmt.Errorf("%w: the last session was closed meanwhile", framework.ErrClosed)
	for _, c := range m.comms.ByID {
		// The quarantine of indices ends with the module, so no member is notified.
		c.Closing = cid.CommClose{}
	}
	for _, p := range m.procs.Incarnations {
		// Before requests fail, since gathered buffers are read until the path closes.
		p.closePath(err)
		p.incoming.scheduled = requestList{}
	}
	for _, r := range m.requests {
		if r.state != stateIdle && r.state != stateComplete {
			r.fail(err)
		}
	}
	m.endShares()
	return nil
}
