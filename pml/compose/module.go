// Package compose makes one PML of two: one that has the messages between the processes
// of a node, and one, the network's, that has all others. It knows their contract,
// package pml, and nothing of either.
//
// A communicator with members on the node and elsewhere is one in each of the two, with
// an id of its own on the node. The path to a member is fixed by what all members know
// alike, so that both ends of it look at the same place: what their cards say of the
// node that they are on. A communicator whose members are all on one node is the node's PML's alone; one
// that has nobody else of the node is the network's alone, messages to oneself included.
// What concerns one member goes straight to the PML that has it. Receives and probes from
// any source concern both: see wildcards.
//
// No goroutine belongs to it: everything happens in the calls of users and in the upcalls
// of the two PMLs, under the engine's lock. Methods whose comment says "lock held" are
// called with it.
package compose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"weak"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Module is the two PMLs in one process.
type Module struct {
	env     pml.Env
	network pml.Module // whose name and ids are those of the composition
	node    pml.Module
	by      string // the parameter that asks for it

	joiner *Joiner

	mu      sync.Mutex
	here    map[framework.ProcID]framework.Life // Others on this node, from Learn.
	changes uint64                              // Changes of here, so far.
	splits  map[splitKey]*split                 // those in use
	owners  map[*byte]owner                     // of memory, by its first byte

	// lastSplit is the one that was used last. It does not keep the members of closed communicators in memory.
	lastSplit weak.Pointer[split]
}

// New composes two open modules. by is the parameter that asks for the one on the node,
// for people. The network's becomes the composition's, which closes it; the other is
// closed afterwards, by whoever has opened it.
func New(env pml.Env, network, node pml.Module, by string) *Module {
	return &Module{env: env, network: network, node: node, by: by, joiner: NewJoiner(env.Engine, env.Hooks), here: map[framework.ProcID]framework.Life{}, splits: map[splitKey]*split{}, owners: map[*byte]owner{}}
}

// Unwrap has framework.As look for what the node's PML can do besides: there is memory
// that others of the node read.
func (m *Module) Unwrap() any { return m.node }

// Offer implements pml.Module.
func (m *Module) Offer() pml.Offer {
	o, node := m.network.Offer(), m.node.Offer()
	o.Detail += fmt.Sprintf("; %s %d on the node", node.PML, node.Version)
	return o
}

// Addresses implements pml.Module.
func (m *Module) Addresses() []framework.Address {
	return append(m.node.Addresses(), m.network.Addresses()...)
}

// CIDs implements pml.Module.
func (m *Module) CIDs() *cid.Table { return m.network.CIDs() }

// Caps implements pml.Module. A receive from any source has to do with both.
func (m *Module) Caps() pml.Caps {
	caps := Caps(m.network.Caps(), m.node.Caps())
	caps.Arrivals = false // a message of the network is not known when it arrives
	return caps
}

// Caps returns the capabilities of two PMLs that share the members of a communicator.
func Caps(a, b pml.Caps) pml.Caps {
	caps := pml.Caps{
		TagMax: min(a.TagMax, b.TagMax), MaxMessage: min(a.MaxMessage, b.MaxMessage),
		Withdraw: a.Withdraw && b.Withdraw, Arrivals: a.Arrivals && b.Arrivals, Steps: slices.Concat(a.Steps, b.Steps),
	}
	slices.Sort(caps.Steps)
	caps.Steps = slices.Compact(caps.Steps)
	return caps
}

// FitsRanks implements pml.RankLimiter.
func (m *Module) FitsRanks(members pml.Members) error {
	for _, part := range []pml.Module{m.network, m.node} {
		if l, ok := framework.As[pml.RankLimiter](part); ok {
			if err := l.FitsRanks(members); err != nil {
				return err
			}
		}
	}
	return nil
}

