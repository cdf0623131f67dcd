package ob1

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Frames to a process use one BTL, the best one that reaches it, and so do frames from it.
// If a path never opens, queued messages use the next BTL. If an open path fails, frames may
// be lost, and all operations with the process end.

// transport is one open BTL with its optional abilities. It implements btl.Receiver.
type transport struct {
	m    *Module
	name string
	btl.Module
	btl.Caps

	// The following are nil if the module lacks the ability. copier is part of reader.

	reader      btl.RMA
	copier      btl.Copier
	poller      btl.PeerPoller
	forgetter   btl.Forgetter
	reconnector btl.Reconnector
	describer   btl.Describer
	fullPoller  btl.FullPoller
}

// eagerPath is the part of the path to a process that every small message reads.
type eagerPath struct {
	// canSendEager is set if a path is open and no message is queued.
	canSendEager bool
	shortSender  btl.ShortSender
	// eagerLimit is the size of the largest eager frame in bytes.
	eagerLimit int
	// getFrom is the smallest size of messages in memory from AllocMem that are not sent eagerly.
	getFrom int
}

// outPath is the path to a process.
type outPath struct {
	// endpoint is nil without an open path.
	endpoint btl.Endpoint
	// gatherer is an optional ability of endpoint, or nil.
	gatherer btl.Gatherer
	// outTransport is the transport of endpoint, also after that is closed.
	outTransport *transport
	// frameLimit is the size of the largest frame in bytes.
	frameLimit int
	refusals   []refusal
	// hasNoRoute is set if messages needed a path, and none could be opened.
	hasNoRoute bool
	// lastDescription describes the path as it was closed, if pml.Env.LateRoutes is set.
	lastDescription *btl.Description
}

// updateCanSendEager recomputes canSendEager.
func (p *proc) updateCanSendEager() {
	p.canSendEager = p.Err == nil && p.endpoint != nil && p.sendQueue.head == nil
}

// openTransports opens the BTLs and sorts them by preference.
func (m *Module) openTransports() error {
	var all []*transport
	opened, err := framework.Open[btl.Module](m.env.Modules, framework.BTL, func(name string) any {
		all = append(all, &transport{m: m, name: name})
		return all[len(all)-1]
	})
	if err != nil {
		return err
	}
	// The modules are already being polled.
	m.engine.Lock()
	defer m.engine.Unlock()
	for _, o := range opened {
		t := all[slices.IndexFunc(all, func(t *transport) bool { return t.name == o.Name })]
		t.Module, t.Caps = o.Module, o.Module.Caps()
		t.reader, _ = framework.As[btl.RMA](o.Module)
		if t.reader != nil {
			t.copier = t.reader.Copier()
		}
		t.poller, _ = framework.As[btl.PeerPoller](o.Module)
		t.forgetter, _ = framework.As[btl.Forgetter](o.Module)
		t.reconnector, _ = framework.As[btl.Reconnector](o.Module)
		t.describer, _ = framework.As[btl.Describer](o.Module)
		t.fullPoller, _ = framework.As[btl.FullPoller](o.Module)
		m.transports = append(m.transports, t)
	}
	slices.SortStableFunc(m.transports, func(x, y *transport) int {
		return cmp.Or(cmp.Compare(y.Exclusivity, x.Exclusivity), cmp.Compare(x.LatencyNS, y.LatencyNS))
	})
	m.caps = capsOf(m.transports)
	return nil
}

// pollArrivals polls for frames of all peers.
func (t *transport) pollArrivals() int {
	if t.fullPoller != nil {
		return t.fullPoller.PollAll()
	}
	return t.Poll()
}

// Accept implements btl.Receiver.
func (t *transport) Accept(peer framework.Incarnation) btl.Inbound {
	p := t.m.procs.Get(peer)
	p.inTransport, p.recvPath = t, recvPath{}
	return p
}

// Limits implements btl.Receiver.
func (t *transport) Limits(peer framework.Incarnation, eager, frame int) {
	if p := t.m.procs.Find(peer); p != nil && p.outTransport == t {
		p.eagerLimit, p.frameLimit = min(p.eagerLimit, eager), min(p.frameLimit, frame)
	}
}

// PathDown implements btl.Receiver.
func (t *transport) PathDown(peer framework.Incarnation, err error) {
	p := t.m.procs.Find(peer)
	switch {
	case p == nil:
	case !errors.Is(err, btl.ErrNeverOpened):
		// Otherwise the path carried no frames.
		if p.outTransport == t || p.inTransport == t {
			p.suspect(err)
		}
	case p.outTransport == t && p.endpoint != nil:
		p.fallBack(err)
	}
}

