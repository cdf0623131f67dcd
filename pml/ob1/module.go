package ob1

import (
	"context"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Module is ob1 in one process. Everything is guarded by the engine's lock.
type Module struct {
	env    pml.Env
	engine *progress.Engine
	hooks  pml.Hooks
	self   framework.ProcID
	card   pml.Card

	btls         []pml.OpenBTL
	byPreference []int // indices of btls

	comms    []*comm // by index
	byID     map[cid.Extended]*comm
	resting  map[cid.Extended]*comm // closed here, and not by all who may still send
	table    *cid.Table
	gone     *cid.Tombstones
	procs    map[framework.ProcID]*proc // present incarnations
	lives    map[incarnation]*proc      // all of whom anything has come
	dead     map[framework.ProcID]string
	parked   parked
	failures int // processes with an error, and aborted planes

	requests     []*request // all there are, by slot
	free         *request
	freeMessages *message
	spots        uint // receives that looked at one path only, so far
	pool         pool
	fragment     int64 // bytes of payload in a frame of a large message
	budget       int64 // bytes of unexpected messages per peer
	sends        int   // that are not complete

	reading []*request // receives that read the sender's memory

	busy  []*proc // that have something to send
	spare []*proc // busy's other backing array
}

// Offer implements pml.Module.
func (m *Module) Offer() pml.Offer {
	return pml.Offer{PML: "ob1", Version: WireVersion, Priority: component{}.Info().Priority}
}

// Card implements pml.Module.
func (m *Module) Card() pml.Card { return m.card }

func (m *Module) makeCard() pml.Card {
	card := pml.Card{Nonce: m.env.Nonce, Credit: m.budget}
	for _, b := range m.btls {
		if blob := b.Module.Blob(); blob != nil {
			card.Addresses = append(card.Addresses, btl.Address{Component: b.Name, Blob: blob})
		}
	}
	return card
}

// CIDs implements pml.Module.
func (m *Module) CIDs() *cid.Table { return m.table }

// TagMax implements pml.Module.
func (m *Module) TagMax() int { return tagMax }

// Learn implements pml.Module.
func (m *Module) Learn(id framework.ProcID, card pml.Card) error {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.learn(id, card)
	return nil
}

// Accept implements btl.Receiver.
func (m *Module) Accept(id framework.ProcID, nonce uint64) btl.Inbound {
	p := m.incarnation(id, nonce)
	p.in = inPath{} // there is a new path: ask for it again
	return p
}

// Limits implements btl.Receiver.
func (m *Module) Limits(id framework.ProcID, nonce uint64, eager, frame int) {
	if p := m.lives[incarnation{id, nonce}]; p != nil {
		p.eager, p.frame = min(p.eager, eager), min(p.frame, frame)
	}
}

// Lost implements btl.Receiver.
func (m *Module) Lost(id framework.ProcID, nonce uint64, err error) {
	if p := m.lives[incarnation{id, nonce}]; p != nil {
		p.fail(err)
	}
}

// PeerFailed implements pml.Module.
func (m *Module) PeerFailed(id framework.ProcID, reason string) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.dead[id] = reason
	m.each(func(p *proc) {
		if p.id == id {
			p.drain() // what it had sent before is still there, and arrives
			p.fail(&procFailed{reason})
		}
	})
	for i := range m.btls {
		if f, ok := framework.As[btl.Forgetter](m.btls[i].Module); ok {
			f.Forget(id)
		}
	}
}

// each calls f for every process and incarnation that is known.
func (m *Module) each(f func(*proc)) {
	for _, p := range m.procs {
		f(p)
	}
	for _, p := range m.lives {
		if m.procs[p.id] != p {
			f(p)
		}
	}
}

// Poll implements progress.Source: it sends what waits for a path.
func (m *Module) Poll() (n int) {
	if len(m.reading) > 0 {
		n = m.readSome()
	}
	if len(m.busy) == 0 {
		return n
	}
	work := m.busy
	m.busy, m.spare = m.spare[:0], work
	for _, p := range work {
		p.busy = false
		n += p.pump()
		if !p.idle() {
			p.markBusy()
		}
	}
	clear(work)
	return n
}

