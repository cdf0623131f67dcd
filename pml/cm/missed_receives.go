package cm

import "github.com/ferrympi/ferry/pml"

// A message that a process had sent before its end may arrive after a receive for it has
// failed. A later receive that would match this message must fail too. Otherwise each later
// receive would get the message of an earlier one. Receives from any source are not recorded.

// missedReceives records the failed receives and probes of one member.
type missedReceives map[missedKey]struct{}

type missedKey struct {
	plane pml.Plane
	tag   int
}

// maxMissed bounds the records of one member. Beyond it, all receives from the member fail.
const maxMissed = 256

// recordMissed records that a receive or probe with a tag has failed.
func (p *peer) recordMissed(plane pml.Plane, tag int) {
	if p.missedRecvs == nil {
		p.missedRecvs = missedReceives{}
	}
	if len(p.missedRecvs) >= maxMissed {
		tag = pml.AnyTag
	}
	p.missedRecvs[missedKey{plane, tag}] = struct{}{}
}

// isMissed reports whether a receive might match the message of a failed one.
func (p *peer) isMissed(plane pml.Plane, tag int) bool {
	if p.missedRecvs == nil {
		return false
	}
	if tag == pml.AnyTag {
		for k := range p.missedRecvs {
			if k.plane == plane {
				return true
			}
		}
		return false
	}
	_, same := p.missedRecvs[missedKey{plane, tag}]
	_, all := p.missedRecvs[missedKey{plane, pml.AnyTag}]
	return same || all
}

// repeatMissed returns the error of a receive or probe that might match the message of a failed one, or nil.
func (c *comm) repeatMissed(src, tag int, plane pml.Plane) error {
	if src == pml.AnySource {
		return nil
	}
	if p := c.peersByRank.Get(src); p == nil || !p.isMissed(plane, tag) {
		return nil
	}
	return c.recvFailure(src, plane)
}

// recordMissed records a receive from one member whose message cannot come.
func (r *request) recordMissed() {
	if r.p != nil && !r.isSend {
		r.p.recordMissed(r.plane, r.tag)
	}
}