// PeerChanged implements btl.Receiver. The transport only detects that the session was closed,
// which a process also does as it fails.
func (t *transport) PeerChanged(ev framework.PeerEvent) {
	if p := t.m.procs.Find(ev.Peer); p != nil {
		p.suspect(ev.Err)
	}
}

// LinkChanged implements btl.Receiver.
func (t *transport) LinkChanged(peer framework.Incarnation, note string) {
	t.m.env.Event(pml.Event{Kind: pml.EventLink, Peer: peer, Note: t.name + ": " + note})
}

// Card implements btl.Receiver.
func (t *transport) Card(peer framework.Incarnation) (card framework.Peer, ok bool) {
	p := t.m.known(peer)
	if p == nil {
		return card, false
	}
	card, err := p.connectInfo(t)
	return card, err == nil
}

// known returns a process with a card, or nil. It creates no state. Lock held.
func (m *Module) known(peer framework.Incarnation) *proc {
	p := m.procs.Find(peer)
	if p != nil && p.HasCard {
		return p
	}
	stateless, card, ok := m.procs.StatelessProc(peer)
	if !ok {
		return nil
	}
	if p == nil {
		p = stateless
	}
	p.card = card
	return p
}

// describeTransport returns the transport's description of the path to the process.
func (p *proc) describeTransport(t *transport) (d btl.Description) {
	if t != nil && t.describer != nil {
		if peer, err := p.connectInfo(t); err == nil {
			d = t.describer.Describe(peer)
		}
	}
	return d
}

// describePath adds notes on copies between the processes. For a closed path it returns the
// last description. Lock held.
func (p *proc) describePath(t *transport) btl.Description {
	if t == p.outTransport && p.endpoint == nil && p.lastDescription != nil {
		return *p.lastDescription
	}
	d := p.describeTransport(t)
	if t.reader != nil && t == p.outTransport {
		d.Notes = append(d.Notes, t.reader.Notes(p.Incarnation)...)
	}
	return d
}

// requirePath opens a path unless there is one. If none can be opened, the process becomes
// suspect, and messages wait until that is resolved. Lock held.
func (p *proc) requirePath() error {
	if p.suspectedFor != nil {
		return p.Err
	}
	err := p.openPath()
	if err != nil && p.HasCard {
		p.hasNoRoute = p.hasNoRoute || p.Err == nil
		p.suspect(err)
		return p.Err
	}
	return err
}

// openPath opens a path unless there is one. Its failure does not make the process suspect.
func (p *proc) openPath() error {
	if p.Err != nil || p.endpoint != nil {
		return p.Err
	}
	if p.suspectedFor != nil {
		return p.suspectedFor
	}
	// Its frames have arrived before its card.
	if !p.HasCard {
		return fmt.Errorf("%w: no business card of the process has arrived", framework.ErrTransport)
	}
	var why rejections
	for _, t := range p.m.transports {
		err := p.refusalBy(t)
		if err == nil {
			err = p.openPathBy(t)
		}
		if err == nil {
			return nil
		}
		why.add(t, err)
	}
	remedy := ""
	if by := p.m.env.NodeBy; by != "" && p.card.OnNode(p.m.env.Node) {
		remedy = fmt.Sprintf("; %s=off leaves the processes of this node to the network", by)
	}
	return &framework.TransportError{Component: "pml ob1", Peer: p.String(), Op: "connect",
		Err: fmt.Errorf("no transport reaches the process: %s%s", append(why, p.m.env.Modules.NotOpen(framework.BTL)...), remedy)}
}

// rejections are the transports that do not reach a process.
type rejections []framework.Rejection

// add adds a transport, except one that is not meant for the process.
func (r *rejections) add(t *transport, err error) {
	if _, not := errors.AsType[btl.NotMeant](err); !not {
		*r = append(*r, framework.Rejection{Name: t.name, Reason: err.Error()})
	}
}

func (r rejections) String() string {
	if len(r) == 0 {
		return "this program has no transport for it"
	}
	all := make([]string, len(r))
	for i, x := range r {
		all[i] = x.Name + ": " + x.Reason
	}
	return strings.Join(all, "; ")
}

