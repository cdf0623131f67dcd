package tcp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// sendControl sends a control frame, for which the window always has room. A peer that acks none of many
// control frames fails at the next poll.
func (p *peerConn) sendControl(k kind, body []byte) {
	b := make([]byte, headerSize, headerSize+len(body))
	h := header{bodySize: len(body), kind: k}
	h.encode(b)
	p.path.push(frame{copiedBytes: append(b, body...)})
	if p.path.isOverfull() {
		p.pendingFailure = fmt.Errorf("too many unacked control frames: paths are opened and closed faster than the peer acks")
	}
	p.markPending()
}

// processPending closes failed links, completes acked frames, and writes. It makes upcalls.
func (p *peerConn) processPending() {
	for _, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
		if l != nil && l.state >= connFailed && !l.hasBufferedFrame() {
			p.loseLink(l)
		}
	}
	if p.pendingFailure != nil && !p.isClosed {
		p.fail("send", p.pendingFailure)
	}
	p.releaseAcked()
	p.reportLimits()
	if refused := p.outboundPath.endedByPeerErr; refused != nil {
		p.outboundPath.endedByPeerErr = nil
		if p.outboundPath.endpoint != nil {
			p.outboundPath.endpoint.Close()
			p.module.env.Ended("btl tcp", p.incarnation, "send", refused)
		}
	}
	if p.isClosed {
		return
	}
	p.writeLinks()
	if p.path.mustAck(p.peerWindow()) && !p.path.queueAck(false) {
		// Retry at the next timer.
		p.acks.owedSince = 1
	} else {
		if p.path.bytesSinceAck == 0 {
			p.acks.owedSince = 0
		}
		p.writeLinks()
	}
	if p.needsMoreLinks() {
		p.module.scheduleAt(p.module.timers.lastClock)
	}
}

// releaseAcked frees acked frames, and completes their payloads.
func (p *peerConn) releaseAcked() {
	freed := false
	for {
		f, ok := p.path.popAcked()
		if !ok {
			break
		}
		freed = true
		if f.completion != nil {
			f.completion.LocallyComplete()
		}
	}
	if freed {
		p.sendBuffer.freeBefore(p.path.firstUnacked)
		p.path.shrinkRing()
	}
}

// writeLinks writes until the sockets are full. It makes no upcalls.
func (p *peerConn) writeLinks() {
	for {
		i := p.path.assignFrames()
		if i < 0 {
			return
		}
		l, q := p.linksBySlot[i], &p.path.queuesBySlot[i]
		pieces := p.path.appendPieces(i, p.module.scratch.writeVec[:0])
		var n, size int
		var err error
		for _, b := range pieces {
			size += len(b)
		}
		n, err = p.module.writeSocket(l.fd, pieces...)
		clear(pieces)
		p.module.scratch.writeVec = pieces[:0]
		switch {
		case n > 0:
			p.path.recordWritten(i, n)
			q.isSocketFull = n < size
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			q.isSocketFull = true
		default:
			q.isSocketFull = true
			l.failAfterDrain(err)
		}
	}
}
