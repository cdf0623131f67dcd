package btlfault

import (
	"errors"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// receiver is the btl.Receiver of the wrapped module.
type receiver module

// Unwrap returns the receiver of the protocol, for framework.As.
func (r *receiver) Unwrap() any { return r.up }

// Accept implements btl.Receiver.
func (r *receiver) Accept(peer framework.Incarnation) btl.Inbound {
	m := (*module)(r)
	if old := m.paths[peer]; old != nil {
		old.flush() // Precedes the frames of the new path.
	}
	p := &inbound{m: m, peer: peer, up: m.up.Accept(peer)}
	m.paths[peer] = p
	return p
}

// PathDown implements btl.Receiver.
func (r *receiver) PathDown(peer framework.Incarnation, err error) {
	if errors.Is(err, btl.ErrNeverOpened) || r.endPath(peer, err) {
		r.up.PathDown(peer, err)
	}
}

// LinkChanged implements btl.Receiver.
func (r *receiver) LinkChanged(peer framework.Incarnation, note string) { r.up.LinkChanged(peer, note) }

// Card implements btl.Receiver.
func (r *receiver) Card(peer framework.Incarnation) (framework.Peer, bool) { return r.up.Card(peer) }

// PeerChanged implements btl.Receiver.
func (r *receiver) PeerChanged(ev framework.PeerEvent) {
	if r.endPath(ev.Peer, ev.Err) {
		r.up.PeerChanged(ev)
	}
}

// endPath delivers the delayed frames of an ending path and reports whether its end is not yet
// reported.
func (r *receiver) endPath(peer framework.Incarnation, err error) bool {
	p := r.paths[peer]
	if p == nil {
		return true
	}
	p.flush()
	if p.endErr != nil {
		return false
	}
	p.endErr = err
	return true
}

// Limits implements btl.Receiver.
func (r *receiver) Limits(peer framework.Incarnation, eager, frame int) {
	(*module)(r).up.Limits(peer, eager, frame)
}

// inbound receives the frames of one path.
type inbound struct {
	m    *module
	peer framework.Incarnation
	up   btl.Inbound

	// Delayed frames and their successors.
	delayed [][]byte
	// Frame to deliver after the next one, or nil.
	overtaken []byte
	// Polls until the delivery of all frames held here.
	pollsLeft int
	// Listed in module.late.
	isLate bool
	// Reason of the end of the path, or nil.
	endErr error
}

var errKilled = errors.New("the path was ended by fault injection")

// Place implements btl.Inbound. All payloads arrive in frames, into which faults are injected.
func (p *inbound) Place([]byte, int) []byte { return nil }

// Placed implements btl.Inbound. No payload is placed.
func (p *inbound) Placed([]byte, int) error { return nil }

// Frame implements btl.Inbound.
func (p *inbound) Frame(f []byte) error {
	if p.endErr != nil {
		return p.endErr
	}
	m := p.m
	m.frames++
	if m.dice.After(m.dice.KillAfter, m.frames-1) {
		return errKilled
	}
	m.dice.Passed(m.frames)
	f = m.dice.Damaged(f)
	for range m.dice.Copies() {
		if err := p.reorder(f); err != nil {
			return err
		}
	}
	return nil
}

// reorder delivers a frame before or after its predecessor.
func (p *inbound) reorder(f []byte) error {
	if p.overtaken != nil {
		previous := p.overtaken
		p.overtaken = nil
		if err := p.deliver(f); err != nil {
			return err
		}
		return p.deliver(previous)
	}
	if p.m.dice.Hit(p.m.dice.Reorder) {
		p.postpone()
		p.overtaken = slices.Clone(f)
		return nil
	}
	return p.deliver(f)
}

// deliver delivers a frame at once or delays it.
func (p *inbound) deliver(f []byte) error {
	isDelayed := p.m.dice.Hit(p.m.dice.Delay)
	if len(p.delayed) == 0 && !isDelayed {
		return p.up.Frame(f)
	}
	p.postpone()
	p.delayed = append(p.delayed, slices.Clone(f))
	return nil
}

// postpone starts a delay. Call it before holding a frame.
func (p *inbound) postpone() {
	if p.empty() {
		p.pollsLeft = 1 + p.m.dice.IntN(p.m.dice.MaxDelay)
	}
	if !p.isLate {
		p.isLate = true
		p.m.late = append(p.m.late, p)
	}
}

func (p *inbound) empty() bool { return len(p.delayed) == 0 && p.overtaken == nil }

// tick counts one poll and delivers due frames. It returns the number of events; a pending delay is
// one.
func (p *inbound) tick() int {
	if p.empty() {
		return 0
	}
	if p.pollsLeft--; p.pollsLeft > 0 {
		return 1
	}
	return p.flush()
}

// flush delivers all frames held here.
func (p *inbound) flush() (n int) {
	frames := p.delayed
	if p.overtaken != nil {
		frames = append(frames, p.overtaken)
	}
	p.delayed, p.overtaken = nil, nil
	for _, f := range frames {
		if p.endErr != nil {
			break
		}
		if err := p.up.Frame(f); err != nil {
			// The wrapped module receives the error with the next frame.
			p.endErr = &framework.TransportError{Component: "btl fault", Op: "receive", Err: err}
			p.m.up.PathDown(p.peer, p.endErr)
		}
		n++
	}
	return n
}