func (p *proc) openPathBy(t *transport) error {
	peer, err := p.connectInfo(t)
	if err != nil {
		return err
	}
	endpoint, err := t.Connect(peer)
	if err != nil {
		return err
	}
	p.outTransport, p.endpoint, p.shortSender = t, endpoint, btl.Short(endpoint)
	p.gatherer, _ = framework.As[btl.Gatherer](endpoint)
	p.eagerLimit, p.frameLimit = min(t.EagerLimit, t.FrameLimit), t.FrameLimit
	p.getFrom = math.MaxInt
	if t.ReadFrom > 0 {
		p.getFrom = max(minGetFrom, t.ReadFrom)
	}
	p.Stats.Transport = t.name
	p.updateCanSendEager()
	p.m.env.Event(pml.Event{Kind: pml.EventTransportUp, Peer: p.Incarnation, Note: t.name})
	p.m.env.Logger.Debug("pml ob1: a path is opened", "peer", p.String(), "transport", t.name)
	return nil
}

// refusal is the reason why the path of a transport never opened.
type refusal struct {
	transport *transport
	err       error
}

// refusalBy returns the earlier error of t, if any.
func (p *proc) refusalBy(t *transport) error {
	for _, r := range p.refusals {
		if r.transport == t {
			return r.err
		}
	}
	return nil
}

// fallBack selects the next transport because the path of the present one never opened. No
// frame was lost, since all are still queued. Lock held.
func (p *proc) fallBack(err error) {
	var te *framework.TransportError
	if errors.As(err, &te) {
		// The component's name is already in the log line.
		err = te.Err
	}
	p.m.env.Logger.Info("pml ob1: a path did not open, trying the next transport", "peer", p.String(), "transport", p.outTransport.name, "reason", err)
	p.refusals = append(p.refusals, refusal{p.outTransport, err})
	// First, since Close may complete sends, and their owners may open the next path.
	p.outTransport = nil
	p.closePath(err)
	p.reopenPath()
}

// reopenPath opens a path for queued frames. Lock held.
func (p *proc) reopenPath() {
	connect := p.requirePath
	if p.sendQueue.head == nil && p.pipelineQueue.head == nil && !slices.ContainsFunc(p.pendingControls, func(c controlFrame) bool { return c.needsReceiver() }) {
		connect = p.openPath
	}
	switch {
	case p.isIdle():
	case connect() == nil:
		p.markBusy()
	case p.suspectedFor == nil:
		p.pendingControls = nil
	}
}

// closePath closes the path to the process, if it is open.
func (p *proc) closePath(err error) {
	p.canSendEager = false
	if endpoint := p.endpoint; endpoint != nil {
		if p.m.env.LateRoutes && p.outTransport != nil {
			d := p.describePath(p.outTransport)
			p.lastDescription = &d
		}
		// First, since Close may complete sends.
		p.endpoint = nil
		endpoint.Close()
		p.m.env.Event(pml.Event{Kind: pml.EventTransportOut, Peer: p.Incarnation, Note: err.Error()})
	}
}

// route returns the transport in use, or the one that requirePath would select, and the
// reasons against the others. It opens no path. Lock held.
func (p *proc) route() (found *transport, rejected rejections) {
	// The path in use is not asked again, since its peer may be leaving.
	found = p.outTransport
	for _, t := range p.m.transports {
		if t == p.outTransport {
			continue
		}
		err := p.refusalBy(t)
		if err == nil {
			var peer framework.Peer
			if peer, err = p.connectInfo(t); err == nil {
				err = t.Reach(peer)
			}
		}
		switch {
		case err != nil:
			rejected.add(t, err)
		case found == nil:
			found = t
		default:
			rejected = append(rejected, framework.Rejection{Name: t.name, Reason: found.name + " is preferred"})
		}
	}
	if found == nil || p.Incarnation != p.m.env.Self {
		rejected = append(rejected, p.m.env.Modules.NotOpen(framework.BTL)...)
	}
	return found, rejected
}

// neverOpened reports whether the peer disconnected before any message was exchanged.
func (p *proc) neverOpened() bool {
	return errors.Is(p.Err, framework.ErrPeerDisconnected) && p.Stats.Sent+p.Stats.Received == 0
}

// connectInfo returns the arguments of Connect for the transport.
func (p *proc) connectInfo(t *transport) (framework.Peer, error) {
	return p.card.Peer(p.Incarnation, p.m.env.Worlds.Proc(p.Incarnation.ID), framework.BTL, t.name)
}
