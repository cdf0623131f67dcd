package tcp

import (
	"fmt"
	"time"
)

// Frames that come before their turn: others that come by another link belong before
// them. They wait in their socket, so that nothing is copied for order. If the one that
// is due does not come, as when the link that carried it was lost and it goes again
// behind them, they are put aside in memory: at most the peer's window.

// earlyPatience is how long nothing that is due may come before that.
const earlyPatience = 20 * time.Millisecond

// recheck looks again at the links whose next frame was not due.
func (p *pair) recheck() {
	for _, l := range p.links[:len(p.path.links)] {
		if l == nil || !l.early {
			continue
		}
		if p.hasty || p.path.arrive(l.h.number) != early {
			l.early = false
			l.list()
		}
	}
}

// hurry puts frames aside if those that are due have not come for a while.
func (p *pair) hurry(now time.Duration) {
	for _, l := range p.links[:len(p.path.links)] {
		if l == nil || !l.early {
			continue
		}
		if since := max(l.earlySince, p.progress); now < since+earlyPatience {
			p.m.at(since + earlyPatience)
		} else {
			p.hasty = true
		}
	}
	if p.hasty {
		p.recheck()
	}
}

// mostDeclared bounds the memory for frames that a peer sends out of turn, however large the window that it
// declares. A process with a larger window itself takes as much as that. Senders stay within the bound.
const mostDeclared = 64 << 20

// stashLimit returns the bytes of frames that may be put aside: the peer's window, within mostDeclared, and one frame.
func (p *pair) stashLimit() int {
	return min(p.window(), max(p.m.window, mostDeclared)) + p.m.frame
}

// keep puts a frame aside.
func (p *pair) keep(h header, b []byte) {
	if _, here := p.stash[h.number]; here || p.path.arrive(h.number) == old {
		return
	}
	if p.stashed += h.size + frameRecord; p.stashed > p.stashLimit() {
		// Some numbers are wrong, and nothing tells which. What is not confirmed comes again
		// by new links.
		p.path.damages++
		p.stash, p.stashed = map[uint64]stashed{}, 0
		for _, l := range p.links[:len(p.path.links)] {
			if l != nil {
				l.spoil(fmt.Errorf("%w: more than the window of %d bytes arrived out of turn", errDamaged, p.stashLimit()))
			}
		}
		return
	}
	p.stash[h.number] = stashed{h, b}
	p.unstash() // its turn may have come meanwhile
}

// unstash hands up what is due now of what was put aside.
func (p *pair) unstash() {
	for len(p.stash) > 0 && !p.over {
		s, ok := p.stash[p.path.due]
		if !ok {
			break
		}
		delete(p.stash, p.path.due)
		p.stashed -= s.h.size + frameRecord
		p.received(headerSize + s.h.size)
		p.place(s)
	}
	if p.over {
		return
	}
	if len(p.stash) == 0 {
		p.hasty = false
	}
	p.recheck()
}

// place hands up a whole frame: to where its payload belongs, if somebody knows.
func (p *pair) place(s stashed) {
	if k := s.h.gathered; k > 0 && p.placer != nil {
		if dst := p.placer.Place(s.bytes[:k], s.h.size-k); dst != nil {
			copy(dst, s.bytes[k:])
			p.took(p.placer.Placed(s.bytes[:k], s.h.size-k))
			return
		}
	}
	p.take(s.h, s.bytes)
}
