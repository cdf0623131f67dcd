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

// How frames get to a process and from it. In each direction they travel on one BTL.
// To a process it is the best one that reaches it; where its path never opens, what
// waits goes to the next one. A path that was open and breaks may have lost frames:
// then everything with the process ends.

// transport is one BTL of this process, with its abilities, and takes what it hands up.
type transport struct {
	m    *Module
	name string
	btl.Module
	btl.Caps

	// nil where the module can't.
	reader    btl.RemoteReader
	copier    btl.Copier // a reader, too
	poller    btl.PeerPoller
	forgetter btl.Forgetter
	renewer   btl.Renewer
	describer btl.Describer
	looker    btl.Looker
}

// openTransports opens the BTLs, the best one first.
func (m *Module) openTransports() error {
	var all []*transport
	opened, err := framework.Open[btl.Module](m.env.Modules, framework.BTL, func(name string) any {
		all = append(all, &transport{m: m, name: name})
		return all[len(all)-1]
	})
	if err != nil {
		return err
	}
	m.engine.Lock() // modules are polled already
	defer m.engine.Unlock()
	for _, o := range opened {
		t := all[slices.IndexFunc(all, func(t *transport) bool { return t.name == o.Name })]
		t.Module, t.Caps = o.Module, o.Module.Caps()
		t.reader, _ = framework.As[btl.RemoteReader](o.Module)
		if t.reader != nil {
			t.copier, _ = framework.As[btl.Copier](o.Module)
		}
		t.poller, _ = framework.As[btl.PeerPoller](o.Module)
		t.forgetter, _ = framework.As[btl.Forgetter](o.Module)
		t.renewer, _ = framework.As[btl.Renewer](o.Module)
		t.describer, _ = framework.As[btl.Describer](o.Module)
		t.looker, _ = framework.As[btl.Looker](o.Module)
		m.transports = append(m.transports, t)
	}
	slices.SortStableFunc(m.transports, func(x, y *transport) int {
		return cmp.Or(cmp.Compare(y.Exclusivity, x.Exclusivity), cmp.Compare(x.LatencyNS, y.LatencyNS))
	})
	m.caps = capsOf(m.transports)
	return nil
}

// look polls all that has come.
func (t *transport) look() int {
	if t.looker != nil {
		return t.looker.Look()
	}
	return t.Poll()
}

// Accept implements btl.Receiver.
func (t *transport) Accept(peer framework.Life) btl.Inbound {
	p := t.m.procs.Get(peer)
	p.inBy, p.in = t, inPath{}
	return p
}

// Limits implements btl.Receiver.
func (t *transport) Limits(peer framework.Life, eager, frame int) {
	if p := t.m.procs.Find(peer); p != nil && p.out == t {
		p.eager, p.frame = min(p.eager, eager), min(p.frame, frame)
	}
}

// PathDown implements btl.Receiver.
func (t *transport) PathDown(peer framework.Life, err error) {
	p := t.m.procs.Find(peer)
	switch {
	case p == nil:
	case !errors.Is(err, btl.ErrNeverOpened):
		if p.out == t || p.inBy == t { // otherwise nothing was on it
			p.doubt(err)
		}
	case p.out == t && p.endpoint != nil:
		p.fallBack(err)
	}
}

// PeerGone implements btl.Receiver. That the peer has closed its session is all that a
// transport can know; the peer may have done so as it dies.
func (t *transport) PeerGone(peer framework.Life, err error) {
	if p := t.m.procs.Find(peer); p != nil {
		p.doubt(err)
	}
}

// Link implements btl.LinkWatcher.
func (t *transport) Link(peer framework.Life, note string) {
	t.m.env.Event(pml.Event{Kind: pml.EventLink, Peer: peer, Note: t.name + ": " + note})
}

// Card implements btl.CardHolder.
func (t *transport) Card(peer framework.Life) (card framework.Peer, ok bool) {
	p := t.m.known(peer)
	if p == nil {
		return card, false
	}
	card, err := p.peer(t)
	return card, err == nil
}

// known returns a process whose card has come, or nil. It leaves a process without state so. Lock held.
func (m *Module) known(peer framework.Life) *proc {
	p := m.procs.Find(peer)
	if p != nil && p.Known {
		return p
	}
	stateless, card, ok := m.procs.Unlearned(peer)
	if !ok {
		return nil
	}
	if p == nil {
		p = stateless
	}
	p.card = card
	return p
}

// describe returns what a transport says of the way to the process.
func (p *proc) describe(t *transport) (d btl.Description) {
	if t != nil && t.describer != nil {
		if peer, err := p.peer(t); err == nil {
			d = t.describer.Describe(peer)
		}
	}
	return d
}

// fully is describe with the ways in which large messages are copied. A transport can't say
// much of a path that is closed: then it is what it said before. Lock held.
func (p *proc) fully(t *transport) btl.Description {
	if t == p.out && p.endpoint == nil && p.was != nil {
		return *p.was
	}
	d := p.describe(t)
	if t.reader != nil && t == p.out {
		d.Notes = append(d.Notes, t.reader.Notes(p.Life)...)
	}
	return d
}

