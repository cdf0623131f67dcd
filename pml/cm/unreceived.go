package cm

import (
	"errors"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// How the sender of a synchronous message learns that its message is dropped.
//
// A network completes a synchronous send when its message is claimed, by a receive or by the
// reaper. A message that the reaper finds on a closed communicator or an aborted plane is
// therefore held until its sender knows the outcome of each of its messages:
//
//  1. The receiver asks the sender to stop (controlStop), once no posted receive may match more of its
//     messages. Synchronous sends that completed before were received.
//  2. The sender sends no more messages there, and acknowledges with their number (controlStopped).
//  3. When that many messages were received or are held, the receiver reports how many it drops, for
//     each tag (controlDropped), and drops them. Messages with one tag match in the order of
//     their sends, so the dropped ones are the last.
//
// A synchronous send that the network completes after the stop waits for the reports.
//
// A message that comes while a posted receive may still match messages of its sender is dropped
// at once, and a synchronous send of it succeeds.
//
// Messages on an aborted plane are held at once, because its receives are being withdrawn. Later
// receives fail. The controlStop of a revoked communicator is marked, because the revocation may
// reach the sender later.

// unreceivedMessages has the messages of one member on a closed communicator or an aborted plane.
type unreceivedMessages struct {
	// heldMessages are claimed point-to-point messages.
	heldMessages []*message
	// hasAsked is set once controlStop was sent, and hasStopped once it was acknowledged.
	hasAsked   bool
	hasStopped bool
	// lastSent is the final number of the member's point-to-point messages.
	lastSent   uint64
	isReported bool
}

// reject drops a claimed message, or holds it. Lock held.
func (msg *message) reject() {
	switch {
	case msg.mustHold():
		p := msg.from
		p.unreceivedMessages.heldMessages = append(p.unreceivedMessages.heldMessages, msg)
		p.c.heldMessageCount++
		p.settleHeld()
	case msg.mustInspect():
		msg.inspect()
	default:
		msg.discard()
	}
}

// mustHold reports whether the sender of a message may wait for the outcome of a synchronous send.
// While a posted receive may match messages of the sender, the message is not held, because its sender
// might block in this send before the one that the receive waits for.
func (msg *message) mustHold() bool {
	c := msg.c
	return msg.plane == pml.PointToPoint && msg.from != nil && msg.from.proc.Err == nil && !msg.isSettled &&
		!c.m.isClosed && (c.Aborted[msg.plane] != nil || c.IsClosed() && (msg.from.unreceivedMessages.hasAsked || !c.mayMatchPosted(msg.from)))
}

// settleHeld advances the held messages of a member. It is called from Poll or Done, so that the MTL
// can notify the senders before their operations end. Lock held.
func (p *peer) settleHeld() {
	u, c := &p.unreceivedMessages, p.c
	if len(u.heldMessages) == 0 {
		return
	}
	switch {
	case p.proc.Err != nil:
		p.dropHeld()
		return
	case p.rank == c.Spec.Rank: // This process sends no further messages.
		u.hasAsked, u.hasStopped, u.lastSent = true, true, p.messageTally.Sent[pml.PointToPoint]
	case !u.hasAsked: // A closed communicator has had no new receives since mustHold.
		u.hasAsked = true
		f := control{typ: controlStop, receiverHandle: p.id(), senderEndpoint: c.Endpoint, senderRank: uint32(c.Spec.Rank), local: c.Spec.Local}
		if errors.Is(c.Aborted[pml.PointToPoint], framework.ErrRevoked) {
			f.sent[0] = stopRevoked
		}
		p.proc.sendControl(f, nil)
	}
	if u.hasStopped && p.messageTally.Consumed[pml.PointToPoint]+uint64(len(u.heldMessages)) >= u.lastSent {
		p.reportDropped()
		p.dropHeld()
	}
}

// settleAll calls settleHeld for all members of all reaped communicators. Lock held.
func (m *Module) settleAll() {
	m.reaper.mustSettle = false
	for _, c := range m.reapedComms {
		for _, p := range c.peersByRank.All() {
			if c.heldMessageCount == 0 {
				break
			}
			p.settleHeld()
		}
	}
}

// stopRevoked is sent[0] of a controlStop for a revoked communicator.
const stopRevoked = 1

// mayMatchPosted reports whether a posted receive may match messages of a member. On a closed
// communicator false is final. It visits all requests.
func (c *comm) mayMatchPosted(p *peer) bool {
	for _, r := range c.m.allRequests {
		if r.c != c || r.isSend || r.plane != pml.PointToPoint || r.p != nil && r.p != p {
			continue
		}
		switch r.state {
		case posted, deferred, recalled, gathered, seeking:
			return true
		}
	}
	return false
}

// reportDropped reports to the sender of held messages how many of each tag are dropped.
func (p *peer) reportDropped() {
	u := &p.unreceivedMessages
	if u.isReported {
		return
	}
	u.isReported = true
	tags := map[int32]uint64{}
	for _, msg := range u.heldMessages {
		tags[msg.op.Tag]++
	}
	c := p.c
	for tag, n := range tags {
		f := control{typ: controlDropped, receiverHandle: p.id(), senderEndpoint: c.Endpoint, senderRank: uint32(c.Spec.Rank), local: cid.Local(tag), sent: cid.Counts{n, uint64(len(tags))}}
		if p.rank == c.Spec.Rank {
			p.syncSends.hasStopped = true
			p.handleDropReport(&f)
		} else {
			p.proc.sendControl(f, nil)
		}
	}
}

// dropHeld drops the held messages.
func (p *peer) dropHeld() {
	held := p.unreceivedMessages.heldMessages
	p.unreceivedMessages.heldMessages = nil
	p.c.heldMessageCount -= len(held)
	for _, msg := range held {
		msg.isSettled = true
		msg.reject()
	}
}

// syncSends tracks the synchronous point-to-point sends to one member that are not complete.
type syncSends struct {
	pendingCount int
	// sentByTag counts the messages since the oldest of these sends, by tag.
	sentByTag map[int32]uint64
	// hasStopped is set once the member receives no more messages, and isRevoked if that is
	// because it has revoked the communicator.
	hasStopped bool
	isRevoked  bool
	// reportCount counts the controlDropped that have come. hasAllReports is set after the last.
	reportCount   uint64
	hasAllReports bool
	// droppedByTag counts dropped messages, for the tags in sentByTag.
	droppedByTag map[int32]uint64
}

// countSent counts a message that the network has accepted. Lock held.
func (p *peer) countSent(plane pml.Plane, tag int) {
	p.messageTally.Sent[plane]++
	if p.syncSends.pendingCount > 0 && plane == pml.PointToPoint {
		p.syncSends.sentByTag[int32(tag)]++
	}
}

// trackSync tracks a synchronous send that was submitted and counted. Lock held.
func (r *request) trackSync() {
	if r.mode != pml.Synchronous || r.plane != pml.PointToPoint {
		return
	}
	s := &r.p.syncSends
	if s.pendingCount == 0 {
		if s.sentByTag == nil {
			s.sentByTag = map[int32]uint64{}
		}
		s.sentByTag[int32(r.tag)] = 1
	}
	s.pendingCount++
	r.syncSendNumber = s.sentByTag[int32(r.tag)]
}

// untrackSync ends the tracking of a send.
func (r *request) untrackSync() {
	if r.syncSendNumber == 0 {
		return
	}
	r.syncSendNumber = 0
	s := &r.p.syncSends
	if s.pendingCount--; s.pendingCount == 0 {
		clear(s.sentByTag)
	}
}

// handleStop stops the messages to a member that receives no more. Lock held.
func (p *peer) handleStop(f *control) {
	p.syncSends.hasStopped, p.syncSends.isRevoked = true, f.sent[0] == stopRevoked
	p.updateReady()
	p.notify(controlStopped)
}

// handleDropReport handles the number of dropped messages with one tag. Lock held.
func (p *peer) handleDropReport(f *control) {
	s, tag := &p.syncSends, int32(f.local)
	if !s.hasStopped || s.hasAllReports {
		return
	}
	if s.sentByTag[tag] > 0 {
		if s.droppedByTag == nil {
			s.droppedByTag = map[int32]uint64{}
		}
		s.droppedByTag[tag] = f.sent[0]
	}
	if s.reportCount++; s.reportCount < f.sent[1] {
		return
	}
	s.hasAllReports = true
	for _, r := range p.proc.m.allRequests {
		if r.state == confirming && r.p == p {
			r.finishMatched()
		}
	}
}

// finishMatched completes a send whose message was claimed. A synchronous message may have been
// dropped, so that its send waits for the reports. Lock held.
func (r *request) finishMatched() {
	s := &r.p.syncSends
	switch {
	case r.syncSendNumber == 0 || !s.hasStopped:
		r.finish()
	case !s.hasAllReports:
		r.state = confirming
	case s.sentByTag[int32(r.tag)]-r.syncSendNumber < s.droppedByTag[int32(r.tag)]:
		r.finishDropped()
	default:
		r.finish()
	}
}
