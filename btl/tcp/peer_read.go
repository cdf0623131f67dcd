package tcp

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// recordInOrder records an in-order frame of size bytes, header included, and schedules the ack.
func (p *peerConn) recordInOrder(size int) {
	p.path.recordReceived(size)
	p.reorder.lastInOrderAt = p.module.timers.now
	if p.path.mustAck(p.peerWindow()) {
		p.markPending()
	} else if p.acks.owedSince == 0 {
		p.acks.owedSince = p.module.timers.now + 1
		p.module.scheduleAt(p.module.timers.now + ackDelay)
	}
}

// ackDelay is the longest delay of an ack without outgoing frames.
const ackDelay = 10 * time.Millisecond

// deliver passes a frame to the protocol, or handles a control frame.
func (p *peerConn) deliver(h header, b []byte) {
	switch h.kind {
	case kindOpen:
		p.inbound.pathNumber = le.Uint64(b)
		p.inbound.handler = p.module.env.Upcall.Accept(p.incarnation)
	case kindFrame:
		if p.inbound.handler != nil {
			p.handleDeliveryError(p.inbound.handler.Frame(b))
		}
	case kindLeave:
		p.inbound.handler = nil
	case kindRefuse:
		if p.outbound.endpoint != nil && le.Uint64(b) == p.outbound.pathsOpened {
			p.outbound.refusal = fmt.Errorf("the peer has ended the path: %.*q", maxReasonSize, b[8:])
			p.markPending()
		}
	case kindBye:
		p.recordClosed()
		p.fail("receive", framework.ErrPeerClosed)
	}
}

// handleDeliveryError ends the path from the peer if the protocol rejects a frame.
func (p *peerConn) handleDeliveryError(err error) {
	if err == nil || p.isClosed {
		return
	}
	p.inbound.handler = nil
	reason := err.Error()
	p.sendControl(kindRefuse, append(le.AppendUint64(nil, p.inbound.pathNumber), reason[:min(len(reason), maxReasonSize)]...))
	p.module.env.Ended("btl tcp", p.incarnation, "receive", err)
}
