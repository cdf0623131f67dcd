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

// Options describe a Memory. Zero fields get the values of the comment.
type Options struct {
	Name        string // memory
	EagerLimit  int    // 4 KiB
	FrameLimit  int    // 64 KiB
	Exclusivity int    // 0

	NoRead bool // modules are no btl.RemoteReader
	Step   int  // payload that is placed in one Poll, in bytes; 0: all

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
	modules          map[string]*memory // by address
	regions          map[uint64]region  // by number: what modules have allocated
	last             uint64             // of the numbers
}

// NewMemory returns a network without modules.
func NewMemory(opt Options) *Memory {
	opt.Name = cmp.Or(opt.Name, "memory")
	opt.FrameLimit = cmp.Or(opt.FrameLimit, 64<<10)
	opt.EagerLimit = min(cmp.Or(opt.EagerLimit, 4<<10), opt.FrameLimit)
	info := framework.Basic{Kind: framework.BTL, Name: opt.Name, Version: "1.0.0", Summary: "processes of a test, in one process"}
	return &Memory{Basic: info, opt: opt, modules: map[string]*memory{}, regions: map[uint64]region{}}
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
	return memoryReader{m}, nil
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
	return btl.Caps{EagerLimit: o.EagerLimit, FrameLimit: o.FrameLimit, LatencyNS: 100, Exclusivity: o.Exclusivity, Device: "Go memory"}
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
	return w, nil
}

// Forget implements btl.Forgetter.
func (m *memory) Forget(peer framework.Life) {
	m.f.mu.Lock()
	for _, w := range m.in {
		if w.sender == peer {
			w.end(errors.New("the process is known to be dead"))
		}
	}
	m.f.mu.Unlock()
	for _, w := range m.out {
		if w.peer == peer {
			w.Close()
		}
	}
}

// Close implements btl.Module.
func (m *memory) Close() error {
	m.env.Engine.Lock()
	defer m.env.Engine.Unlock()
	for _, w := range m.out {
		w.Close()
	}
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	delete(m.f.modules, m.address)
	maps.DeleteFunc(m.f.regions, func(_ uint64, r region) bool { return r.owner == m })
	for _, w := range append(m.in, m.asked...) {
		w.end(framework.ErrPeerClosed)
	}
	return nil
}

// Poll implements progress.Source.
func (m *memory) Poll() (n int) {
	m.f.mu.Lock()
	asked := m.asked
	m.asked = nil
	m.f.mu.Unlock()
	for _, w := range asked {
		m.answer(w)
		n++
	}
	for _, w := range m.in {
		n += w.Poll()
	}
	for _, w := range m.out {
		n += w.tell() + m.look(w)
	}
	return n
}

// answer opens a path from a peer, or refuses it.
func (m *memory) answer(w *wire) {
	from := w.from.env
	w.sender = framework.Life{ID: m.env.Worlds.ID(from.Identity.Proc), Nonce: from.Self.Nonce}
	var refused error
	if refuse := m.f.opt.Refuse; refuse != nil {
		refused = refuse(from.Identity.Proc, m.env.Identity.Proc)
	}
	if refused == nil {
		w.up = m.env.Upcall.Accept(w.sender)
		w.placer, _ = framework.As[btl.Placer](w.up)
		m.in = append(slices.Clone(m.in), w)
	}
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if refused != nil {
		w.end(fmt.Errorf("%w: the peer refused: %w", btl.ErrNeverOpened, refused))
	} else if w.state == asking {
		w.state = open
	}
	from.Bell().Ring()
}

// look tells of a path to a peer that has ended.
func (m *memory) look(w *wire) int {
	m.f.mu.Lock()
	over, why := w.state == ended, w.why
	m.f.mu.Unlock()
	if w.closed || !over {
		return 0
	}
	if errors.Is(why, framework.ErrPeerClosed) { // what it has sent before is here
		for _, x := range m.in {
			for x.from == w.to && x.Poll() > 0 {
			}
		}
	}
	w.Close()
	m.env.Ended("btl memory", w.peer, "send", why)
	return 1
}

// PeerSource implements btl.PeerPoller.
func (m *memory) PeerSource(peer framework.Life) progress.Source {
	for _, w := range slices.Backward(m.in) {
		if w.sender == peer {
			return w
		}
	}
	return nil
}
