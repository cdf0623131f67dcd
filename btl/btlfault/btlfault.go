// Package btlfault wraps a BTL and injects faults at the contract: frames that
// come late, reservations that would block, and, beyond what the contract
// allows, frames that are lost, doubled, damaged or out of order, paths that end,
// and modules that hang or take the process with them. Tests of protocols and of
// `ferry matrix` stand on it.
//
// It sees only what package btl declares, so that it wraps any module, and hides
// no optional ability of it (framework.As) but those by which frames would pass it:
// btl.Peeker, btl.Placer and btl.ShortSender. Which faults happen
// follows from a seed and from what the program does, never from a clock.
package btlfault

import (
	"context"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/faults"
	"github.com/ferrympi/ferry/progress"
)

// Plan says which faults happen, and how often. Of those that break the contract a
// protocol answers with an error, or does not see them; it never crashes, and hands up
// no message twice.
type Plan = faults.Plan

// Component wraps another BTL component. It has that component's Params, Probe and Info,
// and so takes its place in a registry, unless As gives it a place of its own.
type Component struct {
	btl.Component
	faults.Count
	info framework.Info
	plan Plan
}

// Wrap returns c with the faults of plan in all modules that it opens.
func Wrap(c btl.Component, plan Plan) *Component {
	return &Component{Component: c, info: c.Info(), plan: plan}
}

// As gives the component a name of its own, so that a registry can have the other
// one, too. It returns c.
func (c *Component) As(name, summary string) *Component {
	c.info.Name, c.info.Summary = name, summary
	return c
}

// Info implements framework.Component.
func (c *Component) Info() framework.Info { return c.info }

// Unwrap returns the component behind.
func (c *Component) Unwrap() any { return c.Component }

// Open implements btl.Component.
func (c *Component) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	m := &module{
		up: env.Upcall, engine: env.Engine, dice: c.plan.Open(env.Identity.Proc.Rank, &c.Count),
		paths: map[framework.Life]*inbound{},
	}
	env.Upcall = (*receiver)(m)
	var err error
	if m.Module, err = c.Component.Open(ctx, env); err != nil {
		return nil, err
	}
	return m, nil
}

// module is a module behind which another one works. All state is guarded by
// the engine's lock.
type module struct {
	btl.Module
	up     btl.Receiver
	engine *progress.Engine
	dice   faults.Dice
	paths  map[framework.Life]*inbound // the last one from each peer
	late   []*inbound                  // that hold frames back
	frames int
}

// Unwrap returns the module behind.
func (m *module) Unwrap() any { return m.Module }

// Poll also hands up what was held back long enough. While something is held
// back there is always something happening, so that nobody sleeps over it.
func (m *module) Poll() int {
	n := m.Module.Poll()
	for i := 0; i < len(m.late); i++ {
		p := m.late[i]
		n += p.tick()
		if p.empty() {
			m.late = append(m.late[:i], m.late[i+1:]...)
			p.late = false
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

// PeerSource implements btl.PeerPoller where the module behind does.
func (m *module) PeerSource(peer framework.Life) progress.Source {
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

// source polls one peer's path. It is not a btl.Peeker: a caller that peeks at a frame would see
// it without its faults.
type source struct {
	inner progress.Source
	m     *module
	peer  framework.Life
}

func (s *source) Poll() int {
	n := s.inner.Poll()
	if p := s.m.paths[s.peer]; p != nil {
		n += p.tick()
	}
	return n
}

// endpoint sends. It has only the abilities that see its faults.
type endpoint struct {
	btl.Endpoint
	m *module
}

// blocks reports whether a call is to answer "would block".
func (e *endpoint) blocks() bool {
	if !e.m.dice.Hit(e.m.dice.WouldBlock) {
		return false
	}
	e.m.engine.Nudge() // no progress of the peer will wake who tries again
	return true
}

// Reserve implements btl.Endpoint.
func (e *endpoint) Reserve(n int) []byte {
	if e.blocks() {
		return nil
	}
	return e.Endpoint.Reserve(n)
}

// gatherer is an endpoint in front of one that can gather.
type gatherer struct {
	endpoint
	inner btl.Gatherer
}

// Gather implements btl.Gatherer.
func (e *gatherer) Gather(header, payload []byte, c btl.LocalCompletion) bool {
	return !e.blocks() && e.inner.Gather(header, payload, c)
}
