// Package compose combines two PMLs into one. The node's PML carries the messages between the processes of a node,
// and the network's PML all others. The package depends on their contract (package pml) only.
//
// A communicator with members on the node and elsewhere exists in both PMLs, with a separate id on the node. The PML
// of a pair follows from the nodes in the cards of its members, so that both ends select the same one. A communicator
// with all members on one node belongs to the node's PML alone. One without other members of the node belongs to the
// network's PML alone, including messages of a process to itself. Operations with one member are passed to its PML.
// Receives and probes from any source involve both, see wildcards.
//
// The package has no goroutines. It runs in calls of users and in upcalls of the two PMLs. Functions whose comment
// says "Lock held" require the engine's lock.
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

// Module combines the two PMLs of one process.
type Module struct {
	env pml.Env
	// networkPML gives the composition its name and ids.
	networkPML pml.Module
	nodePML    pml.Module
	// nodeParam is the parameter that selects the composition.
	nodeParam string

	joiner *Joiner

	mu sync.Mutex
	// localIncarnations has the other processes on this node, from Learn, and incarnationChanges counts its changes.
	localIncarnations  map[framework.ProcID]framework.Incarnation
	incarnationChanges uint64
	// splitsByKey has the splits in use.
	splitsByKey map[splitKey]*split
	// memoryOwners has allocated memory, by its first byte.
	memoryOwners map[*byte]memoryOwner

	// lastSplit was used last. It does not keep the members of closed communicators in memory.
	lastSplit weak.Pointer[split]
}

// New composes two open modules. by is the parameter that selects the one on the node, and is printed as a reason. The
// composition closes the network's module. The caller closes the node's module afterwards.
func New(env pml.Env, network, node pml.Module, by string) *Module {
	return &Module{env: env, networkPML: network, nodePML: node, nodeParam: by, joiner: NewJoiner(env.Engine, env.Hooks), localIncarnations: map[framework.ProcID]framework.Incarnation{}, splitsByKey: map[splitKey]*split{}, memoryOwners: map[*byte]memoryOwner{}}
}

// Unwrap lets framework.As find the optional interfaces of the node's PML.
func (m *Module) Unwrap() any { return m.nodePML }

// Capabilities implements pml.Module.
func (m *Module) Capabilities() pml.Capabilities {
	o, node := m.networkPML.Capabilities(), m.nodePML.Capabilities()
	o.Detail += fmt.Sprintf("; %s %d on the node", node.PML, node.Version)
	return o
}

// Addresses implements pml.Module.
func (m *Module) Addresses() []framework.Address {
	return append(m.nodePML.Addresses(), m.networkPML.Addresses()...)
}

// CIDs implements pml.Module.
func (m *Module) CIDs() *cid.Table { return m.networkPML.CIDs() }

// Caps implements pml.Module. A receive from any source involves both PMLs.
func (m *Module) Caps() pml.Caps {
	caps := Caps(m.networkPML.Caps(), m.nodePML.Caps())
	caps.Arrivals = false // Arrivals in the network are not known.
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
	for _, part := range []pml.Module{m.networkPML, m.nodePML} {
		if l, ok := framework.As[pml.RankLimiter](part); ok {
			if err := l.FitsRanks(members); err != nil {
				return err
			}
		}
	}
	return nil
}

// Learn implements pml.Module.
func (m *Module) Learn(peer framework.Incarnation, card framework.Card) error {
	m.mu.Lock()
	m.incarnationChanges++
	if delete(m.localIncarnations, peer.ID); card.OnNode(m.env.Node) {
		m.localIncarnations[peer.ID] = peer
	}
	m.mu.Unlock()
	if err := m.nodePML.Learn(peer, card); err != nil {
		return err
	}
	return m.networkPML.Learn(peer, card)
}

// PeerChanged implements pml.Module. Messages of the process on the node arrive before the network's PML ends receives
// from any source.
func (m *Module) PeerChanged(ev framework.PeerEvent) {
	m.nodePML.PeerChanged(ev)
	m.networkPML.PeerChanged(ev)
}

