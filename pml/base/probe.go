package base

import (
	"context"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Message is a message that a matched probe has claimed. It counts as pending.
type Message interface {
	// Receive starts the receive of the message, and counts it instead of the message. It is
	// called at most once, with the engine's lock held.
	Receive(buf pml.Buffer) *pml.Request
	// Drop drops the message. A synchronous send of it fails. It is called at most once,
	// instead of Receive.
	Drop()
}

// Found is the result of a probe.
type Found struct {
	Status pml.Status
	// Message is the claimed message, nil without a claim.
	Message Message
	// OK is set if a message was found.
	OK bool
}

// Prober is the part of a PML's communicator that Probes needs. The caller holds the engine's lock. The
// methods may release it temporarily.
type Prober interface {
	// Find searches once for a message that a receive would match now. With claim, the message is
	// removed from matching. An error means that no message can come, or that ctx has ended.
	Find(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (Found, error)
	// Pause waits until another Find is useful, or returns the cause of ctx. rounds is the number
	// of fruitless calls of Find.
	Pause(ctx context.Context, rounds int) error
}

// Probes implements the probes of pml.Comm with a Prober.
type Probes struct {
	engine *progress.Engine
	prober Prober
}

// NewProbes returns Probes over p.
func NewProbes(e *progress.Engine, p Prober) Probes { return Probes{e, p} }

// Iprobe implements pml.Comm.
func (p *Probes) Iprobe(src, tag int, plane pml.Plane) (pml.Status, bool, error) {
	f, err := p.find(src, tag, plane, false)
	return f.Status, f.OK, err
}

// Improbe implements pml.Comm.
func (p *Probes) Improbe(src, tag int, plane pml.Plane) (pml.Claimed, pml.Status, bool, error) {
	f, err := p.find(src, tag, plane, true)
	return p.claimed(&f), f.Status, f.OK, err
}

// Probe implements pml.Comm.
func (p *Probes) Probe(ctx context.Context, src, tag int, plane pml.Plane) (pml.Status, error) {
	f, err := p.await(ctx, src, tag, plane, false)
	return f.Status, err
}

// Mprobe implements pml.Comm.
func (p *Probes) Mprobe(ctx context.Context, src, tag int, plane pml.Plane) (pml.Claimed, pml.Status, error) {
	f, err := p.await(ctx, src, tag, plane, true)
	return p.claimed(&f), f.Status, err
}

func (p *Probes) find(src, tag int, plane pml.Plane, claim bool) (Found, error) {
	p.engine.Lock()
	defer p.engine.Release()
	f, err := p.prober.Find(nil, src, tag, plane, claim)
	return f.orNone(), err
}

func (p *Probes) await(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (Found, error) {
	p.engine.Lock()
	defer p.engine.Release()
	for rounds := 1; ; rounds++ {
		f, err := p.prober.Find(ctx, src, tag, plane, claim)
		if !f.OK && err == nil {
			err = p.prober.Pause(ctx, rounds)
		}
		if f.OK || err != nil {
			return f.orNone(), err
		}
	}
}

func (f Found) orNone() Found {
	if !f.OK {
		f.Status = pml.NoMessage()
	}
	return f
}

func (p *Probes) claimed(f *Found) pml.Claimed {
	if !f.OK {
		return nil
	}
	return &Claimed{p.engine, f.Message}
}

// Claimed implements pml.Claimed.
type Claimed struct {
	engine *progress.Engine
	// msg is nil once the message is received or dropped.
	msg Message
}

// NewClaimed returns a Claimed for a message that Probes did not claim.
func NewClaimed(e *progress.Engine, msg Message) *Claimed { return &Claimed{e, msg} }

// MakeClaimed is NewClaimed without an allocation.
func MakeClaimed(e *progress.Engine, msg Message) Claimed { return Claimed{e, msg} }

// Start is Irecv with the engine's lock held.
func (k *Claimed) Start(buf pml.Buffer) (*pml.Request, error) {
	if k.msg == nil {
		return nil, framework.ErrClosed
	}
	msg := k.msg
	k.msg = nil
	return msg.Receive(buf), nil
}

// Drop implements pml.Claimed.
func (k *Claimed) Drop() {
	if msg := k.msg; msg != nil {
		k.msg = nil // Before Drop, because the PML may reuse k.
		msg.Drop()
	}
}

// Irecv implements pml.Claimed.
func (k *Claimed) Irecv(buf pml.Buffer) (*pml.Request, error) {
	k.engine.Lock()
	defer k.engine.Release()
	return k.Start(buf)
}

// Recv implements pml.Claimed. The message has matched, so that the end of ctx has no effect.
func (k *Claimed) Recv(_ context.Context, buf pml.Buffer) (pml.Status, error) {
	k.engine.Lock()
	defer k.engine.Release()
	r, err := k.Start(buf)
	if err != nil {
		return pml.NoMessage(), err
	}
	return r.Conclude(nil)
}