// connect opens a path, if there is none yet. One to which none can be opened is in
// doubt: nothing goes until that is over. Lock held.
func (p *proc) connect() error {
	if p.why != nil {
		return p.Err
	}
	err := p.open()
	if err != nil && p.Known {
		p.cut = p.cut || p.Err == nil
		p.doubt(err)
		return p.Err
	}
	return err
}

// open is connect for what the process may do without.
func (p *proc) open() error {
	if p.Err != nil || p.endpoint != nil {
		return p.Err
	}
	if p.why != nil {
		return p.why
	}
	if !p.Known { // a stranger's frame came before its card
		return fmt.Errorf("%w: the process has not been learnt", framework.ErrTransport)
	}
	var why rejections
	for _, t := range p.m.transports {
		err := p.refusal(t)
		if err == nil {
			err = p.openBy(t)
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

// rejections are the transports that don't carry the messages of a process.
type rejections []framework.Rejection

// add adds a transport, unless that explains nothing.
func (r *rejections) add(t *transport, err error) {
	if _, not := errors.AsType[btl.NotMeant](err); !not {
		*r = append(*r, framework.Rejection{Name: t.name, Reason: err.Error()})
	}
}

func (r rejections) String() string {
	if len(r) == 0 {
		return "this program has none for it"
	}
	all := make([]string, len(r))
	for i, x := range r {
		all[i] = x.Name + ": " + x.Reason
	}
	return strings.Join(all, "; ")
}

func (p *proc) openBy(t *transport) error {
	peer, err := p.peer(t)
	if err != nil {
		return err
	}
	endpoint, err := t.Connect(peer)
	if err != nil {
		return err
	}
	p.out, p.endpoint, p.short = t, endpoint, btl.Short(endpoint)
	p.gather, _ = framework.As[btl.Gatherer](endpoint)
	p.wide, _ = framework.As[btl.WideReserver](endpoint)
	p.eager, p.frame = min(t.EagerLimit, t.FrameLimit), t.FrameLimit
	p.onceFrom = math.MaxInt
	if t.ReadFrom > 0 {
		p.onceFrom = max(onceFrom, t.ReadFrom)
	}
	p.Stats.Transport = t.name
	p.settle()
	p.m.env.Event(pml.Event{Kind: pml.EventTransportUp, Peer: p.Life, Note: t.name})
	p.m.env.Logger.Debug("pml ob1: a path is opened", "peer", p.String(), "transport", t.name)
	return nil
}

// refused is a transport whose path to a process never opened, and why.
type refused struct {
	by  *transport
	err error
}

// refusal returns why a transport is not tried again.
func (p *proc) refusal(t *transport) error {
	for _, r := range p.refused {
		if r.by == t {
			return r.err
		}
	}
	return nil
}

// fallBack takes the next transport, because the path by the present one never opened.
// Nothing has gone over it: all that there is for the process still waits. Lock held.
func (p *proc) fallBack(err error) {
	var te *framework.TransportError
	if errors.As(err, &te) {
		err = te.Err // without what the name says again
	}
	p.m.env.Logger.Info("pml ob1: a path did not open, trying the next transport", "peer", p.String(), "transport", p.out.name, "reason", err)
	p.refused = append(p.refused, refused{p.out, err})
	p.out = nil // first: sends that closing completes may open the next path
	p.closePath(err)
	p.reopen()
}

// reopen opens a path for what waits. Lock held.
func (p *proc) reopen() {
	connect := p.connect
	if p.queue.head == nil && p.pushing.head == nil && !slices.ContainsFunc(p.controls, func(c control) bool { return c.needed() }) {
		connect = p.open
	}
	switch {
	case p.idle():
	case connect() == nil:
		p.markBusy()
	case p.why == nil:
		p.controls = nil
	}
}

// closePath gives the path to the process up.
func (p *proc) closePath(err error) {
	p.direct = false
	if endpoint := p.endpoint; endpoint != nil {
		if p.m.env.LateRoutes && p.out != nil {
			d := p.fully(p.out)
			p.was = &d
		}
		p.endpoint = nil // Close may complete sends
		endpoint.Close()
		p.m.env.Event(pml.Event{Kind: pml.EventTransportOut, Peer: p.Life, Note: err.Error()})
	}
}

// route returns the transport that is in use, or that connect would take, and why not
// the others. It opens no path. Lock held.
func (p *proc) route() (found *transport, rejected rejections) {
	// What the path in use would answer now says nothing: the peer may be leaving.
	found = p.out
	for _, t := range p.m.transports {
		if t == p.out {
			continue
		}
		err := p.refusal(t)
		if err == nil {
			var peer framework.Peer
			if peer, err = p.peer(t); err == nil {
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
	if found == nil || p.Life != p.m.env.Self {
		rejected = append(rejected, p.m.env.Modules.NotOpen(framework.BTL)...)
	}
	return found, rejected
}

// neverOpened reports whether the path to the process had not opened when the other end gave
// up trying.
func (p *proc) neverOpened() bool {
	return errors.Is(p.Err, framework.ErrGivenUp) && p.Stats.Sent+p.Stats.Received == 0
}

// peer returns what a transport needs to connect.
func (p *proc) peer(t *transport) (framework.Peer, error) {
	return p.card.Peer(p.Life, p.m.env.Worlds.Proc(p.Life.ID), framework.BTL, t.name)
}
