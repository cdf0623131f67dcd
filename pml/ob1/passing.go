package ob1

import (
	"time"

	"github.com/ferrympi/ferry/pml/ob1/choose"
)

// Messages that pass each other. Both processes are at work, and what one of them chooses costs
// the other: so one chooses for both, from what both messages took.

// follows returns the way of a message of that kind that passes one of this process's, if
// that is the other process's to choose: one of two chooses for both. If each chose
// for itself, a way that is good where both take it would seem bad to who takes it first.
func (p *proc) follows(k kind) (w choose.Way, ok bool) {
	if k.depth != passing || p.Life.Nonce > p.m.env.Self.Nonce {
		return 0, false
	}
	a := &p.parts[k.memory][k.depth-depthsSent][k.class]
	if a.fresh == 0 {
		return 0, false
	}
	a.fresh--
	switch a.lines {
	case nearLines:
		return choose.Frames, true
	case wideLines:
		return choose.Wide, true
	case pastLines:
		return choose.Streamed, true
	}
	return choose.Read, true
}

// passed is a message that is whole, and has passed one of this process's that is not: what
// both take counts.
type passed struct {
	of    *learnt // nil: there is none
	way   choose.Way
	bytes int64
	from  time.Duration
	clean bool
}

// settle says what a message and the one that it has passed took.
func (in *incoming) settle(now time.Duration) {
	h := in.held
	in.held.of = nil
	took := int64(now - h.from)
	h.of.Took(h.way, h.bytes, took, h.clean && h.bytes < mostGBs*took)
}

// sent completes a send that had an RTS. Lock held.
func (r *request) sent() {
	p := r.p.proc
	r.finish()
	if in := &p.incoming; in.held.of != nil && !p.offering() {
		in.settle(p.m.now())
	}
}
