// Package mtlfault wraps an MTL and injects faults beyond what the contract allows:
// messages that are lost, doubled, damaged or out of order, and modules that hang
// or take the process with them. A protocol can't answer them; `ferry matrix` must
// find them.
//
// It sees only what package mtl declares, so that it wraps any module, and hides
// no optional ability of one (framework.As). Faults that a network may have are
// those of mtltest.Memory.
package mtlfault

import (
	"context"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/faults"
	"github.com/ferrympi/ferry/mtl"
)

// Plan says which faults happen, and how often. Control messages are spared, and so
// are synchronous sends, except for damage; a message goes behind the next one if that
// comes before the next Poll.
type Plan = faults.Plan

// Component is an MTL component behind which another one works. Its Params and
// Probe are the other one's.
//
// It is not an mtl.Surveyor: a fault is a way to test with, whatever is below, and
// no list of ways.
type Component struct {
	mtl.Component
	faults.Count
	info framework.Info
	plan Plan
}

// Wrap returns c with the faults of plan in all modules that it opens, and with a
// name and a summary of its own, so that a registry can have c, too.
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

// module is a module behind which another one works. All state is guarded by the
// engine's lock.
type module struct {
	mtl.Module
	dice  faults.Dice
	sends int
	late  func() error // sends the message that the next one overtakes; nil if there is none
}

// Unwrap returns the module behind.
func (m *module) Unwrap() any { return m.Module }

// Send implements mtl.Module.
func (m *module) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (bool, error) {
	m.sends++
	if m.late != nil {
		defer m.overtaken()
	}
	return m.send(op, to, e, buf, mode)
}

// overtaken sends a message that was overtaken, if there is one. An error is nobody's:
// its sender was told that it is on its way.
func (m *module) overtaken() {
	if late := m.late; late != nil {
		m.late = nil
		_ = late()
	}
}

// send sends one message, or does not.
func (m *module) send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (bool, error) {
	buf = m.dice.Damaged(buf)
	if mode == mtl.Synchronous {
		return m.Module.Send(op, to, e, buf, mode)
	}
	copies := m.dice.Copies()
	if copies == 0 {
		return true, nil
	}
	if m.late == nil && m.dice.Hit(m.dice.Reorder) {
		m.late = m.copy(to, e, buf)
		return true, nil
	}
	if copies == 2 {
		if err := m.copy(to, e, buf)(); err != nil {
			return false, err
		}
	}
	return m.Module.Send(op, to, e, buf, mode)
}

// copy returns what sends a copy of a message, whose end concerns nobody.
func (m *module) copy(to mtl.Endpoint, e mtl.Envelope, buf []byte) func() error {
	buf = slices.Clone(buf)
	return func() error {
		_, err := m.Module.Send(&mtl.Op{Owner: nobody{}}, to, e, buf, mtl.Standard)
		return err
	}
}

// nobody waits for an operation.
type nobody struct{}

func (nobody) Done(*mtl.Op) {}

// Poll implements mtl.Module.
func (m *module) Poll() int {
	m.dice.Passed(m.sends)
	m.overtaken()
	return m.Module.Poll()
}

// Idle implements mtl.Module.
func (m *module) Idle() bool { return m.late == nil && m.Module.Idle() }
