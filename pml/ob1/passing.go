package ob1

import (
	"time"

	"github.com/ferrympi/ferry/pml/ob1/choose"
)

// Large messages that pass each other, one each way or in windows. Both processes are at work,
// and what one of them chooses costs the other: so one chooses for both, from what two messages
// took that passed each other, or from what comes in a window, with what goes out between. If
// each chose for itself, a way that is good where both take it would seem bad to who takes it first.

// leads returns the way of a message of that kind, if the process that sends it is the one that
// chooses: that with the smaller nonce. It has said by which way it takes the next message
// of this process.
func (p *proc) leads(k kind) (w choose.Way, ok bool) {
	if p.Life.Nonce > p.m.env.Self.Nonce {
		return 0, false
	}
	sent := alone
	if k.depth == bothWays {
		sent = window
	}
	a := &p.parts[k.memory][sent][k.class]
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

// passed is a message that is whole, and has passed one of this process's that is not.
type passed struct {
	of    *learnt // nil: there is none
	send  uint64  // handle of the message that it has passed
	way   choose.Way
	bytes int64
	from  time.Duration
	whole time.Duration
	clean bool
}

// tookBoth is how long two messages took that passed each other: one from from to whole, and the other
// one to end. One that took more than twice as long as the other waited for its receive, and says
// nothing.
func tookBoth(from, whole, end time.Duration) time.Duration {
	if end-from > 2*(whole-from) {
		end = whole
	}
	return end - from
}

// learn says what a message and the one that it has passed took. That one has ended.
func (in *incoming) learn(end time.Duration) {
	h := in.held
	in.held.of = nil
	h.took(tookBoth(h.from, h.whole, end))
}

// took says what a message took.
func (h *passed) took(d time.Duration) {
	h.of.Took(h.way, h.bytes, int64(d), h.clean)
}

// sent completes a send that had an RTS. Lock held.
func (r *request) sent() {
	p, handle := r.p.proc, r.handle()
	r.finish()
	if in := &p.incoming; in.held.of != nil && in.held.send == handle {
		in.learn(p.m.now())
	}
}
