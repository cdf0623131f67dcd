package btltest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// Options describe a Memory. Zero fields get the values of the comment.
type Options struct {
	Name        string  // memory
	EagerLimit  int     // 4 KiB
	FrameLimit  int     // 64 KiB
	Exclusivity int     // 0
	LatencyNS   float64 // 100
	Room        int     // of a path, in bytes of frames; 4 times FrameLimit

	Plain   bool // endpoints have the mandatory methods only
	NoRead  bool // modules are no btl.RemoteReader
	NoPlace bool // modules ask nobody where payloads belong
	Step    int  // payload that is placed in one Poll, in bytes; 0: all

	// Refuse, when not nil, says why the second process refuses a path from the first.
	// It is asked in a Poll of the second, and must not call the module.
	Refuse func(from, to framework.Proc) error
}

// Memory is a network in Go memory: the modules that it opens, all in one process,
// reach one another, and themselves. It is the reference of the contract with all its
// optional abilities, and what protocols above BTLs are tested with. It is a component,
// and safe for concurrent use.
type Memory struct {
	framework.Basic
	opt Options

	// mu guards the modules' lists and what their paths hold, because modules touch one
	// another. Nothing is called upwards with it held.
	mu               sync.Mutex
	gathered, placed atomic.Int64
	modules          map[string]*memory       // by address
	readers          map[uint64]*memoryReader // by nonce, of those that have allocated
}

// NewMemory returns a network without modules.
func NewMemory(opt Options) *Memory {
	set := func(v *int, usual int) {
		if *v == 0 {
			*v = usual
		}
	}
	set(&opt.EagerLimit, 4<<10)
	set(&opt.FrameLimit, 64<<10)
	set(&opt.Room, 4*opt.FrameLimit)
	opt.EagerLimit = min(opt.EagerLimit, opt.FrameLimit)
	if opt.LatencyNS == 0 {
		opt.LatencyNS = 100
	}
	if opt.Name == "" {
		opt.Name = "memory"
	}
	info := framework.Basic{Kind: framework.BTL, Name: opt.Name, Version: "1.0.0", Summary: "processes of a test, in one process"}
	return &Memory{Basic: info, opt: opt, modules: map[string]*memory{}, readers: map[uint64]*memoryReader{}}
}

// Counts returns how many frames have been gathered and how many payloads placed.
func (f *Memory) Counts() (gathered, placed int64) { return f.gathered.Load(), f.placed.Load() }

// Open implements btl.Component.
func (f *Memory) Open(_ context.Context, env btl.Env) (btl.Module, error) {
	m := &memory{f: f, env: env, address: fmt.Sprintf("%v %x", env.Identity.Proc, env.Self.Nonce)}
	f.mu.Lock()
	f.modules[m.address] = m
	f.mu.Unlock()
	if f.opt.NoRead {
		return m, nil
	}
	return &memoryReader{memory: m}, nil
}

// memory is a module. What is not guarded by the network's lock is by its engine's.
type memory struct {
	f       *Memory
	env     btl.Env
	address string
	asked   []*wire // f.mu: what peers ask for
	in      []*wire
	out     []*wire
}

func (m *memory) Caps() btl.Caps {
	o := &m.f.opt
	return btl.Caps{EagerLimit: o.EagerLimit, FrameLimit: o.FrameLimit, LatencyNS: o.LatencyNS, Exclusivity: o.Exclusivity, Device: "Go memory"}
}

func (m *memory) Blob() []byte { return []byte(m.address) }

func (m *memory) Reach(peer framework.Peer) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	_, err := m.far(peer)
	return err
}

// far returns a peer's module. f.mu held.
func (m *memory) far(peer framework.Peer) (*memory, error) {
	far := m.f.modules[string(peer.Blob)]
	if far == nil || far.env.Self.Nonce != peer.Nonce || far.env.Identity.Proc != peer.Proc {
		return nil, fmt.Errorf("%v is not in this network, at %.40q", peer.Proc, peer.Blob)
	}
	return far, nil
}

func (m *memory) Connect(peer framework.Peer) (btl.Endpoint, error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	far, err := m.far(peer)
	if err != nil {
		return nil, err
	}
	w := &wire{from: m, to: far, peer: peer.Life}
	far.asked = append(far.asked, w)
	m.out = append(m.out, w)
	far.env.Bell().Ring()
	if m.f.opt.Plain {
		return plainEnd{w}, nil
	}
	return wireEnd{plainEnd{w}}, nil
}

// Forget implements btl.Forgetter.
func (m *memory) Forget(peer framework.Life) {
	for _, w := range m.in {
		if w.sender == peer {
			w.end(down, errForgotten)
		}
	}
	for _, w := range m.out {
		if w.peer == peer {
			plainEnd{w}.Close()
		}
	}
}

// Close implements btl.Module.
func (m *memory) Close() error {
	m.env.Engine.Lock()
	defer m.env.Engine.Unlock()
	for _, w := range m.out {
		plainEnd{w}.Close()
	}
	m.f.mu.Lock()
	delete(m.f.modules, m.address)
	in := append(m.in, m.asked...)
	m.f.mu.Unlock()
	for _, w := range in {
		w.end(gone, framework.ErrPeerClosed)
	}
	return nil
}
