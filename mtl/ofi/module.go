package ofi

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// module is one open endpoint. It implements mtl.Module. The engine's lock guards it.
type module struct {
	env            mtl.Env
	lib            *libfabric.Library
	ep             *libfabric.Endpoint
	layout         layout
	caps           mtl.Caps
	description    mtl.Description
	offer          string
	blob           []byte
	self           selfAddress
	connectTimeout time.Duration // mtl.ofi.connect_timeout
	// padding is libfabric.DiscardExcess for a provider with the quirk PadReceives, otherwise 0.
	padding libfabric.Kind
	// isSoftware is set for a provider without network hardware; see pausesAfterEmptyPoll.
	isSoftware bool

	peers    peerTable
	slots    slotTable
	posted   postedOperations
	overflow receiveOverflow
	offload  offloader
	memory   registrations
	control  controlReceives
	results  resultQueue

	state endpointState
	// err is the module's failure. Once it is set, all calls return it.
	err error
	// consecutiveStrays counts error completions in a row that belong to no operation.
	consecutiveStrays int
	// pins hold memory that stays pinned until Close.
	pins   runtime.Pinner
	events [eventsPerPoll]libfabric.Event
}

// eventsPerPoll is the largest number of completions that one Poll reads.
const eventsPerPoll = 64

// endpointState is the progress of a module towards Close.
type endpointState uint8

const (
	endpointOpen endpointState = iota
	// Finish was called; no receive is left in the provider.
	endpointDrained
	// A call does not return, or a message has arrived in part. The endpoint can never be closed.
	endpointStuck
	endpointClosed
)

func (s endpointState) String() string {
	return [...]string{"endpointOpen", "endpointDrained", "endpointStuck", "endpointClosed"}[s]
}

// selfAddress is the address of this process.
type selfAddress struct {
	format  uint32
	address []byte
	// nodeProof identifies the node if the provider reaches no other node; otherwise it is empty.
	nodeProof string
	medium    trial.Medium
}

// postedOperations counts the operations that libfabric holds, and their limits.
type postedOperations struct {
	operations int
	receives   int
	sends      int
	// probes includes peeks. It is 0 whenever an offloaded call starts.
	probes int

	limits        queueLimits
	sendQueueSize int // The provider's tx_attr.size.
}

// resultQueue holds the results of operations that ended without a completion of libfabric. The
// next Poll delivers them.
type resultQueue struct {
	pending []queuedResult
	// delivering is the second buffer of pending. Only Poll uses it.
	delivering []queuedResult
}

type queuedResult struct {
	op     *mtl.Op
	result mtl.Result
}

func (m *module) Caps() mtl.Caps            { return m.caps }
func (m *module) Describe() mtl.Description { return m.description }
func (m *module) Offer() string             { return m.offer }
func (m *module) Blob() []byte              { return m.blob }

// newModule returns a module for an open endpoint of a candidate. The module owns the endpoint.
func newModule(env mtl.Env, lib *libfabric.Library, ep *libfabric.Endpoint, c *candidate, l layout, p *params) *module {
	info := c.info
	m := &module{
		env: env, lib: lib, ep: ep, layout: l,
		peers: newPeerTable(),
		caps: mtl.Caps{
			CIDBits: l.cid, SourceBits: l.source, TagBits: l.tag,
			MatchesRank: !l.hasSourceData, EndpointBits: l.endpoint, RankSetting: l.rankSetting(tagWidth(info.TagFormat)),
			MaxMessage: int64(min(info.MaxMessage, math.MaxInt64)), Inject: info.Inject, ControlLimit: controlLimit,
			Eager: int64(info.Inject), // The provider cannot leave injected data with the sender.
		},
		description:    mtl.Description{Library: libraryName(lib), Provider: info.Provider, Device: info.Domain, Mode: l.String()},
		self:           selfAddress{format: info.AddressFormat},
		offer:          offer(info, l),
		posted:         postedOperations{limits: limitsFor(info, p.Buffers, lib.Version()), sendQueueSize: info.TxSize},
		connectTimeout: p.Connect,
		control:        controlReceives{scratch: make([]byte, 0, controlFrameSize), flushFrame: []byte{frameFlush}},
		memory:         registrations{isRequired: info.RequiresRegistration},
		isSoftware:     !c.hasDevice,
	}
	if _, ok := quirkReason(info.Provider, PadReceives, lib.Version()); ok && info.RxParts >= 2 {
		m.padding = libfabric.DiscardExcess
	}
	if f, ok := findQuirk(info.Provider, RaiseEager, lib.Version()); ok {
		m.caps.Eager = min(f.Eager, m.caps.MaxMessage)
	}
	_, m.overflow.defersLong = quirkReason(info.Provider, DeferLongReceives, lib.Version())
	return m
}

