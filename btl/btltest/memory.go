package btltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Options configure a Memory.
type Options struct {
	// The default is "memory".
	Name string
	// The default is 4 KiB.
	EagerLimit int
	// The default is 64 KiB.
	FrameLimit  int
	Exclusivity int // 0

	// NoRead removes the ability btl.RMA.
	NoRead bool
	// Step is the size in bytes of the part of a payload that one Poll places. 0 means all.
	Step int

	// Refuse, if not nil, returns the reason why process to refuses a path from process from. It is
	// called from Poll of the former, and must not call the module.
	Refuse func(from, to framework.Proc) error
}

// Memory is a network in Go memory. All modules that it opens are in one process, and reach one
// another and themselves. It is the reference implementation of the contract with all its optional
// abilities, and the transport for tests of protocols above BTLs. It is a component and safe for
// concurrent use.
type Memory struct {
	framework.Basic
	options Options

	// mu guards the lists of all modules and the contents of their paths, because modules access
	// one another. It is not held during upcalls.
	mu                             sync.Mutex
	gatheredFrames, placedPayloads atomic.Int64
	modulesByAddress               map[string]*memoryModule
	// Allocated memory.
	regionsByNumber map[uint64]region
	// Number of the latest region.
	lastRegion uint64
}

// NewMemory returns a network without modules.
func NewMemory(opt Options) *Memory {
	opt.Name = cmp.Or(opt.Name, "memory")
	opt.FrameLimit = cmp.Or(opt.FrameLimit, 64<<10)
	opt.EagerLimit = min(cmp.Or(opt.EagerLimit, 4<<10), opt.FrameLimit)
	info := framework.Basic{Kind: framework.BTL, Name: opt.Name, Version: "1.0.0", Summary: "processes of a test, in one process"}
	return &Memory{Basic: info, options: opt, modulesByAddress: map[string]*memoryModule{}, regionsByNumber: map[uint64]region{}}
}

// Counts returns the numbers of gathered frames and of placed payloads.
func (f *Memory) Counts() (gathered, placed int64) {
	return f.gatheredFrames.Load(), f.placedPayloads.Load()
}

// Open implements btl.Component.
func (f *Memory) Open(_ context.Context, env btl.Env) (btl.Module, error) {
	m := &memoryModule{network: f, env: env, address: fmt.Sprintf("%v %x", env.Identity.Proc, env.Self.Nonce)}
	f.mu.Lock()
	f.modulesByAddress[m.address] = m
	f.mu.Unlock()
	if f.options.NoRead {
		return m, nil
	}
	return memoryReader{m}, nil
}

// memoryModule is a module. The lock of its engine guards the fields that the network's lock does not.
type memoryModule struct {
	network *Memory
	env     btl.Env
	address string
	// Guarded by mu of the network.
	requestedWires []*wire
	inboundWires   []*wire
	outboundWires  []*wire
}

func (m *memoryModule) Caps() btl.Caps {
	o := &m.network.options
	return btl.Caps{EagerLimit: o.EagerLimit, FrameLimit: o.FrameLimit, LatencyNS: 100, Exclusivity: o.Exclusivity, Device: "Go memory"}
}

func (m *memoryModule) Blob() []byte { return []byte(m.address) }

func (m *memoryModule) Reach(peer framework.Peer) error {
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	_, err := m.peerModule(peer)
	return err
}

// peerModule returns the module of a peer. The network's mu is held.
func (m *memoryModule) peerModule(peer framework.Peer) (*memoryModule, error) {
	far := m.network.modulesByAddress[string(peer.Blob)]
	if far == nil || far.env.Self.Nonce != peer.Nonce || far.env.Identity.Proc != peer.Proc {
		return nil, fmt.Errorf("%v is not in this network at address %.40q", peer.Proc, peer.Blob)
	}
	return far, nil
}

func (m *memoryModule) Connect(peer framework.Peer) (btl.Endpoint, error) {
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	far, err := m.peerModule(peer)
	if err != nil {
		return nil, err
	}
	w := &wire{from: m, to: far, receiverIncarnation: peer.Incarnation}
	far.requestedWires = append(far.requestedWires, w)
	m.outboundWires = append(m.outboundWires, w)
	far.env.Bell().Ring()
	return w, nil
}

// Forget implements btl.Forgetter.
func (m *memoryModule) Forget(peer framework.Incarnation) {
	m.network.mu.Lock()
	for _, w := range m.inboundWires {
		if w.senderIncarnation == peer {
			w.end(errors.New("the process is dead"))
		}
	}
	m.network.mu.Unlock()
	for _, w := range m.outboundWires {
		if w.receiverIncarnation == peer {
			w.Close()
		}
	}
}

// Close implements btl.Module.
func (m *memoryModule) Close() error {
	m.env.Engine.Lock()
	defer m.env.Engine.Unlock()
	for _, w := range m.outboundWires {
		w.Close()
	}
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	delete(m.network.modulesByAddress, m.address)
	maps.DeleteFunc(m.network.regionsByNumber, func(_ uint64, r region) bool { return r.owner == m })
	for _, w := range append(m.inboundWires, m.requestedWires...) {
		w.end(framework.ErrPeerClosed)
	}
	return nil
}

// Poll implements progress.Source.
func (m *memoryModule) Poll() (n int) {
	m.network.mu.Lock()
	asked := m.requestedWires
	m.requestedWires = nil
	m.network.mu.Unlock()
	for _, w := range asked {
		m.acceptOrRefuse(w)
		n++
	}
	for _, w := range m.inboundWires {
		n += w.Poll()
	}
	for _, w := range m.outboundWires {
		n += w.reportCompletions() + m.reportEnd(w)
	}
	return n
}

// acceptOrRefuse accepts or refuses a path from a peer.
func (m *memoryModule) acceptOrRefuse(w *wire) {
	from := w.from.env
	w.senderIncarnation = framework.Incarnation{ID: m.env.Worlds.ID(from.Identity.Proc), Nonce: from.Self.Nonce}
	var refused error
	if refuse := m.network.options.Refuse; refuse != nil {
		refused = refuse(from.Identity.Proc, m.env.Identity.Proc)
	}
	if refused == nil {
		w.receiver = m.env.Upcall.Accept(w.senderIncarnation)
		m.inboundWires = append(slices.Clone(m.inboundWires), w)
	}
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	if refused != nil {
		w.end(fmt.Errorf("%w: the peer refused: %w", btl.ErrNeverOpened, refused))
	} else if w.state == wireRequested {
		w.state = wireOpen
	}
	from.Bell().Ring()
}

// reportEnd reports the end of a path to a peer.
func (m *memoryModule) reportEnd(w *wire) int {
	m.network.mu.Lock()
	hasEnded, why := w.state == wireEnded, w.endReason
	m.network.mu.Unlock()
	if w.isClosed || !hasEnded {
		return 0
	}
	if errors.Is(why, framework.ErrPeerClosed) { // Its earlier frames are delivered first.
		for _, x := range m.inboundWires {
			for x.from == w.to && x.Poll() > 0 {
			}
		}
	}
	w.Close()
	m.env.Ended("btl memory", w.receiverIncarnation, "send", why)
	return 1
}

// PeerSource implements btl.PeerPoller.
func (m *memoryModule) PeerSource(peer framework.Incarnation) progress.Source {
	for _, w := range slices.Backward(m.inboundWires) {
		if w.senderIncarnation == peer {
			return w
		}
	}
	return nil
}
