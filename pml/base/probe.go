package base

import (
	"context"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Message is a message that a matched probe has claimed: it counts as pending.
type Message interface {
	// Receive starts its receive, which counts in its place. It is called once, with the
	// engine's lock held.
	Receive(buf pml.Buffer) *pml.Request
	// Drop ends it in place of Receive. A synchronous send of it fails.
	Drop()
}

// Found is what a probe has found.
type Found struct {
	Status  pml.Status
	Message Message // that was claimed; nil without a claim
	OK      bool    // there is one
}

// Prober is what a PML's communicator does for Probes. Calls come with the engine's lock
// held, and may release it meanwhile.
type Prober interface {
	// Find looks once for a message that a receive would get now. With claim it is taken
	// out of matching. An error says why no message can come, or that ctx has ended.
	Find(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (Found, error)
	// Pause waits until Find may find more, or until ctx ends, which is the error. rounds
	// have found nothing.
	Pause(ctx context.Context, rounds int) error
}

// Probes are the probes of pml.Comm.
type Probes struct {
	engine *progress.Engine
	prober Prober
}

// NewProbes returns those by way of p.
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
	msg    Message // nil once it is received
}

// NewClaimed returns a message that was claimed otherwise than by Probes.
func NewClaimed(e *progress.Engine, msg Message) *Claimed { return &Claimed{e, msg} }

// MakeClaimed is NewClaimed for a caller that stores the result.
func MakeClaimed(e *progress.Engine, msg Message) Claimed { return Claimed{e, msg} }

// Start is Irecv for a caller who holds the engine's lock.
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
		k.msg = nil // first: the PML may use k again
		msg.Drop()
	}
}

// Irecv implements pml.Claimed.
func (k *Claimed) Irecv(buf pml.Buffer) (*pml.Request, error) {
	k.engine.Lock()
	defer k.engine.Release()
	return k.Start(buf)
}

// Recv implements pml.Claimed. The message has matched: the receive completes, or fails
// with the peer, whatever becomes of the context.
func (k *Claimed) Recv(_ context.Context, buf pml.Buffer) (pml.Status, error) {
	k.engine.Lock()
	defer k.engine.Release()
	r, err := k.Start(buf)
	if err != nil {
		return pml.NoMessage(), err
	}
	return r.Conclude(nil)
}
