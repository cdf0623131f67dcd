// Package mtlfault wraps an MTL and injects faults that the contract excludes: lost, duplicated, damaged and reordered messages, and modules that
// hang or crash the process. Protocols cannot handle them. `ferry matrix` must detect them.
//
// The package depends only on package mtl, wraps any module, and hides no optional interface of it (framework.As). mtltest.Memory has the faults
// that the contract permits.
package mtlfault

import (
	"context"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/faults"
	"github.com/ferrympi/ferry/mtl"
)

// Plan contains the faults and their frequencies. Control messages are unaffected. Synchronous sends are only damaged. A reordered message follows
// the next one, if that is sent before the next Poll.
type Plan = faults.Plan

// Component is an MTL component that wraps another one. Its Params and Probe are those of the other.
//
// It is not an mtl.Surveyor, because a fault does not select providers.
type Component struct {
	mtl.Component
	faults.Count
	info framework.Info
	plan Plan
}

// Wrap returns c with the faults of plan in all modules that it opens. The name and the summary permit to register c too.
func Wrap(c mtl.Component, name, summary string, plan Plan) *Component {
	info := c.Info()
	info.Name, info.Summary = name, summary
	return &Component{Component: c, info: info, plan: plan}
}

// Info implements framework.Component.
func (c *Component) Info() framework.Info { return c.info }

// Open implements mtl.Component.
func (c *Component) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	m := &module{dice: c.plan.Open(env.Identity.Proc.Rank, &c.Count)}
	var err error
	if m.Module, err = c.Component.Open(ctx, env); err != nil {
		return nil, err
	}
	return m, nil
}

// module wraps another module. The engine's lock guards it.
type module struct {
	mtl.Module
	dice      faults.Dice
	sendCount int
	// delayedSend sends the message that the next one overtakes; nil if there is none.
	delayedSend func() error
}

// Unwrap returns the wrapped module.
func (m *module) Unwrap() any { return m.Module }

// Send implements mtl.Module.
func (m *module) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (bool, error) {
	m.sendCount++
	if m.delayedSend != nil {
		defer m.sendDelayed()
	}
	return m.send(op, to, e, buf, mode)
}

// sendDelayed sends the delayed message, if any. It drops an error, because the sender's operation is already done.
func (m *module) sendDelayed() {
	if late := m.delayedSend; late != nil {
		m.delayedSend = nil
		_ = late()
	}
}

// send sends one message with faults.
func (m *module) send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (bool, error) {
	buf = m.dice.Damaged(buf)
	if mode == mtl.Synchronous {
		return m.Module.Send(op, to, e, buf, mode)
	}
	copies := m.dice.Copies()
	if copies == 0 {
		return true, nil
	}
	if m.delayedSend == nil && m.dice.Hit(m.dice.Reorder) {
		m.delayedSend = m.copySend(to, e, buf)
		return true, nil
	}
	if copies == 2 {
		if err := m.copySend(to, e, buf)(); err != nil {
			return false, err
		}
	}
	return m.Module.Send(op, to, e, buf, mode)
}

// copySend returns a function that sends a copy of a message without an owner.
func (m *module) copySend(to mtl.Endpoint, e mtl.Envelope, buf []byte) func() error {
	buf = slices.Clone(buf)
	return func() error {
		_, err := m.Module.Send(&mtl.Op{Owner: noOwner{}}, to, e, buf, mtl.Standard)
		return err
	}
}

// noOwner owns operations whose result is ignored.
type noOwner struct{}

func (noOwner) Done(*mtl.Op) {}

// Poll implements mtl.Module.
func (m *module) Poll() int {
	m.dice.Passed(m.sendCount)
	m.sendDelayed()
	return m.Module.Poll()
}

// Idle implements mtl.Module.
func (m *module) Idle() bool { return m.delayedSend == nil && m.Module.Idle() }
