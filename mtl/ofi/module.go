package ofi

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

// module is one open endpoint. It implements mtl.Module. The engine's lock guards it.
type module struct {
	base.Module
	lib            *libfabric.Library
	ep             *libfabric.Endpoint
	tagLayout      layout
	localAddress   networkAddress
	connectTimeout time.Duration // mtl.ofi.connect_timeout
	// paddingFlag is libfabric.DiscardExcess for a provider with the quirk PadReceives, otherwise 0.
	paddingFlag libfabric.Kind
	// isSoftware is set for a provider without network hardware; see pausesAfterEmptyPoll.
	isSoftware bool

	peerTable       peerTable
	slotsByNumber   []*slot
	postedCounts    postedOperations
	receiveOverflow receiveOverflow
	offloader       offloader
	registrations   registrations
	controlReceives controlReceives

	state endpointState
	// consecutiveStrays counts error completions in a row that belong to no operation.
	consecutiveStrays int
	eventBuf          [eventsPerPoll]libfabric.Event
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

// networkAddress is an address in the format of the provider.
type networkAddress struct {
	format uint32
	raw    []byte
}

// postedOperations counts the operations that libfabric holds, and their limits.
type postedOperations struct {
	operations int
	receives   int
	sends      int
	// probes includes peeks. It is 0 whenever an offloaded call starts.
	probes int

	queueLimits queueLimits
	// The provider's tx_attr.size.
	sendQueueSize int
}

// newModule returns a module for an open endpoint of a candidate. The module owns the endpoint.
func newModule(env mtl.Env, lib *libfabric.Library, ep *libfabric.Endpoint, c *candidate, l layout, p *params) *module {
	info := c.providerInfo
	m := &module{
		Module: base.NewModule(component, env), lib: lib, ep: ep, tagLayout: l,
		localAddress:    networkAddress{format: info.AddressFormat},
		postedCounts:    postedOperations{queueLimits: limitsFor(info, p.ControlBuffers, lib.Version()), sendQueueSize: info.TxSize},
		connectTimeout:  p.ConnectTimeout,
		controlReceives: controlReceives{injectBuf: make([]byte, 0, controlFrameSize), flushFrame: []byte{frameFlush}},
		registrations:   registrations{isRequired: info.RequiresRegistration},
		isSoftware:      !c.hasDevice,
	}
	m.peerTable = peerTable{peersByEndpoint: []peer{{Peer: m.NoPeer()}}, byNonce: map[uint64]mtl.Endpoint{}}
	m.Capabilities = mtl.Caps{
		CIDBits: l.cidBits, SourceBits: l.sourceBits, TagBits: l.tagBits,
		MatchesRank: !l.hasSourceData, EndpointBits: l.endpointBits, RankSetting: l.rankSetting(tagWidth(info.TagFormat)),
		MaxMessage: int64(min(info.MaxMessage, math.MaxInt64)), Inject: info.Inject, ControlLimit: controlLimit,
		Eager: int64(info.Inject), // The provider cannot leave injected data with the sender.
	}
	m.Description = mtl.Description{Library: libraryName(lib), Provider: info.Provider, Device: info.Domain, Mode: l.String()}
	m.Card.Offer = offer(info, l)
	if _, ok := quirkReason(info.Provider, PadReceives, lib.Version()); ok && info.RxParts >= 2 {
		m.paddingFlag = libfabric.DiscardExcess
	}
	if f, ok := findQuirk(info.Provider, RaiseEager, lib.Version()); ok {
		m.Capabilities.Eager = min(f.EagerBytes, m.Capabilities.MaxMessage)
	}
	_, m.receiveOverflow.defersLong = quirkReason(info.Provider, DeferLongReceives, lib.Version())
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
	if m.localAddress.raw, err = m.ep.Name(); err != nil {
		return err
	}
	if c.isNodeLocal {
		m.Card.Medium = trial.Memory
		if _, isIP := ipOf(c.providerInfo.AddressFormat, c.providerInfo.Address); isIP {
			m.Card.Medium = trial.Loopback
		}
		if m.Card.NodeProof, err = m.Card.Medium.Proof(); err != nil {
			return err
		}
	}
	m.Card.Blob = cardEntry{offer: m.Card.Offer, nodeProof: m.Card.NodeProof, address: m.localAddress.raw}.encode()
	return m.postControlReceives(controlReceives)
}

func (m *module) Reach(peer framework.Peer) error {
	_, err := m.checkReach(peer)
	return err
}

// checkReach returns the network address of peer, or the reason why this module cannot reach it.
func (m *module) checkReach(peer framework.Peer) ([]byte, error) {
	if m.Err != nil {
		return nil, m.Err
	}
	b, err := parseCardEntry(peer.Blob)
	switch {
	case err != nil:
		return nil, fmt.Errorf("mtl ofi: %v: %w", peer.Proc, err)
	case b.offer != m.Card.Offer:
		return nil, fmt.Errorf("mtl ofi: %v has %q, and this process %q: mtl.ofi.provider_include and mtl.ofi.layout choose", peer.Proc, b.offer, m.Card.Offer)
	case m.Card.NodeProof != "" && b.nodeProof != m.Card.NodeProof:
		return nil, fmt.Errorf("mtl ofi: %v %s, and %s connects only processes of one node here", peer.Proc, m.Card.Medium.Difference(m.Card.NodeProof, b.nodeProof), m.Description.Provider)
	case !m.isCompleteAddress(b.address):
		return nil, fmt.Errorf("mtl ofi: %v: %w", peer.Proc, base.ErrCardEntry)
	}
	return b.address, nil
}

// isCompleteAddress reports whether libfabric reads no further than the end of address. fi_av_insert
// takes no length: it relies on the format, on the family of a socket address, and on the
// terminating zero of a text.
func (m *module) isCompleteAddress(address []byte) bool {
	if m.localAddress.format == libfabric.TextAddress {
		return bytes.IndexByte(address, 0) >= 0
	}
	own := m.localAddress.raw
	isSocket := libfabric.SocketAddress <= m.localAddress.format && m.localAddress.format <= libfabric.IBAddress
	return len(address) == len(own) && (!isSocket || bytes.HasPrefix(address, own[:min(2, len(own))]))
}

func (m *module) errnoText(code libfabric.Errno) string {
	return fmt.Sprintf("%s (%d)", m.lib.Text(code), code)
}

func (m *module) transportError(op string, to mtl.Endpoint, err error) error {
	return m.TransportError(op, &m.peerTable.peersByEndpoint[to].Peer, err)
}

// failModule fails the module after an error of the completion queue: no operation in progress
// will complete any more. The operations end once the endpoint has closed.
func (m *module) failModule(err error) {
	if m.Err != nil {
		return
	}
	m.Err = &framework.TransportError{Component: component, Op: "poll", Err: fmt.Errorf("%s: %w", m.Description.Provider, err)}
	m.Env.Logger.Error("mtl ofi: module failed", "provider", m.Description.Provider, "err", err)
	if m.offloader.activeCall == nil {
		m.closeFailedEndpoint()
	}
}

// endAllOps ends every operation with the module's failure.
func (m *module) endAllOps() {
	m.peerTable.blockedPeers = nil
	m.receiveOverflow = receiveOverflow{defersLong: m.receiveOverflow.defersLong}
	for i := range m.peerTable.peersByEndpoint {
		m.peerTable.peersByEndpoint[i].blockedSends, m.peerTable.peersByEndpoint[i].unackedSends = fifo{}, nil
	}
	for _, s := range m.slotsByNumber {
		if s.Kind != base.SlotUnused {
			m.endOp(s, mtl.Result{Err: m.Err})
		}
	}
	for _, x := range m.registrations.regions {
		m.completeRegion(x, mtl.Result{Err: m.Err})
	}
}
