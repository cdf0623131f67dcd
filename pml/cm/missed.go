package cm

import "github.com/ferrympi/ferry/pml"

// What a process has sent before its end may lie in the network for a while, or on its way
// through a socket. A receive that was told meanwhile that its message won't come has no
// message; the next receive that would match it must not get it either, as it would be one
// message behind from then on. So who has been told once is told again.
//
// A receive from any source asks nobody in particular, and is not told of.

// missed are receives and probes, by plane and tag, that were told that nothing comes.
type missed map[missedKey]struct{}

type missedKey struct {
	plane pml.Plane
	tag   int
}

// mostMissed bounds what is kept of one member: beyond that nothing is received from it.
const mostMissed = 256

// miss notes that a receive or a probe with that tag is told that nothing comes.
func (p *peer) miss(plane pml.Plane, tag int) {
	if p.missed == nil {
		p.missed = missed{}
	}
	if len(p.missed) >= mostMissed {
		tag = pml.AnyTag
	}
	p.missed[missedKey{plane, tag}] = struct{}{}
}

// misses reports whether a receive might get the message of one that was told.
func (p *peer) misses(plane pml.Plane, tag int) bool {
	if p.missed == nil {
		return false
	}
	if tag == pml.AnyTag {
		for k := range p.missed {
			if k.plane == plane {
				return true
			}
		}
		return false
	}
	_, same := p.missed[missedKey{plane, tag}]
	_, all := p.missed[missedKey{plane, pml.AnyTag}]
	return same || all
}

// told returns why a receive or a probe gets nothing, where another one was told so.
func (c *comm) told(src, tag int, plane pml.Plane) error {
	if src == pml.AnySource {
		return nil
	}
	if p := c.peers.Get(src); p == nil || !p.misses(plane, tag) {
		return nil
	}
	return c.cannotCome(src, plane)
}

// miss is peer.miss for a request that ends because its message can't come.
func (r *request) miss() {
	if r.p != nil && !r.send {
		r.p.miss(r.plane, r.tag)
	}
}
