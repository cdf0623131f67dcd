package cm

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// Module is the cm instance of one process. The engine's lock guards all fields.
type Module struct {
	env    pml.Env
	engine *progress.Engine
	network
	fragmentedMessages fragmentedMessages

	comms base.Comms[comm]
	// handleCounts counts the open handles of each communicator in which this
	// process has several ranks.
	handleCounts map[cid.Extended]int
	procs        base.Procs[*proc]
	unknownPeers unknownPeers
	// earlySenders are the processes with early arrivals or with dropped ones.
	earlySenders map[*proc]struct{}
	endedProcs
	inquiries base.Inquiries
	requestPool
	claimedMessages
	closedComms
	doubtState doubtState
	// registeredMemory is the memory registered with the network, by its first byte.
	registeredMemory map[*byte]struct{}
	isClosed         bool
}

// network is the MTL of a module and its properties, which are constant once it is open.
type network struct {
	mtlName string
	mtl     mtl.Module
	// recvPoller and prefixKeeper are optional interfaces of the MTL, nil if it does not
	// implement them.
	recvPoller   mtl.ImmediateReceiver
	prefixKeeper mtl.MessageSaver
	pollSource   progress.Source
	mtlCaps      mtl.Caps
	idLayout     idLayout
	// hasMessageLimit is set if the MTL limits the length of a message. Longer
	// messages use the rendezvous protocol of rendezvous.go.
	hasMessageLimit bool
	// minRecvBytes is the smallest buffer that a posted receive may have, so that
	// every receive can hold an RTS.
	minRecvBytes int64
	// openFailure is the text of this process's framework.FailureAddress, or empty.
	openFailure string
}

// endedProcs is the state of processes that fail or leave (leave.go).
type endedProcs struct {
	// failureCount is the number of processes that have failed so far.
	failureCount uint32
	// mustCheckFailures makes receives check whether their message can still come.
	// It is set with the first failure or abort, and never reset.
	mustCheckFailures bool
	// leftNonces has the nonce of the last incarnation of each process that the
	// bootstrap has reported as left.
	leftNonces   map[framework.ProcID]uint64
	leavingProcs []*leaver
}

// claimedMessages is the state of the mechanisms that claim messages by probes (doc.go), other
// than the reaper.
type claimedMessages struct {
	// unexpectedCount is the number of messages in all unexpected queues.
	unexpectedCount int
	blockedProbes   []*blockedProbe
	activePulls     int
	activeSweepers  []*sweeper
}

// closedComms are communicators that are closed here, or have an aborted plane, and the reaper,
// which claims their messages (close.go).
type closedComms struct {
	// reapedComms may still receive messages.
	reapedComms []*comm
	// quietComms is the subset of reapedComms that only unknown senders keep from
	// being finished, oldest first.
	quietComms []*comm
	reaper     reaperState
}

// Capabilities implements pml.Module.
func (m *Module) Capabilities() pml.Capabilities {
	detail := fmt.Sprintf("mtl %s: %s", m.mtlName, m.mtl.Offer())
	if m.hasMessageLimit {
		detail += ", in parts" // Both sides of a pair must interpret RTS messages, or neither.
	}
	return pml.Capabilities{PML: "cm", Version: WireVersion, Priority: component{}.Info().Priority, Detail: detail}
}

// Addresses implements pml.Module.
func (m *Module) Addresses() []framework.Address {
	all := []framework.Address{{Component: framework.ComponentName(framework.MTL, m.mtlName), Blob: m.mtl.Blob()}}
	if m.openFailure != "" {
		all = append(all, framework.FailureAddress(m.openFailure))
	}
	return all
}

// failedCandidates lists the candidates that an MTL has probed without success, with their reasons.
func failedCandidates(d mtl.Description) string {
	var all []string
	for _, c := range d.Candidates {
		if c.Failed {
			all = append(all, c.Name+": "+c.Reason)
		}
	}
	return strings.Join(all, "; ")
}

// CIDs implements pml.Module.
func (m *Module) CIDs() *cid.Table { return m.comms.Table }

// Caps implements pml.Module.
func (m *Module) Caps() pml.Caps {
	caps := pml.Caps{TagMax: 1<<m.mtlCaps.TagBits - 1, MaxMessage: math.MaxInt64, Steps: []int{m.mtlCaps.Inject}}
	if m.mtlCaps.MaxMessage <= maxStep && m.mtlCaps.MaxMessage > int64(m.mtlCaps.Inject) {
		caps.Steps = append(caps.Steps, int(m.mtlCaps.MaxMessage))
	}
	return caps
}

// maxStep is the longest message for which Caps reports a protocol step. Tests
// allocate a few buffers for each step.
const maxStep = 1 << 20

// Learn implements pml.Module.
func (m *Module) Learn(peer framework.Incarnation, card framework.Card) error {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.learn(peer, card)
}

// drainNetwork polls for messages that a process had sent before its end.
func (m *Module) drainNetwork() {
	for i := 0; i < maxDrainPolls && m.mtl.Poll() > 0; i++ {
	}
}

