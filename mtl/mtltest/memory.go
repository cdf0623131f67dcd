package mtltest

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// Options configure a Memory. Zero fields have the defaults.
type Options struct {
	CIDBits    int // Default 22.
	SourceBits int // Default 18.
	TagBits    int // Default 24.
	// Default: no limit.
	MaxMessage int64
	Inject     int // Default 64.
	// Default 4096, or Inject if that is more.
	Eager        int64
	ControlLimit int // Default 256.
	// ByProcess makes the modules match processes and endpoints, not ranks.
	ByProcess bool
	// EndpointBits requires ByProcess.
	EndpointBits int
	RankSetting  mtl.RankSetting
	Faults       Faults
}

func (o Options) withDefaults() Options {
	o.CIDBits = cmp.Or(o.CIDBits, 22)
	o.SourceBits = cmp.Or(o.SourceBits, 18)
	o.TagBits = cmp.Or(o.TagBits, 24)
	o.MaxMessage = cmp.Or(o.MaxMessage, math.MaxInt64)
	o.Inject = cmp.Or(o.Inject, 64)
	o.Eager = cmp.Or(o.Eager, max(4096, int64(o.Inject)))
	o.ControlLimit = cmp.Or(o.ControlLimit, 256)
	return o
}

// limits returns the largest accepted value of each field.
func (o Options) limits() mtl.Envelope {
	e := mtl.Envelope{CID: uint32(1<<o.CIDBits - 1), Source: int32(1<<o.SourceBits - 1), Tag: int32(1<<o.TagBits - 1), Endpoint: math.MaxUint16}
	if o.ByProcess {
		e.Endpoint = uint16(1<<o.EndpointBits - 1)
	}
	return e
}

// Faults are deviations that the contract permits.
type Faults struct {
	// Control, if not nil, receives every control message and returns the messages that arrive instead. It must not call the
	// module.
	Control func(data []byte) [][]byte
	// Send, if not nil, is the error of sends of messages.
	Send error
	// Polls is the delay of a message in polls of the receiver, and of a cancel in polls of the caller. A message that arrives in
	// between is received, and the cancel has no effect.
	Polls int
	// NeverInject prevents that a Send is done when it returns.
	NeverInject bool
}

// Memory is a network in Go memory. The modules that its component opens are all in one process and reach one another. It is the reference
// implementation of the contract, for tests of protocols above MTLs. It is safe for concurrent use.
type Memory struct {
	mu  sync.Mutex
	opt Options
	// Addresses are in the order of opening.
	modulesByAddress []*memoryModule
	freeMessages     *message
}

// NewMemory returns a network without modules.
func NewMemory(opt Options) *Memory { return &Memory{opt: opt.withDefaults()} }

// Component returns the component of the network.
func (f *Memory) Component() mtl.Component { return memoryComponent{f, f.opt} }

// SetFaults replaces the faults.
func (f *Memory) SetFaults(faults Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opt.Faults = faults
}

// Inject delivers an unknown process's control message to the module at an address.
func (f *Memory) Inject(address int, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deliverControl(f.modulesByAddress[address], data)
}

// Fail fails the module at an address.
func (f *Memory) Fail(address int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.modulesByAddress[address].moduleFailure = &framework.TransportError{Component: "mtl memory", Op: "poll", Err: err}
}

// newMessage returns a message with a copy of data. f.mu held.
func (f *Memory) newMessage(data []byte) *message {
	msg := f.freeMessages
	if msg == nil {
		msg = new(message)
		msg.queueNode.Owner = msg
	} else {
		f.freeMessages, msg.nextMessage = msg.nextMessage, nil
	}
	msg.ownData = append(msg.ownData[:0], data...)
	msg.data = msg.ownData
	return msg
}

// freeMessage makes a message available for reuse. f.mu held.
func (f *Memory) freeMessage(msg *message) {
	msg.isControl, msg.isSync, msg.matchedAnySource, msg.isOrphan = false, false, false, false
	msg.data, msg.from, msg.to, msg.sendOp = nil, nil, nil, nil
	msg.nextMessage, f.freeMessages = f.freeMessages, msg
}

// deliver appends a message to a module's inbox. f.mu held.
func (f *Memory) deliver(to *memoryModule, msg *message) {
	msg.to, msg.dueAt = to, to.pollCount+f.opt.Faults.Polls
	msg.queueNode.Source, msg.queueNode.Tag = int(msg.envelope.Source), int(msg.envelope.Tag)
	to.inbox.push(msg)
}

func (f *Memory) deliverControl(to *memoryModule, data []byte) {
	if to.isClosed {
		return // As on a network, it is lost.
	}
	msg := f.newMessage(data)
	msg.isControl = true
	f.deliver(to, msg)
}