// Learn implements pml.Module.
func (m *Module) Learn(peer framework.Life, card framework.Card) error {
	m.mu.Lock()
	m.changes++
	if delete(m.here, peer.ID); card.OnNode(m.env.Node) {
		m.here[peer.ID] = peer
	}
	m.mu.Unlock()
	if err := m.node.Learn(peer, card); err != nil {
		return err
	}
	return m.network.Learn(peer, card)
}

// PeerFailed implements pml.Module. What the process had sent on the node arrives before
// the network's PML ends receives from any source.
func (m *Module) PeerFailed(peer framework.Life, reason string) {
	m.node.PeerFailed(peer, reason)
	m.network.PeerFailed(peer, reason)
}

// PeerGone implements pml.Module.
func (m *Module) PeerGone(peer framework.Life, how error) {
	m.node.PeerGone(peer, how)
	m.network.PeerGone(peer, how)
}

// DropPeer implements pml.PeerDropper. It returns true when both PMLs have dropped the process.
func (m *Module) DropPeer(peer framework.Life) bool {
	for _, part := range []pml.Module{m.node, m.network} {
		if d, ok := framework.As[pml.PeerDropper](part); !ok || !d.DropPeer(peer) {
			return false
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.here[peer.ID] == peer {
		delete(m.here, peer.ID)
	}
	return true
}

// Refuse implements pml.Module.
func (m *Module) Refuse(s cid.Span, endpoint int) {
	m.node.Refuse(s, endpoint)
	m.network.Refuse(s, endpoint)
}

// Inquire implements pml.Module.
func (m *Module) Inquire(by framework.ProcID) {
	m.node.Inquire(by)
	m.network.Inquire(by)
}

// isLocal reports whether another process is on this node. Both ends of a pair come to the
// same answer: what their cards say is equal, or not.
func (m *Module) isLocal(peer framework.Life) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isOnNode(peer)
}

// isOnNode is isLocal with mu held.
func (m *Module) isOnNode(peer framework.Life) bool {
	return m.here[peer.ID] == peer || m.env.Cards != nil && m.env.Node != "" && m.env.Cards.Node(peer) == m.env.Node
}

// Route implements pml.Module.
func (m *Module) Route(peer framework.Life) pml.Route {
	remote := m.network.Route(peer)
	if peer == m.env.Self || !m.isLocal(peer) {
		return remote
	}
	route := m.node.Route(peer)
	route.PML = remote.PML
	route.Rejected = append(route.Rejected, remote.Rejected...)
	if remote.Transport != "" {
		route.Rejected = append(route.Rejected, framework.Rejection{Name: remote.Transport,
			Reason: "not used between processes of a node: " + m.by})
	}
	return route
}

// Stats implements pml.Module.
func (m *Module) Stats() []pml.PeerStats { return append(m.node.Stats(), m.network.Stats()...) }

// Flush implements pml.Module.
func (m *Module) Flush(ctx context.Context) error {
	return errors.Join(m.node.Flush(ctx), m.network.Flush(ctx))
}

// Close implements pml.Module. A receive that has a message of the node ends when the
// node's PML is closed.
func (m *Module) Close() error {
	e := m.env.Engine
	e.Lock()
	m.joiner.isClosed = true
	e.Unlock()
	err := m.network.Close()
	e.Lock()
	defer e.Unlock()
	for _, r := range m.joiner.requests {
		if r.w != nil && !r.Done() && !r.given {
			r.fail(fmt.Errorf("%w: the last session was closed meanwhile", framework.ErrClosed))
		}
	}
	return err
}

// AddComm implements pml.Module.
func (m *Module) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	s := m.split(&spec)
	c, err := m.addComm(spec, s)
	if err != nil {
		m.drop(s)
	}
	return c, err
}