// PeerChanged implements pml.Module. A process that has left may have messages in the
// network. Its goodbye, if one comes, has their number.
func (m *Module) PeerChanged(ev framework.PeerEvent) {
	m.engine.Lock()
	defer m.engine.Unlock()
	peer := ev.Peer
	if ev.State != framework.Left {
		m.drainNetwork()
		m.procs.HandlePeerEvent(ev)
		m.inquire()
		return
	}
	m.leftNonces[peer.ID] = peer.Nonce
	if p := m.procs.Find(peer); p != nil && p.HasCard {
		p.handleLeft()
	} else if m.procs.InUse(peer) {
		m.procs.Member(peer) // It leaves at once.
	}
}

// DropPeer implements pml.PeerDropper. The MTL keeps its endpoint.
func (m *Module) DropPeer(peer framework.Incarnation) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	if _, ok := m.procs.Remove(peer); !ok {
		return false
	}
	if m.leftNonces[peer.ID] == peer.Nonce {
		delete(m.leftNonces, peer.ID)
	}
	if e := m.unknownPeers.arrivalsByNonce[peer.Nonce]; e != nil {
		m.unknownPeers.arrivalCount -= len(e.controlsByKey)
		delete(m.unknownPeers.arrivalsByNonce, peer.Nonce)
	}
	return true
}

// maxDrainPolls bounds drainNetwork, since live peers may send without a pause.
const maxDrainPolls = 1000

// Endpoint implements mtl.Receiver.
func (m *Module) Endpoint(word uint32, source int) (mtl.Endpoint, bool) {
	index := int(m.idLayout.indexOf(word))
	if index >= len(m.comms.ByIndex) {
		return 0, false
	}
	c := m.comms.ByIndex[index]
	if c == nil || word&^(1<<planeBits-1) != c.localID || source < 0 || source >= c.Len() {
		return 0, false
	}
	p := c.Proc(source)
	err := p.connect()
	return p.mtlEndpoint, err == nil
}

// Poll implements progress.Source. It advances blocked probes, the reaper, sweeps,
// leaving processes and doubtful requests.
func (m *Module) Poll() int {
	if len(m.blockedProbes) > 0 {
		m.wakeDueProbes()
	}
	if len(m.reapedComms) > 0 {
		m.reap()
	}
	if len(m.activeSweepers) > 0 {
		m.startDueSweeps()
	}
	if len(m.leavingProcs) > 0 {
		m.advanceLeavers()
	}
	if m.doubtState.hasDoubtful {
		m.resolveDoubts()
	}
	return 0
}

// Due implements progress.Timed.
func (m *Module) Due() time.Duration {
	var interval time.Duration
	for _, work := range [...]struct {
		is  bool
		gap time.Duration
	}{
		{len(m.blockedProbes) > 0, probeInterval},
		{len(m.reapedComms) > 0, max(m.reaper.roundInterval, firstReapGap)},
		{len(m.activeSweepers) > 0, m.sweepInterval()},
		{len(m.leavingProcs) > 0, m.leaverInterval()},
		{m.doubtState.hasDoubtful, base.DoubtStep},
	} {
		if work.is && (interval == 0 || work.gap < interval) {
			interval = work.gap
		}
	}
	return interval
}

// Route implements pml.Module.
func (m *Module) Route(peer framework.Incarnation) pml.Route {
	m.engine.Lock()
	defer m.engine.Unlock()
	route := pml.Route{PML: "cm"}
	p := m.procs.Find(peer)
	if p == nil || !p.HasCard {
		stateless, card, ok := m.procs.StatelessProc(peer)
		if !ok {
			return route
		}
		if p == nil {
			p = stateless
		}
		p.card = card
	}
	address, err := p.mtlPeer()
	if err == nil && !p.isConnected {
		err = m.mtl.Reach(address)
	}
	if err != nil {
		route.Rejected = append(route.Rejected, framework.Rejection{Name: m.mtlName, Reason: err.Error()})
		return route
	}
	d := m.mtl.Describe()
	route.Used = p.isConnected
	route.Transport, route.Device, route.Provider = m.mtlName, cmp.Or(d.Device, d.Provider, d.Mode), d.Provider
	if d.Mode != "" {
		route.Notes = append(route.Notes, "tags: "+d.Mode)
	}
	if m.hasMessageLimit {
		route.Notes = append(route.Notes, fmt.Sprintf("messages above %d bytes are sent in fragments", m.mtlCaps.MaxMessage))
	}
	route.Notes = append(route.Notes, d.Notes...)
	return route
}

// Stats implements pml.Module.
func (m *Module) Stats() []pml.PeerStats {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.procs.Stats()
}

// Close implements pml.Module. Pending requests fail with ErrClosed. The caller
// closes the MTL afterwards, which ends its operations.
func (m *Module) Close() error {
	m.engine.Remove(m)
	if f, ok := framework.As[mtl.Finisher](m.mtl); ok {
		f.Finish() // Matched messages are copied into user buffers until it returns.
	}
	m.engine.Lock()
	defer m.engine.Unlock()
	m.isClosed = true
	err := fmt.Errorf("%w: the last session was closed meanwhile", framework.ErrClosed)
	for _, r := range m.allRequests {
		if r.c != nil && r.state != complete {
			r.fail(err)
		}
	}
	return nil
}