type memoryComponent struct {
	f   *Memory
	opt Options
}

func (memoryComponent) Info() framework.Info {
	return framework.Info{Kind: framework.MTL, Name: "memory", Version: "1.0.0", Summary: "processes of a test, in one process"}
}

func (memoryComponent) Params() any { return nil }

func (memoryComponent) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

func (c memoryComponent) Open(_ context.Context, env mtl.Env) (mtl.Module, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	m := &memoryModule{
		peersByEndpoint: []memoryPeer{{forgetErr: errUnknownEndpoint}},                                                               // mtl.NoEndpoint
		f:               c.f, env: env, opt: c.opt, envelopeLimits: c.opt.limits(), address: len(c.f.modulesByAddress), pollCount: 1, // receive.cancelAt is 0 without a cancel.
		queuesByCID: map[uint32]*idQueues{}, recentQueues: new(idQueues), activeSends: map[*message]struct{}{}, claimsByOp: map[*mtl.Op]*message{},
	}
	c.f.modulesByAddress = append(c.f.modulesByAddress, m)
	return m, nil
}

// closedModule replaces modules that have closed. A closed module references its process with engine and transports, and the network may outlive
// thousands.
var closedModule = &memoryModule{isClosed: true}

type memoryPeer struct {
	framework.Incarnation
	module *memoryModule
	// forgetErr is the error of sends after Forget; nil before.
	forgetErr error
}

func (m *memoryModule) Caps() mtl.Caps {
	return mtl.Caps{
		CIDBits: m.opt.CIDBits, SourceBits: m.opt.SourceBits, TagBits: m.opt.TagBits,
		MatchesRank: !m.opt.ByProcess, EndpointBits: m.opt.EndpointBits, RankSetting: m.opt.RankSetting,
		MaxMessage: m.opt.MaxMessage, Inject: m.opt.Inject, Eager: m.opt.Eager, ControlLimit: m.opt.ControlLimit,
	}
}

func (m *memoryModule) Describe() mtl.Description {
	return mtl.Description{Mode: m.Offer(), Candidates: []mtl.Candidate{{Name: "memory", Chosen: true, Reason: "it is the only choice"}}}
}

func (m *memoryModule) Offer() string {
	o := fmt.Sprintf("memory %d/%d/%d", m.opt.CIDBits, m.opt.SourceBits, m.opt.TagBits)
	if m.opt.ByProcess {
		o += fmt.Sprintf(" by process, %d", m.opt.EndpointBits)
	}
	return o
}

// Blob returns the address, followed by the offer.
func (m *memoryModule) Blob() []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(m.address)), m.Offer()...)
}

func (m *memoryModule) Reach(peer framework.Peer) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	_, err := m.lookupModule(peer)
	return err
}

// lookupModule returns the module of a peer.
func (m *memoryModule) lookupModule(peer framework.Peer) (*memoryModule, error) {
	if len(peer.Blob) < 4 {
		return nil, fmt.Errorf("mtl memory: the business card of %v has no address", peer.Proc)
	}
	if offer := string(peer.Blob[4:]); offer != m.Offer() {
		return nil, fmt.Errorf("mtl memory: %v has %q, and this process %q", peer.Proc, offer, m.Offer())
	}
	address := binary.LittleEndian.Uint32(peer.Blob)
	if uint64(address) >= uint64(len(m.f.modulesByAddress)) {
		return nil, fmt.Errorf("mtl memory: %v has no address %d", peer.Proc, address)
	}
	return m.f.modulesByAddress[address], nil
}

func (m *memoryModule) Connect(peer framework.Peer) (mtl.Endpoint, error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	for i, p := range m.peersByEndpoint {
		if p.Incarnation == peer.Incarnation && p.forgetErr == nil {
			return mtl.Endpoint(i), nil
		}
	}
	module, err := m.lookupModule(peer)
	if err != nil {
		return 0, err
	}
	m.peersByEndpoint = append(m.peersByEndpoint, memoryPeer{Incarnation: peer.Incarnation, module: module})
	return mtl.Endpoint(len(m.peersByEndpoint) - 1), nil
}

func (m *memoryModule) Forget(to mtl.Endpoint, why error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	peer := &m.peersByEndpoint[to]
	peer.forgetErr = m.sendError(to, why)
	for msg := range m.activeSends {
		if msg.to == peer.module {
			m.abandonSend(msg, mtl.Result{Err: peer.forgetErr})
		}
	}
}

// sendError returns the error of a send to a peer.
func (m *memoryModule) sendError(to mtl.Endpoint, err error) error {
	peer := m.env.Worlds.Proc(m.peersByEndpoint[to].ID).String()
	return &framework.TransportError{Component: "mtl memory", Peer: peer, Op: "send", Err: err}
}
