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

// Options describe a Memory. Zero fields get the values of the comment.
type Options struct {
	CIDBits      int   // 22
	SourceBits   int   // 18
	TagBits      int   // 24
	MaxMessage   int64 // no limit
	Inject       int   // 64
	Eager        int64 // 4096, or Inject if that is more
	ControlLimit int   // 256
	ByProcess    bool  // Caps.MatchesRank is false
	EndpointBits int   // 0; only with ByProcess
	RankSetting  mtl.RankSetting
	Faults       Faults
}

// filled returns the options with the values of the comment.
func (o Options) filled() Options {
	o.CIDBits = cmp.Or(o.CIDBits, 22)
	o.SourceBits = cmp.Or(o.SourceBits, 18)
	o.TagBits = cmp.Or(o.TagBits, 24)
	o.MaxMessage = cmp.Or(o.MaxMessage, math.MaxInt64)
	o.Inject = cmp.Or(o.Inject, 64)
	o.Eager = cmp.Or(o.Eager, max(4096, int64(o.Inject)))
	o.ControlLimit = cmp.Or(o.ControlLimit, 256)
	return o
}

// most is the largest of each that a module accepts.
func (o Options) most() mtl.Envelope {
	e := mtl.Envelope{CID: uint32(1<<o.CIDBits - 1), Source: int32(1<<o.SourceBits - 1), Tag: int32(1<<o.TagBits - 1), Endpoint: math.MaxUint16}
	if o.ByProcess {
		e.Endpoint = uint16(1<<o.EndpointBits - 1)
	}
	return e
}

// Faults are what a network may do, and tests want it to do.
type Faults struct {
	// Control, when not nil, sees every control message, and returns what arrives in
	// its place: nothing, or more than one. It must not call the module.
	Control func(data []byte) [][]byte
	// Send, when not nil, is the error with which sends of messages fail.
	Send error
	// Polls is how many polls of the receiver a message, and how many polls of the
	// caller a cancel, waits before it takes effect. A message that arrives in
	// between is received, and the cancel comes too late.
	Polls int
	// NeverInject: no Send is done when it returns.
	NeverInject bool
}

// Memory is a network in Go memory: the modules that its component opens, all in
// one process, reach one another. It is the reference of the contract, and what
// protocols above MTLs are tested with. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	opt     Options
	modules []*memory // by address: in the order in which they were opened
	free    *message  // those that nobody knows
}

// NewMemory returns a network without modules.
func NewMemory(opt Options) *Memory { return &Memory{opt: opt.filled()} }

// Component returns the component whose modules meet in f.
func (f *Memory) Component() mtl.Component { return memoryComponent{f, f.opt} }

// SetFaults changes what goes wrong from now on.
func (f *Memory) SetFaults(faults Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opt.Faults = faults
}

// Inject delivers a stranger's control message to the module at an address.
func (f *Memory) Inject(address int, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deliverControl(f.modules[address], data)
}

// Fail has the module at an address fail.
func (f *Memory) Fail(address int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.modules[address].failed = &framework.TransportError{Component: "mtl memory", Op: "poll", Err: err}
}

// message returns one that holds a copy of data. f.mu held.
func (f *Memory) message(data []byte) *message {
	msg := f.free
	if msg == nil {
		msg = new(message)
		msg.node.Owner = msg
	} else {
		f.free, msg.next = msg.next, nil
	}
	msg.own = append(msg.own[:0], data...)
	msg.data = msg.own
	return msg
}

// release takes a message back that nobody knows any more. f.mu held.
func (f *Memory) release(msg *message) {
	msg.control, msg.sync, msg.wild, msg.orphan = false, false, false, false
	msg.data, msg.from, msg.to, msg.op = nil, nil, nil, nil
	msg.next, f.free = f.free, msg
}

// deliver puts a message into a module's inbox. f.mu held.
func (f *Memory) deliver(to *memory, msg *message) {
	msg.to, msg.due = to, to.polls+f.opt.Faults.Polls
	msg.node.Source, msg.node.Tag = int(msg.envelope.Source), int(msg.envelope.Tag)
	to.inbox.push(msg)
}

