package tcp

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// recordInOrder records an in-order frame of size bytes, header included, and schedules the ack.
func (p *peerConn) recordInOrder(size int) {
	p.path.recordReceived(size)
	p.reorderBuffer.lastInOrderAt = p.module.timers.lastClock
	if p.path.mustAck(p.peerWindow()) {
		p.markPending()
	} else if p.acks.owedSince == 0 {
		p.acks.owedSince = p.module.timers.lastClock + 1
		p.module.scheduleAt(p.module.timers.lastClock + ackDelay)
	}
}

// ackDelay is the longest delay of an ack without outgoing frames.
const ackDelay = 10 * time.Millisecond

// deliver passes a frame to the protocol, or handles a control frame.
func (p *peerConn) deliver(h header, b []byte) {
	switch h.kind {
	case kindOpen:
		p.inboundPath.pathNumber = le.Uint64(b)
		p.inboundPath.handler = p.module.env.Upcall.Accept(p.incarnation)
	case kindFrame:
		if p.inboundPath.handler != nil {
			p.handleDeliveryError(p.inboundPath.handler.Frame(b))
		}
	case kindLeave:
		p.inboundPath.handler = nil
	case kindRefuse:
		if p.outboundPath.endpoint != nil && le.Uint64(b) == p.outboundPath.pathsOpened {
			p.outboundPath.endedByPeerErr = fmt.Errorf("the peer has ended the path: %.*q", maxReasonSize, b[8:])
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
	p.inboundPath.handler = nil
	reason := err.Error()
	p.sendControl(kindRefuse, append(le.AppendUint64(nil, p.inboundPath.pathNumber), reason[:min(len(reason), maxReasonSize)]...))
	p.module.env.Ended("btl tcp", p.incarnation, "receive", err)
}