// DropPeer implements pml.PeerDropper. It returns true when both PMLs have dropped the process.
func (m *Module) DropPeer(peer framework.Incarnation) bool {
	for _, part := range []pml.Module{m.nodePML, m.networkPML} {
		if d, ok := framework.As[pml.PeerDropper](part); !ok || !d.DropPeer(peer) {
			return false
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.localIncarnations[peer.ID] == peer {
		delete(m.localIncarnations, peer.ID)
	}
	return true
}

// Refuse implements pml.Module.
func (m *Module) Refuse(s cid.Span, endpoint int) {
	m.nodePML.Refuse(s, endpoint)
	m.networkPML.Refuse(s, endpoint)
}

// Inquire implements pml.Module.
func (m *Module) Inquire(by framework.ProcID) {
	m.nodePML.Inquire(by)
	m.networkPML.Inquire(by)
}

// isLocal reports whether another process is on this node. Both ends of a pair get the same result from their cards.
func (m *Module) isLocal(peer framework.Incarnation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isOnNode(peer)
}

// isOnNode is isLocal with mu held.
func (m *Module) isOnNode(peer framework.Incarnation) bool {
	return m.localIncarnations[peer.ID] == peer || m.env.Cards != nil && m.env.Node != "" && m.env.Cards.Node(peer) == m.env.Node
}

// Route implements pml.Module.
func (m *Module) Route(peer framework.Incarnation) pml.Route {
	remote := m.networkPML.Route(peer)
	if peer == m.env.Self || !m.isLocal(peer) {
		return remote
	}
	route := m.nodePML.Route(peer)
	route.PML = remote.PML
	route.Rejected = append(route.Rejected, remote.Rejected...)
	if remote.Transport != "" {
		route.Rejected = append(route.Rejected, framework.Rejection{Name: remote.Transport,
			Reason: "not used between processes of a node: " + m.nodeParam})
	}
	return route
}

// Stats implements pml.Module.
func (m *Module) Stats() []pml.PeerStats { return append(m.nodePML.Stats(), m.networkPML.Stats()...) }

// Flush implements pml.Module.
func (m *Module) Flush(ctx context.Context) error {
	return errors.Join(m.nodePML.Flush(ctx), m.networkPML.Flush(ctx))
}

// Close implements pml.Module. A receive that has matched a message of the node ends when the node's PML is closed.
func (m *Module) Close() error {
	e := m.env.Engine
	e.Lock()
	m.joiner.isClosed = true
	e.Unlock()
	err := m.networkPML.Close()
	e.Lock()
	defer e.Unlock()
	for _, r := range m.joiner.allRequests {
		if r.w != nil && !r.Done() && !r.hasMessage {
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
		m.releaseSplit(s)
	}
	return c, err
}

// addComm creates the parts of a communicator.
func (m *Module) addComm(spec pml.CommSpec, s *split) (pml.Comm, error) {
	switch {
	case s.onNode == 0:
		c, err := m.networkPML.AddComm(spec)
		if err == nil {
			m.releaseSplit(s)
		}
		return c, err
	case s.inNetwork == 0:
		c, err := m.nodeComm(spec, spec.Elsewhere)
		if err != nil {
			return nil, err
		}
		m.releaseSplit(s)
		return &nodeOnly{c, m.CIDs(), spec.Local}, nil
	}
	node, err := m.nodeComm(spec, s.NotOnNode)
	if err != nil {
		return nil, err
	}
	watchable, ok := framework.As[pml.Watchable](node)
	if !ok {
		err = fmt.Errorf("%w: pml %s cannot serve the processes of a node beside a network: it does not report arrivals",
			framework.ErrUnsupported, m.nodePML.Capabilities().PML)
	}
	spec.Elsewhere = s.notInNetwork
	var network pml.Comm
	if err == nil {
		network, err = m.networkPML.AddComm(spec)
	}
	if err != nil {
		node.Close()
		return nil, err
	}
	return m.joiner.Join(spec, &s.Sides, node, network, watchable, func() { m.releaseSplit(s) }), nil
}

// nodeComm creates a communicator's part on the node.
func (m *Module) nodeComm(spec pml.CommSpec, elsewhere *pml.RankSet) (pml.Comm, error) {
	table := m.nodePML.CIDs()
	local, err := table.Reserve()
	if err != nil {
		return nil, fmt.Errorf("pml %s: on the node: %w", m.networkPML.Capabilities().PML, err)
	}
	spec.Local, spec.Agreed, spec.Indices, spec.Elsewhere = local, false, nil, elsewhere
	c, err := m.nodePML.AddComm(spec)
	if err != nil {
		table.Close(local)
		return nil, fmt.Errorf("pml %s: on the node: %w", m.networkPML.Capabilities().PML, err)
	}
	return c, nil
}

// nodeOnly is a communicator with all members on this node.
type nodeOnly struct {
	pml.Comm
	networkIDs *cid.Table
	// The communicator's id in network.
	networkLocalID cid.Local
}

// Unwrap lets framework.As find the optional interfaces of the node's Comm, such as Watchable.
func (c *nodeOnly) Unwrap() any { return c.Comm }

// Close implements pml.Comm. The id was never used in the network.
func (c *nodeOnly) Close() {
	c.Comm.Close()
	c.networkIDs.Close(c.networkLocalID) // A second call has no effect.
}

// Inspect implements pml.Module.
func (m *Module) Inspect(ctx context.Context) (pml.Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, progress.ObserveLimit) // One limit for all three.
	defer cancel()
	all, err := m.networkPML.Inspect(ctx)
	if err != nil {
		return all, err
	}
	node, err := m.nodePML.Inspect(ctx)
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

// inspect describes messages and receives that are not in the network too. Lock held.
func (w *wildcards) inspect() pml.CommInspection {
	spec := &w.c.spec
	x := pml.CommInspection{ID: spec.ID, Endpoint: spec.Members.Member(spec.Rank).Endpoint, Name: spec.Name, Local: spec.Local}
	for _, from := range w.nodePeers.All() {
		w.matchQueues.Posted(from, func(r *match.Recv[request]) {
			x.Posted = append(x.Posted, pml.Pending{Peer: r.Source, Tag: r.Tag, Bytes: r.Owner.userBuf.Len(), Plane: w.plane, State: "posted"})
		})
	}
	add := func(msg *match.Message[message]) {
		x.Unexpected = append(x.Unexpected, pml.Pending{Peer: msg.Source, Tag: msg.Tag, Bytes: int64(msg.Owner.messageBytes), Plane: w.plane, State: "arrived"})
	}
	w.matchQueues.Unexpected(add)
	for _, msg := range w.arrivedMessages {
		add(&msg.queueNode)
	}
	return x
}
