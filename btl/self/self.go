// Package self is the BTL of a process to itself, a cell ring in Go memory. It is always available
// and reaches no other process.
package self

import (
	"context"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/ring"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Component returns the component for the registry.
func Component() btl.Component {
	return component{framework.Basic{Kind: framework.BTL, Name: "self", Version: "1.0.0", Summary: "a process to itself, through Go memory", Priority: 50}}
}

type component struct{ framework.Basic }

// params are the component's parameters; each is btl.self.NAME.
type params struct {
	RingSize framework.Size `param:"ring_size" default:"64KiB" min:"4KiB" max:"64MiB" unit:"bytes" level:"developer" scope:"process" doc:"Memory for messages on their way from the process to itself; rounded up to a power of two."`
}

func (component) Params() any { return new(params) }

func (component) Open(_ context.Context, env btl.Env) (btl.Module, error) {
	p := env.Params.(*params)
	cells := ring.MinCells
	for cells*ring.CellSize < int(p.RingSize) {
		cells *= 2
	}
	return &module{env: env, cells: cells, limit: ring.FrameLimit(cells)}, nil
}

// module is the loopback path. The engine's lock guards all state.
type module struct {
	env   btl.Env
	cells int
	limit int

	// Nil before Connect.
	producer *ring.Producer
	consumer *ring.Consumer
	up       btl.Inbound
}

// framesPerPoll bounds the time of one Poll, for the sake of other modules.
const framesPerPoll = 32

func (m *module) Caps() btl.Caps {
	return btl.Caps{
		EagerLimit:  min(4096, m.limit),
		FrameLimit:  m.limit,
		LatencyNS:   50,
		Exclusivity: 1 << 16,
		Device:      "memory",
	}
}

func (m *module) Blob() []byte { return []byte{} }

func (m *module) Reach(peer framework.Peer) error {
	if peer.Proc != m.env.Identity.Proc {
		return btl.NotMeant("serves only the process itself")
	}
	return nil
}

// Connect creates the ring at the first call.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	if err := m.Reach(peer); err != nil {
		return nil, err
	}
	if m.producer == nil {
		m.producer, m.consumer = ring.New(m.cells)
		m.up = m.env.Upcall.Accept(peer.Incarnation)
	}
	return endpoint{m}, nil
}

// Poll delivers the frames of the process to itself.
func (m *module) Poll() int {
	if m.consumer == nil {
		return 0
	}
	for n := range framesPerPoll {
		frame, err := m.consumer.Next()
		if frame == nil && err == nil {
			return n
		}
		if err == nil {
			err = m.up.Frame(frame)
		}
		if err != nil {
			m.producer, m.consumer = nil, nil
			m.env.Ended("btl self", m.env.Self, "receive", err)
			return n
		}
		m.consumer.Release()
	}
	return framesPerPoll
}

// PeerSource returns the module, which has one path.
func (m *module) PeerSource(peer framework.Incarnation) progress.Source {
	if m.consumer == nil || peer != m.env.Self {
		return nil
	}
	return m
}

// Peek implements btl.Peeker.
func (m *module) Peek(polls int) []byte {
	if m.consumer == nil {
		return nil
	}
	return m.consumer.Peek(1) // Only this goroutine sends frames.
}

// Drop implements btl.Peeker.
func (m *module) Drop() { m.consumer.Release() }

func (m *module) Close() error {
	m.producer, m.consumer = nil, nil
	return nil
}

// endpoint is the path to the process itself.
type endpoint struct{ m *module }

func (e endpoint) Reserve(n int, _ btl.Placement) []byte {
	if e.m.producer == nil {
		return nil
	}
	return e.m.producer.Reserve(n)
}

func (e endpoint) Commit(n int) {
	e.m.producer.Commit(n)
	// No other process rings the bell for these frames.
	e.m.env.Engine.Nudge()
}

// SendShort implements btl.ShortSender.
func (e endpoint) SendShort(h btl.ShortHeader, payload []byte) bool {
	if e.m.producer == nil || !e.m.producer.SendShort(h, payload) {
		return false
	}
	e.m.env.Engine.Nudge()
	return true
}

// Idle is false before the delivery of all frames, which only this process can do.
func (e endpoint) Idle() bool { return e.m.consumer == nil || !e.m.consumer.Ready() }

func (e endpoint) Close() {}
