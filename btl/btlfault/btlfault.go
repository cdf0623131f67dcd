// Package btlfault wraps a BTL and injects faults. Delayed frames and blocking reservations are
// within the contract. Lost, duplicate, damaged and reordered frames, ended paths, and modules
// that hang or end the process violate it. Tests of protocols and of `ferry matrix` use it.
//
// It depends on package btl only, so that it wraps any module. All optional abilities
// (framework.As) stay available except btl.Peeker and btl.ShortSender, which would bypass the
// faults. For the same reason no payload is placed. A seed and the calls of the program determine
// the faults; clocks are not involved.
package btlfault

import (
	"context"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/faults"
	"github.com/ferrympi/ferry/progress"
)

// Plan selects the faults and their frequency. After a violation of the contract a protocol
// returns an error or remains unaffected; it must not crash or deliver a message twice.
type Plan = faults.Plan

// Component wraps another BTL component. Without As it replaces that component in a registry, with
// the same Params, Probe and Info.
type Component struct {
	btl.Component
	faults.Count
	info framework.Info
	plan Plan
}

// Wrap returns c with the faults of plan in all its modules.
func Wrap(c btl.Component, plan Plan) *Component {
	return &Component{Component: c, info: c.Info(), plan: plan}
}

// As renames the component, so that a registry can hold the wrapped one too. It returns c.
func (c *Component) As(name, summary string) *Component {
	c.info.Name, c.info.Summary = name, summary
	return c
}

// Info implements framework.Component.
func (c *Component) Info() framework.Info { return c.info }

// Unwrap returns the wrapped component.
func (c *Component) Unwrap() any { return c.Component }

// Open implements btl.Component.
func (c *Component) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	m := &module{
		up: env.Upcall, engine: env.Engine, dice: c.plan.Open(env.Identity.Proc.Rank, &c.Count),
		paths: map[framework.Incarnation]*inbound{},
	}
	env.Upcall = (*receiver)(m)
	var err error
	if m.Module, err = c.Component.Open(ctx, env); err != nil {
		return nil, err
	}
	return m, nil
}

// module wraps another module. The engine's lock guards all state.
type module struct {
	btl.Module
	up     btl.Receiver
	engine *progress.Engine
	dice   faults.Dice
	// The latest path from each peer.
	paths map[framework.Incarnation]*inbound
	// Paths with delayed frames.
	late   []*inbound
	frames int
}

// Unwrap returns the wrapped module.
func (m *module) Unwrap() any { return m.Module }

// Poll also delivers delayed frames that are due. Each path with delayed frames counts as an event,
// so that the caller does not sleep.
func (m *module) Poll() int {
	n := m.Module.Poll()
	for i := 0; i < len(m.late); i++ {
		p := m.late[i]
		n += p.tick()
		if p.empty() {
			m.late = append(m.late[:i], m.late[i+1:]...)
			p.isLate = false
			i--
		}
	}
	return n
}

// Connect implements btl.Module.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	e, err := m.Module.Connect(peer)
	if err != nil {
		return nil, err
	}
	if g, ok := framework.As[btl.Gatherer](e); ok {
		return &gatherer{endpoint{e, m}, g}, nil
	}
	return &endpoint{e, m}, nil
}

// PeerSource implements btl.PeerPoller if the wrapped module does.
func (m *module) PeerSource(peer framework.Incarnation) progress.Source {
	inner, ok := framework.As[btl.PeerPoller](m.Module)
	if !ok {
		return nil
	}
	s := inner.PeerSource(peer)
	if s == nil {
		return nil
	}
	return &source{s, m, peer}
}

// source polls one peer's path. It is not a btl.Peeker, which would return frames without faults.
type source struct {
	inner progress.Source
	m     *module
	peer  framework.Incarnation
}

func (s *source) Poll() int {
	n := s.inner.Poll()
	if p := s.m.paths[s.peer]; p != nil {
		n += p.tick()
	}
	return n
}

// endpoint injects blocking calls. It has only abilities that do not bypass them.
type endpoint struct {
	btl.Endpoint
	m *module
}

// blocks reports whether a call fails with "would block".
func (e *endpoint) blocks() bool {
	if !e.m.dice.Hit(e.m.dice.WouldBlock) {
		return false
	}
	e.m.engine.Nudge() // No event of the peer wakes the caller for a retry.
	return true
}

// Reserve implements btl.Endpoint.
func (e *endpoint) Reserve(n int, placement btl.Placement) []byte {
	if e.blocks() {
		return nil
	}
	return e.Endpoint.Reserve(n, placement)
}

// gatherer is an endpoint with btl.Gatherer.
type gatherer struct {
	endpoint
	inner btl.Gatherer
}

// Gather implements btl.Gatherer.
func (e *gatherer) Gather(header, payload []byte, c btl.LocalCompletion) bool {
	return !e.blocks() && e.inner.Gather(header, payload, c)
}
