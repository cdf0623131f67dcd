package btlfault

import (
	"errors"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// receiver is a module as the module behind it calls upwards.
type receiver module

// Accept implements btl.Receiver.
func (r *receiver) Accept(peer framework.ProcID, nonce uint64) btl.Inbound {
	m := (*module)(r)
	if old := m.paths[peer]; old != nil {
		old.flush() // it came before whatever the new path brings
	}
	p := &inbound{m: m, peer: peer, nonce: nonce, up: m.up.Accept(peer, nonce)}
	m.paths[peer] = p
	return p
}

// Lost implements btl.Receiver.
func (r *receiver) Lost(peer framework.ProcID, nonce uint64, err error) {
	m := (*module)(r)
	if p := m.paths[peer]; p != nil && p.nonce == nonce { // not a life before
		p.flush()
		if p.dead != nil {
			return // this has been said
		}
		p.dead = err
	}
	m.up.Lost(peer, nonce, err)
}

// Limits implements btl.Receiver.
func (r *receiver) Limits(peer framework.ProcID, nonce uint64, eager, frame int) {
	(*module)(r).up.Limits(peer, nonce, eager, frame)
}

// inbound takes the frames of one path.
type inbound struct {
	m     *module
	peer  framework.ProcID
	nonce uint64
	up    btl.Inbound

	held [][]byte // frames that are late, and those behind them
	wait int      // polls until the first of held goes up
	late bool     // in module.late
	dead error    // why nothing more goes up
}

var errKilled = errors.New("the path was ended by fault injection")

// Frame implements btl.Inbound.
func (p *inbound) Frame(f []byte) error {
	if p.dead != nil {
		return p.dead
	}
	m, plan := p.m, &p.m.c.plan
	m.frames++
	if plan.KillAfter > 0 && m.frames > plan.KillAfter {
		m.c.injected.Add(1)
		return errKilled
	}
	if m.hit(plan.Drop) {
		return nil
	}
	if m.hit(plan.Corrupt) {
		f = slices.Clone(f)
		f[m.rng.IntN(min(len(f), 64))] ^= 1 << m.rng.IntN(8)
	}
	copies := 1
	if m.hit(plan.Duplicate) {
		copies = 2
	}
	for range copies {
		late := m.hit(plan.Delay)
		if len(p.held) == 0 && !late {
			if err := p.up.Frame(f); err != nil {
				return err
			}
			continue
		}
		if len(p.held) == 0 {
			p.wait = 1 + m.rng.IntN(plan.MaxDelay)
		}
		p.held = append(p.held, slices.Clone(f))
		if !p.late {
			p.late = true
			m.late = append(m.late, p)
		}
	}
	return nil
}

// tick counts one poll, and hands up what is due. Its result is the number of
// things that happened; waiting is one.
func (p *inbound) tick() int {
	if len(p.held) == 0 {
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
	p.held = nil
	for _, f := range held {
		if p.dead != nil {
			break
		}
		if err := p.up.Frame(f); err != nil {
			// The module behind learns of it with the next frame.
			p.dead = &framework.TransportError{Component: "btl fault", Op: "receive", Err: err}
			p.m.up.Lost(p.peer, p.nonce, p.dead)
		}
		n++
	}
	return n
}
