package btlfault

import (
	"errors"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// receiver is a module as the module behind it calls upwards.
type receiver module

// Unwrap has framework.As find the abilities of the receiver behind.
func (r *receiver) Unwrap() any { return r.up }

// Accept implements btl.Receiver.
func (r *receiver) Accept(peer framework.Life) btl.Inbound {
	m := (*module)(r)
	if old := m.paths[peer]; old != nil {
		old.flush() // it came before whatever the new path brings
	}
	p := &inbound{m: m, peer: peer, up: m.up.Accept(peer)}
	m.paths[peer] = p
	return p
}

// PathDown implements btl.Receiver.
func (r *receiver) PathDown(peer framework.Life, err error) {
	if errors.Is(err, btl.ErrNeverOpened) || r.ends(peer, err) {
		r.up.PathDown(peer, err)
	}
}

// PeerGone implements btl.Receiver.
func (r *receiver) PeerGone(peer framework.Life, err error) {
	if r.ends(peer, err) {
		r.up.PeerGone(peer, err)
	}
}

// ends hands up what is held back of a path that ends, and reports whether that has
// not been said.
func (r *receiver) ends(peer framework.Life, err error) bool {
	p := r.paths[peer]
	if p == nil {
		return true
	}
	p.flush()
	if p.dead != nil {
		return false
	}
	p.dead = err
	return true
}

// Limits implements btl.Receiver.
func (r *receiver) Limits(peer framework.Life, eager, frame int) {
	(*module)(r).up.Limits(peer, eager, frame)
}

// inbound takes the frames of one path.
type inbound struct {
	m    *module
	peer framework.Life
	up   btl.Inbound

	held   [][]byte // frames that are late, and those behind them
	behind []byte   // the frame that the next one overtakes, or nil
	wait   int      // polls until all that is kept here goes up
	late   bool     // in module.late
	dead   error    // why nothing more goes up
}

var errKilled = errors.New("the path was ended by fault injection")

// Frame implements btl.Inbound.
func (p *inbound) Frame(f []byte) error {
	if p.dead != nil {
		return p.dead
	}
	m := p.m
	m.frames++
	if m.dice.After(m.dice.KillAfter, m.frames-1) {
		return errKilled
	}
	m.dice.Passed(m.frames)
	f = m.dice.Damaged(f)
	for range m.dice.Copies() {
		if err := p.order(f); err != nil {
			return err
		}
	}
	return nil
}

// order has a frame overtake the one before, or be overtaken.
func (p *inbound) order(f []byte) error {
	if p.behind != nil {
		overtaken := p.behind
		p.behind = nil
		if err := p.deliver(f); err != nil {
			return err
		}
		return p.deliver(overtaken)
	}
	if p.m.dice.Hit(p.m.dice.Reorder) {
		p.postpone()
		p.behind = slices.Clone(f)
		return nil
	}
	return p.deliver(f)
}

// deliver hands a frame up, now or late.
func (p *inbound) deliver(f []byte) error {
	late := p.m.dice.Hit(p.m.dice.Delay)
	if len(p.held) == 0 && !late {
		return p.up.Frame(f)
	}
	p.postpone()
	p.held = append(p.held, slices.Clone(f))
	return nil
}

// postpone comes before the first thing that is kept here.
func (p *inbound) postpone() {
	if p.empty() {
		p.wait = 1 + p.m.dice.IntN(p.m.dice.MaxDelay)
	}
	if !p.late {
		p.late = true
		p.m.late = append(p.m.late, p)
	}
}

func (p *inbound) empty() bool { return len(p.held) == 0 && p.behind == nil }

// tick counts one poll, and hands up what is due. Its result is the number of
// things that happened; waiting is one.
func (p *inbound) tick() int {
	if p.empty() {
		return 0
	}
	if p.wait--; p.wait > 0 {
		return 1
	}
	return p.flush()
}

// flush hands up what is held back.
func (p *inbound) flush() (n int) {
	held := p.held
	if p.behind != nil {
		held = append(held, p.behind)
	}
	p.held, p.behind = nil, nil
	for _, f := range held {
		if p.dead != nil {
			break
		}
		if err := p.up.Frame(f); err != nil {
			// The module behind learns of it with the next frame.
			p.dead = &framework.TransportError{Component: "btl fault", Op: "receive", Err: err}
			p.m.up.PathDown(p.peer, p.dead)
		}
		n++
	}
	return n
}
