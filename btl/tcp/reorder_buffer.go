package tcp

import (
	"fmt"
	"time"
)

// reorderTimeout is the time without an in-order frame after which out-of-order frames are read into
// memory.
const reorderTimeout = 20 * time.Millisecond

// reorderBuffer has the frames that arrived out of order. Normally such frames stay in their sockets, so
// that order costs no copy. After the loss of a link its frames are retransmitted behind others, and only
// reading those makes progress.
type reorderBuffer struct {
	framesByNumber map[uint64]bufferedFrame
	bytesBuffered  int
	// Frames out of order are read instead of left in their sockets.
	isBuffering   bool
	lastInOrderAt time.Duration
}

// bufferedFrame is a frame that arrived before its turn.
type bufferedFrame struct {
	header    header
	frameBody []byte
}

// resumeLinks resumes links that waited for an earlier frame.
func (p *peerConn) resumeLinks() {
	for _, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
		if l != nil && l.readMode == modeOutOfOrder && (p.reorderBuffer.isBuffering || l.frameHeader.number <= p.path.nextExpected) {
			l.readMode = modeUndecided
			l.enqueue()
		}
	}
}

// checkReorderTimeout starts buffering if no in-order frame has arrived within reorderTimeout.
func (p *peerConn) checkReorderTimeout(now time.Duration) {
	for _, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
		if l == nil || l.readMode != modeOutOfOrder {
			continue
		}
		if since := max(l.outOfOrderSince, p.reorderBuffer.lastInOrderAt); now < since+reorderTimeout {
			p.module.scheduleAt(since + reorderTimeout)
		} else {
			p.reorderBuffer.isBuffering = true
		}
	}
	if p.reorderBuffer.isBuffering {
		p.resumeLinks()
	}
}

// maxDeclaredWindow bounds the memory for out-of-order frames, whatever window the peer declares. A larger
// window of this process raises it. Senders respect the bound.
const maxDeclaredWindow = 64 << 20

// reorderLimit returns the limit of the reorder buffer in bytes.
func (p *peerConn) reorderLimit() int {
	return min(p.peerWindow(), max(p.module.config.windowBytes, maxDeclaredWindow)) + p.module.config.frameLimit
}

// bufferFrame adds a frame to the reorder buffer. More than reorderLimit is damage.
func (p *peerConn) bufferFrame(h header, b []byte) {
	if _, here := p.reorderBuffer.framesByNumber[h.number]; here || p.path.classify(h.number) == arrivalDuplicate {
		return
	}
	if p.reorderBuffer.bytesBuffered += h.bodySize + frameOverhead; p.reorderBuffer.bytesBuffered > p.reorderLimit() {
		// Some numbers are wrong, and their links are unknown. All links close, and the peer retransmits.
		p.path.damagedLinks++
		p.reorderBuffer.framesByNumber, p.reorderBuffer.bytesBuffered = map[uint64]bufferedFrame{}, 0
		for _, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
			if l != nil {
				l.failDamaged(fmt.Errorf("%w: more than the window of %d bytes arrived out of order", errDamaged, p.reorderLimit()))
			}
		}
		return
	}
	p.reorderBuffer.framesByNumber[h.number] = bufferedFrame{h, b}
	p.deliverBuffered()
}

// deliverBuffered delivers buffered frames that are in order now.
func (p *peerConn) deliverBuffered() {
	for len(p.reorderBuffer.framesByNumber) > 0 && !p.isClosed {
		s, ok := p.reorderBuffer.framesByNumber[p.path.nextExpected]
		if !ok {
			break
		}
		delete(p.reorderBuffer.framesByNumber, p.path.nextExpected)
		p.reorderBuffer.bytesBuffered -= s.header.bodySize + frameOverhead
		p.recordInOrder(headerSize + s.header.bodySize)
		p.deliverFrame(s)
	}
	if p.isClosed {
		return
	}
	if len(p.reorderBuffer.framesByNumber) == 0 {
		p.reorderBuffer.isBuffering = false
	}
	p.resumeLinks()
}

// deliverFrame delivers a buffered frame, its payload into memory of the protocol if there is any.
func (p *peerConn) deliverFrame(s bufferedFrame) {
	if k := s.header.gatherSize; k > 0 && p.inboundPath.handler != nil {
		if dst := p.inboundPath.handler.Place(s.frameBody[:k], s.header.bodySize-k); dst != nil {
			copy(dst, s.frameBody[k:])
			p.handleDeliveryError(p.inboundPath.handler.Placed(s.frameBody[:k], s.header.bodySize-k))
			return
		}
	}
	p.deliver(s.header, s.frameBody)
}