func (f *Memory) deliverControl(to *memory, data []byte) {
	if to.closed {
		return // it goes nowhere, as on a network
	}
	msg := f.message(data)
	msg.control = true
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
	m := &memory{
		peers: []memoryPeer{{gone: errNobody}},                                                    // mtl.NoEndpoint
		f:     c.f, env: env, opt: c.opt, most: c.opt.most(), address: len(c.f.modules), polls: 1, // a cancel names its poll, and 0 is none
		queues: map[uint32]*queues{}, recent: new(queues), sends: map[*message]struct{}{}, claims: map[*mtl.Op]*message{},
	}
	c.f.modules = append(c.f.modules, m)
	return m, nil
}

// departed takes the place of every module that has closed: that one holds its
// process, with engine and transports, and the network may outlive thousands.
var departed = &memory{closed: true}

type memoryPeer struct {
	framework.Life
	module *memory
	gone   error // why it was forgotten
}

func (m *memory) Caps() mtl.Caps {
	return mtl.Caps{
		CIDBits: m.opt.CIDBits, SourceBits: m.opt.SourceBits, TagBits: m.opt.TagBits,
		MatchesRank: !m.opt.ByProcess, EndpointBits: m.opt.EndpointBits, RankSetting: m.opt.RankSetting,
		MaxMessage: m.opt.MaxMessage, Inject: m.opt.Inject, Eager: m.opt.Eager, ControlLimit: m.opt.ControlLimit,
	}
}

func (m *memory) Describe() mtl.Description {
	return mtl.Description{Mode: m.Offer(), Candidates: []mtl.Candidate{{Name: "memory", Chosen: true, Reason: "there is nothing else"}}}
}

func (m *memory) Offer() string {
	o := fmt.Sprintf("memory %d/%d/%d", m.opt.CIDBits, m.opt.SourceBits, m.opt.TagBits)
	if m.opt.ByProcess {
		o += fmt.Sprintf(" by process, %d", m.opt.EndpointBits)
	}
	return o
}

// Blob is the address, then the offer.
func (m *memory) Blob() []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(m.address)), m.Offer()...)
}

func (m *memory) Reach(peer framework.Peer) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	_, err := m.look(peer)
	return err
}

// look returns the module of a peer.
func (m *memory) look(peer framework.Peer) (*memory, error) {
	if len(peer.Blob) < 4 {
		return nil, fmt.Errorf("mtl memory: the card of %v has no address of it", peer.Proc)
	}
	if offer := string(peer.Blob[4:]); offer != m.Offer() {
		return nil, fmt.Errorf("mtl memory: %v has %q, and this process %q", peer.Proc, offer, m.Offer())
	}
	address := binary.LittleEndian.Uint32(peer.Blob)
	if uint64(address) >= uint64(len(m.f.modules)) {
		return nil, fmt.Errorf("mtl memory: %v has no address %d", peer.Proc, address)
	}
	return m.f.modules[address], nil
}

func (m *memory) Connect(peer framework.Peer) (mtl.Endpoint, error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	for i, p := range m.peers {
		if p.Life == peer.Life && p.gone == nil {
			return mtl.Endpoint(i), nil
		}
	}
	module, err := m.look(peer)
	if err != nil {
		return 0, err
	}
	m.peers = append(m.peers, memoryPeer{Life: peer.Life, module: module})
	return mtl.Endpoint(len(m.peers) - 1), nil
}

func (m *memory) Forget(to mtl.Endpoint, why error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	peer := &m.peers[to]
	peer.gone = m.failure(to, why)
	for msg := range m.sends {
		if msg.to == peer.module {
			m.giveUp(msg, mtl.Result{Err: peer.gone})
		}
	}
}

// failure is the error of a send to a peer.
func (m *memory) failure(to mtl.Endpoint, err error) error {
	peer := m.env.Worlds.Proc(m.peers[to].ID).String()
	return &framework.TransportError{Component: "mtl memory", Peer: peer, Op: "send", Err: err}
}