// offer returns the text that must be equal at both ends of a connection.
func offer(info *libfabric.Info, l layout) string {
	o := fmt.Sprintf("%s, %s, %v", info.Provider, formatName(info.AddressFormat), l)
	if lookupProvider(info.Provider).SeparatesNetworks {
		o += ", network " + info.Fabric
	}
	return o
}

// start reads the address of the endpoint and posts the receives of control messages.
func (m *module) start(c *candidate, controlReceives int) (err error) {
	if m.self.address, err = m.ep.Name(); err != nil {
		return err
	}
	if c.isNodeLocal {
		m.self.medium = trial.Memory
		if _, isIP := ipOf(c.info.AddressFormat, c.info.Address); isIP {
			m.self.medium = trial.Loopback
		}
		if m.self.nodeProof, err = m.self.medium.Proof(); err != nil {
			return err
		}
	}
	m.blob = cardEntry{offer: m.offer, node: m.self.nodeProof, address: m.self.address}.encode()
	return m.postControlReceives(controlReceives)
}

func (m *module) Reach(peer framework.Peer) error {
	_, err := m.checkReach(peer)
	return err
}

// checkReach returns the network address of peer, or the reason why this module cannot reach it.
func (m *module) checkReach(peer framework.Peer) ([]byte, error) {
	if m.err != nil {
		return nil, m.err
	}
	b, err := parseCardEntry(peer.Blob)
	switch {
	case err != nil:
		return nil, fmt.Errorf("mtl ofi: %v: %w", peer.Proc, err)
	case b.offer != m.offer:
		return nil, fmt.Errorf("mtl ofi: %v has %q, and this process %q: mtl.ofi.provider_include and mtl.ofi.layout choose", peer.Proc, b.offer, m.offer)
	case m.self.nodeProof != "" && b.node != m.self.nodeProof:
		return nil, fmt.Errorf("mtl ofi: %v %s, and %s connects only processes of one node here", peer.Proc, m.self.medium.Difference(m.self.nodeProof, b.node), m.description.Provider)
	case !m.isCompleteAddress(b.address):
		return nil, fmt.Errorf("mtl ofi: %v: %w", peer.Proc, errCardEntry)
	}
	return b.address, nil
}

// isCompleteAddress reports whether libfabric reads no further than the end of address. fi_av_insert
// takes no length: it relies on the format, on the family of a socket address, and on the
// terminating zero of a text.
func (m *module) isCompleteAddress(address []byte) bool {
	if m.self.format == libfabric.TextAddress {
		return bytes.IndexByte(address, 0) >= 0
	}
	own := m.self.address
	isSocket := libfabric.SocketAddress <= m.self.format && m.self.format <= libfabric.IBAddress
	return len(address) == len(own) && (!isSocket || bytes.HasPrefix(address, own[:min(2, len(own))]))
}

// queueResult queues the result of op for the next Poll.
func (m *module) queueResult(op *mtl.Op, r mtl.Result) {
	if op != nil {
		m.results.pending = append(m.results.pending, queuedResult{op, r})
	}
}

func (m *module) errnoText(code libfabric.Errno) string {
	return fmt.Sprintf("%s (%d)", m.lib.Text(code), code)
}

func (m *module) transportError(op string, to mtl.Endpoint, err error) error {
	e := &framework.TransportError{Component: component, Op: op, Err: err}
	if to != mtl.NoEndpoint {
		e.Peer = m.env.Worlds.Proc(m.peers.all[to].ID).String()
	}
	return e
}

// failModule fails the module after an error of the completion queue: no operation in progress
// will complete any more. The operations end once the endpoint has closed.
func (m *module) failModule(err error) {
	if m.err != nil {
		return
	}
	m.err = &framework.TransportError{Component: component, Op: "poll", Err: fmt.Errorf("%s: %w", m.description.Provider, err)}
	m.env.Logger.Error("mtl ofi: module failed", "provider", m.description.Provider, "err", err)
	if m.offload.active == nil {
		m.closeFailedEndpoint()
	}
}

// endAllOps ends every operation with the module's failure.
func (m *module) endAllOps() {
	m.peers.blocked, m.peers.injected = nil, nil
	m.overflow = receiveOverflow{defersLong: m.overflow.defersLong}
	for i := range m.peers.all {
		m.peers.all[i].blockedSends, m.peers.all[i].unackedSends = fifo{}, nil
	}
	for _, s := range m.slots.all {
		if s.kind != slotUnused {
			m.endOp(s, mtl.Result{Err: m.err})
		}
	}
	for _, x := range m.memory.regions {
		m.completeRegion(x, mtl.Result{Err: m.err})
	}
}