// addComm makes a communicator's parts.
func (m *Module) addComm(spec pml.CommSpec, s *split) (pml.Comm, error) {
	switch {
	case s.onNode == 0:
		c, err := m.network.AddComm(spec)
		if err == nil {
			m.drop(s)
		}
		return c, err
	case s.inNetwork == 0:
		c, err := m.nodeComm(spec, spec.Elsewhere)
		if err != nil {
			return nil, err
		}
		m.drop(s)
		return &nodeOnly{c, m.CIDs(), spec.Local}, nil
	}
	node, err := m.nodeComm(spec, s.NotOnNode)
	if err != nil {
		return nil, err
	}
	watchable, ok := framework.As[pml.Watchable](node)
	if !ok {
		err = fmt.Errorf("%w: pml %s can't serve the processes of a node beside a network: it does not see each message arrive",
			framework.ErrUnsupported, m.node.Offer().PML)
	}
	spec.Elsewhere = s.notInNetwork
	var network pml.Comm
	if err == nil {
		network, err = m.network.AddComm(spec)
	}
	if err != nil {
		node.Close()
		return nil, err
	}
	return m.joiner.Join(spec, &s.Sides, node, network, watchable, func() { m.drop(s) }), nil
}

// nodeComm makes a communicator's part on the node.
func (m *Module) nodeComm(spec pml.CommSpec, elsewhere *pml.RankSet) (pml.Comm, error) {
	table := m.node.CIDs()
	local, err := table.Reserve()
	if err != nil {
		return nil, fmt.Errorf("pml %s: on the node: %w", m.network.Offer().PML, err)
	}
	spec.Local, spec.Agreed, spec.Indices, spec.Elsewhere = local, false, nil, elsewhere
	c, err := m.node.AddComm(spec)
	if err != nil {
		table.Close(local)
		return nil, fmt.Errorf("pml %s: on the node: %w", m.network.Offer().PML, err)
	}
	return c, nil
}

// nodeOnly is a communicator whose members are all on this node.
type nodeOnly struct {
	pml.Comm
	network *cid.Table
	local   cid.Local // in that
}

// Unwrap makes framework.As find the abilities of the node's Comm, for example Watchable.
func (c *nodeOnly) Unwrap() any { return c.Comm }

// Close implements pml.Comm. Nothing was sent under the id in the network.
func (c *nodeOnly) Close() {
	c.Comm.Close()
	c.network.Close(c.local) // a second time does nothing
}

// Inspect implements pml.Module.
func (m *Module) Inspect(ctx context.Context) (pml.Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, progress.ObserveLimit) // of all three
	defer cancel()
	all, err := m.network.Inspect(ctx)
	if err != nil {
		return all, err
	}
	node, err := m.node.Inspect(ctx)
	if err == nil {
		err = m.env.Engine.Observe(ctx, func() {
			node.Comms = append(node.Comms, m.joiner.Inspect()...)
		})
	}
	all.EarlyArrivals += node.EarlyArrivals
	all.Notes = append(all.Notes, node.Notes...)
	all.Comms = Merge(all.Comms, node.Comms)
	return all, err
}

// inspect describes what waits here, and is not in the network too. Lock held.
func (w *wildcards) inspect() pml.CommInspection {
	spec := &w.c.spec
	x := pml.CommInspection{ID: spec.ID, Endpoint: spec.Members.Member(spec.Rank).Endpoint, Name: spec.Name, Local: spec.Local}
	for _, from := range w.peers.All() {
		w.queues.Posted(from, func(r *match.Recv[request]) {
			x.Posted = append(x.Posted, pml.Pending{Peer: r.Source, Tag: r.Tag, Bytes: r.Owner.buf.Len(), Plane: w.plane, State: "posted"})
		})
	}
	add := func(msg *match.Message[message]) {
		x.Unexpected = append(x.Unexpected, pml.Pending{Peer: msg.Source, Tag: msg.Tag, Bytes: int64(msg.Owner.bytes), Plane: w.plane, State: "arrived"})
	}
	w.queues.Unexpected(add)
	for _, msg := range w.arrived {
		add(&msg.node)
	}
	return x
}