func (m *Module) hook(e pml.Event) {
	if m.hooks != nil {
		m.hooks.Event(e)
	}
}

// Route implements pml.Module.
func (m *Module) Route(id framework.ProcID) pml.Route {
	m.engine.Lock()
	defer m.engine.Unlock()
	p := m.proc(id)
	route := pml.Route{PML: "ob1"}
	if !p.known {
		return route
	}
	b, rejected := p.route()
	route.Rejected = rejected
	if p.btl != nil {
		// What the path in use would answer now says nothing: the peer may be
		// leaving.
		b = p.btl
		route.Rejected = slices.DeleteFunc(route.Rejected, func(r pml.Rejection) bool { return r.Name == b.Name })
	}
	if b != nil {
		route.Transport, route.Device = b.Name, b.Module.Device()
		if r, ok := framework.As[btl.RemoteReader](b.Module); ok {
			route.Notes = r.Notes(id)
		}
	}
	return route
}

// Stats implements pml.Module.
func (m *Module) Stats() []pml.PeerStats {
	m.engine.Lock()
	defer m.engine.Unlock()
	var all []pml.PeerStats
	m.each(func(p *proc) {
		if p.stats.Sent+p.stats.Received+p.stats.Dropped > 0 {
			all = append(all, p.stats)
		}
	})
	return all
}

// Inspect implements pml.Module.
func (m *Module) Inspect() pml.Inspection {
	m.engine.Lock()
	defer m.engine.Unlock()
	ins := pml.Inspection{Parked: m.parked.count}
	sends := map[*comm][]pml.Pending{}
	for _, r := range m.requests {
		if r.state == idle || r.state == complete || r.state == posted {
			continue
		}
		state := stateNames[r.state]
		if !r.send {
			state = "receiving"
		}
		sends[r.c] = append(sends[r.c], pml.Pending{Peer: r.p.rank, Tag: r.tag, Bytes: r.buf.Len(), Plane: r.plane, State: state})
	}
	for _, c := range m.byID {
		ci := pml.CommInspection{ID: c.spec.ID, Name: c.spec.Name, Local: c.spec.Local, Sends: sends[c]}
		for plane := range c.queues {
			q := &c.queues[plane]
			post := func(r *match.Recv[request]) {
				ci.Posted = append(ci.Posted, pml.Pending{Peer: r.Source, Tag: r.Tag, Bytes: r.Owner.buf.Len(), Plane: pml.Plane(plane), State: stateNames[posted]})
			}
			q.Posted(nil, post)
			for _, p := range c.peers {
				if p != nil {
					q.Posted(&p.match[plane], post)
				}
			}
			q.Unexpected(func(msg *match.Message[message]) {
				state := "arrived"
				if msg.Owner.offer {
					state = stateNames[offered]
				}
				ci.Unexpected = append(ci.Unexpected, pml.Pending{Peer: msg.Source, Tag: msg.Tag, Bytes: msg.Owner.length, Plane: pml.Plane(plane), State: state})
			})
		}
		ins.Comms = append(ins.Comms, ci)
	}
	return ins
}

// flushed reports whether nothing that was accepted depends on this process any
// more. Lock held.
func (m *Module) flushed() bool {
	if m.sends > 0 {
		return false
	}
	idle := true
	m.each(func(p *proc) {
		idle = idle && p.idle() && (p.endpoint == nil || p.endpoint.Idle())
	})
	return idle
}

// Flush implements pml.Module.
func (m *Module) Flush(ctx context.Context) error { return pml.Until(ctx, m.engine, m.flushed) }

// Close implements pml.Module.
func (m *Module) Close() error {
	m.engine.Remove(m)
	m.engine.Lock()
	defer m.engine.Unlock()
	m.abandon()
	m.each(func(p *proc) {
		if p.endpoint != nil {
			p.endpoint.Close()
			p.endpoint = nil
		}
	})
	return nil
}
