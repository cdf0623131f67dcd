package cm

import (
	"errors"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// How the sender of a synchronous message learns that nobody receives it.
//
// A network completes a synchronous send when its message is taken out, by a receive or by
// the reaper. So a message that the reaper finds on a closed communicator, or after the plane was aborted, is held, and dropped
// only when its sender is notified of the end of each of its messages:
//
//  1. The receiver asks the sender to stop (controlStop), once no posted receive may match
//     more of its messages. Synchronous sends that are complete before were received.
//  2. The sender sends nothing more there, and answers with the number of its messages
//     (controlStopped).
//  3. When that many were received or are held, the receiver reports how many it drops, for
//     each tag (controlDropped), and drops them. Messages with one tag match in the order of
//     their sends: the dropped ones are the last.
//
// A synchronous send that the network completes after the stop waits for the reports.
//
// A message that comes while a posted receive may still match others of its sender is dropped
// at once, and a synchronous send of it succeeds.
//
// An aborted plane is like a closed one, but its messages are held at once, because its receives are being withdrawn. Later ones
// fail. The controlStop of a revoked communicator has a mark, because its sender may be notified of the revocation later.

// unwanted has the messages of a member without a receive, of a closed communicator or an aborted plane.
type unwanted struct {
	held       []*message // Claimed, point to point.
	hasAsked   bool       // The member was asked to stop, since no posted receive may match its messages.
	hasStopped bool       // It has answered.
	lastSent   uint64     // Number of its messages, point to point, in its answer.
	isReported bool
}

// reject ends a claimed message that nobody receives. Lock held.
func (msg *message) reject() {
	switch {
	case msg.mustHold():
		p := msg.from
		p.unwanted.held = append(p.unwanted.held, msg)
		p.c.unwanted++
		p.settle()
	case msg.mustOpen():
		msg.open()
	default:
		msg.discard()
	}
}

// mustHold reports whether the sender of a message may wait for the end of a synchronous send.
// While a posted receive may match messages of the sender, it can't be asked to stop. A message
// that was held would keep a blocked sender from the send that this receive waits for.
func (msg *message) mustHold() bool {
	c := msg.c
	return msg.plane == pml.PointToPoint && msg.from != nil && msg.from.proc.Err == nil && !msg.isSettled &&
		!c.m.closed && (c.Aborted[msg.plane] != nil || c.Closed() && (msg.from.unwanted.hasAsked || !c.mayReceive(msg.from)))
}

// settle goes on with the held messages of a member. Called from Poll or Done, so that the MTL
// can answer their senders before their operations are over. Lock held.
func (p *peer) settle() {
	u, c := &p.unwanted, p.c
	if len(u.held) == 0 {
		return
	}
	switch {
	case p.proc.Err != nil:
		p.release()
		return
	case p.rank == c.Spec.Rank: // It sends no further messages.
		u.hasAsked, u.hasStopped, u.lastSent = true, true, p.tally.Sent[pml.PointToPoint]
	case !u.hasAsked: // a closed communicator has no new receives since mustHold
		u.hasAsked = true
		f := control{typ: controlStop, id: p.id(), endpoint: c.Endpoint, rank: uint32(c.Spec.Rank), local: c.Spec.Local}
		if errors.Is(c.Aborted[pml.PointToPoint], framework.ErrRevoked) {
			f.sent[0] = stopRevoked
		}
		p.proc.control(f, nil)
	}
	if u.hasStopped && p.tally.Taken[pml.PointToPoint]+uint64(len(u.held)) >= u.lastSent {
		p.report()
		p.release()
	}
}

// settle does so for all. Lock held.
func (m *Module) settle() {
	m.reaper.mustSettle = false
	for _, c := range m.reaped {
		for _, p := range c.peers.All() {
			if c.unwanted == 0 {
				break
			}
			p.settle()
		}
	}
}

// stopRevoked is in sent[0] of a controlStop of a revoked communicator.
const stopRevoked = 1

// mayReceive reports whether a posted receive may match messages of a member. On a closed
// communicator a result of false is final. It walks all requests.
func (c *comm) mayReceive(p *peer) bool {
	for _, r := range c.m.requests {
		if r.c != c || r.send || r.plane != pml.PointToPoint || r.p != nil && r.p != p {
			continue
		}
		switch r.state {
		case posted, deferred, recalled, gathered, seeking:
			return true
		}
	}
	return false
}

// report tells the sender of held messages how many of each tag are dropped.
func (p *peer) report() {
	u := &p.unwanted
	if u.isReported {
		return
	}
	u.isReported = true
	tags := map[int32]uint64{}
	for _, msg := range u.held {
		tags[msg.op.Tag]++
	}
	c := p.c
	for tag, n := range tags {
		f := control{typ: controlDropped, id: p.id(), endpoint: c.Endpoint, rank: uint32(c.Spec.Rank), local: cid.Local(tag), sent: cid.Counts{n, uint64(len(tags))}}
		if p.rank == c.Spec.Rank {
			p.syncs.hasStopped = true
			p.takeReport(&f)
		} else {
			p.proc.control(f, nil)
		}
	}
}

// release drops the held messages.
func (p *peer) release() {
	held := p.unwanted.held
	p.unwanted.held = nil
	p.c.unwanted -= len(held)
	for _, msg := range held {
		msg.isSettled = true
		msg.reject()
	}
}

// syncs are a member's synchronous messages, point to point, that are not complete.
type syncs struct {
	open       int              // Number of them.
	sent       map[int32]uint64 // Messages by tag, since the oldest of them.
	hasStopped bool             // The member takes no more messages.
	isRevoked  bool             // It has revoked the communicator.
	reports    uint64           // Reports that have come.
	isReported bool             // All have.
	dropped    map[int32]uint64 // Of the tags in sent, how many were dropped.
}

// counts counts a message that the network has taken. Lock held.
func (p *peer) counts(plane pml.Plane, tag int) {
	p.tally.Sent[plane]++
	if p.syncs.open > 0 && plane == pml.PointToPoint {
		p.syncs.sent[int32(tag)]++
	}
}

// track follows a synchronous send that the network has, and that was counted. Lock held.
func (r *request) track() {
	if r.mode != pml.Synchronous || r.plane != pml.PointToPoint {
		return
	}
	s := &r.p.syncs
	if s.open == 0 {
		if s.sent == nil {
			s.sent = map[int32]uint64{}
		}
		s.sent[int32(r.tag)] = 1
	}
	s.open++
	r.order = s.sent[int32(r.tag)]
}

// untrack ends that.
func (r *request) untrack() {
	if r.order == 0 {
		return
	}
	r.order = 0
	s := &r.p.syncs
	if s.open--; s.open == 0 {
		clear(s.sent)
	}
}

// stop ends the messages to a member that receives no more. Lock held.
func (p *peer) stop(f *control) {
	p.syncs.hasStopped, p.syncs.isRevoked = true, f.sent[0] == stopRevoked
	p.learnt()
	p.tell(controlStopped)
}

// takeReport takes the number of dropped messages with one tag. Lock held.
func (p *peer) takeReport(f *control) {
	s, tag := &p.syncs, int32(f.local)
	if !s.hasStopped || s.isReported {
		return
	}
	if s.sent[tag] > 0 {
		if s.dropped == nil {
			s.dropped = map[int32]uint64{}
		}
		s.dropped[tag] = f.sent[0]
	}
	if s.reports++; s.reports < f.sent[1] {
		return
	}
	s.isReported = true
	for _, r := range p.proc.m.requests {
		if r.state == confirming && r.p == p {
			r.matched()
		}
	}
}

// matched ends a send whose message was taken out of the network. A synchronous one may have
// been dropped. Lock held.
func (r *request) matched() {
	s := &r.p.syncs
	switch {
	case r.order == 0 || !s.hasStopped:
		r.finish()
	case !s.isReported:
		r.state = confirming
	case s.sent[int32(r.tag)]-r.order < s.dropped[int32(r.tag)]:
		r.dropped()
	default:
		r.finish()
	}
}
