package ob1

import (
	"github.com/ferrympi/ferry/pml"
)

// spot is a blocking receive from one peer while its caller holds the engine's
// lock and polls that peer's path: the usual one, where the message is about to
// come. It needs no request, no place in a queue and no completion, because
// nobody else can post or look meanwhile. If the message does not come soon, or
// another goroutine wants the lock, the receive is posted like any other.
type spot struct {
	waiting bool
	stop    bool // the spot has the message, or will not get it
	got     bool
	plane   pml.Plane
	tag     int // wanted, and then the message's
	length  int // the message's
	buf     []byte
}

// takes reports whether an eager message is what the spot waits for.
func (s *spot) takes(plane pml.Plane, tag int) bool {
	return s.waiting && s.plane == plane && (s.tag == tag || s.tag == pml.AnyTag)
}

// take receives the message.
func (s *spot) take(payload []byte, tag int) {
	copy(s.buf, payload)
	s.tag, s.length = tag, len(payload)
	s.waiting, s.stop, s.got = false, true, true
}

// receiveNow receives an eager message that comes now, and reports whether one
// did. Lock held, all the time.
func (c *comm) receiveNow(p *peer, buf []byte, tag int, plane pml.Plane) bool {
	m := c.m
	source := p.proc.pollSource()
	if source == nil || m.hooks != nil || !c.queues[plane].Idle(&p.match[plane]) {
		return false
	}
	s := &p.spot
	s.waiting, s.stop, s.got, s.plane, s.tag, s.buf = true, false, false, plane, tag, buf
	m.engine.Spin(source, &s.stop)
	s.waiting, s.buf = false, nil // the caller's again
	return s.got
}
