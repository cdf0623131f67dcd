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
	frames map[uint64]bufferedFrame
	bytes  int
	// Frames out of order are read instead of left in their sockets.
	isBuffering   bool
	lastInOrderAt time.Duration
}

// bufferedFrame is a frame that arrived before its turn.
type bufferedFrame struct {
	header header
	bytes  []byte
}

// resumeLinks resumes links that waited for an earlier frame.
func (p *peerConn) resumeLinks() {
	for _, l := range p.links[:len(p.path.queues)] {
		if l != nil && l.mode == modeOutOfOrder && (p.reorder.isBuffering || l.header.number <= p.path.nextExpected) {
			l.mode = modeUndecided
			l.enqueue()
		}
	}
}

// checkReorderTimeout starts buffering if no in-order frame has arrived within reorderTimeout.
func (p *peerConn) checkReorderTimeout(now time.Duration) {
	for _, l := range p.links[:len(p.path.queues)] {
		if l == nil || l.mode != modeOutOfOrder {
			continue
		}
		if since := max(l.outOfOrderSince, p.reorder.lastInOrderAt); now < since+reorderTimeout {
			p.module.scheduleAt(since + reorderTimeout)
		} else {
			p.reorder.isBuffering = true
		}
	}
	if p.reorder.isBuffering {
		p.resumeLinks()
	}
}

// maxDeclaredWindow bounds the memory for out-of-order frames, whatever window the peer declares. A larger
// window of this process raises it. Senders respect the bound.
const maxDeclaredWindow = 64 << 20

// reorderLimit returns the limit of the reorder buffer in bytes.
func (p *peerConn) reorderLimit() int {
	return min(p.peerWindow(), max(p.module.config.window, maxDeclaredWindow)) + p.module.config.frameLimit
}

// bufferFrame adds a frame to the reorder buffer. More than reorderLimit is damage.
func (p *peerConn) bufferFrame(h header, b []byte) {
	if _, here := p.reorder.frames[h.number]; here || p.path.classify(h.number) == arrivalDuplicate {
		return
	}
	if p.reorder.bytes += h.bodySize + frameOverhead; p.reorder.bytes > p.reorderLimit() {
		// Some numbers are wrong, and their links are unknown. All links close, and the peer retransmits.
		p.path.damagedLinks++
		p.reorder.frames, p.reorder.bytes = map[uint64]bufferedFrame{}, 0
		for _, l := range p.links[:len(p.path.queues)] {
			if l != nil {
				l.failDamaged(fmt.Errorf("%w: more than the window of %d bytes arrived out of order", errDamaged, p.reorderLimit()))
			}
		}
		return
	}
	p.reorder.frames[h.number] = bufferedFrame{h, b}
	p.deliverBuffered()
}

// deliverBuffered delivers buffered frames that are in order now.
func (p *peerConn) deliverBuffered() {
	for len(p.reorder.frames) > 0 && !p.isClosed {
		s, ok := p.reorder.frames[p.path.nextExpected]
		if !ok {
			break
		}
		delete(p.reorder.frames, p.path.nextExpected)
		p.reorder.bytes -= s.header.bodySize + frameOverhead
		p.recordInOrder(headerSize + s.header.bodySize)
		p.deliverFrame(s)
	}
	if p.isClosed {
		return
	}
	if len(p.reorder.frames) == 0 {
		p.reorder.isBuffering = false
	}
	p.resumeLinks()
}

// deliverFrame delivers a buffered frame, its payload into memory of the protocol if there is any.
func (p *peerConn) deliverFrame(s bufferedFrame) {
	if k := s.header.gatherSize; k > 0 && p.inbound.handler != nil {
		if dst := p.inbound.handler.Place(s.bytes[:k], s.header.bodySize-k); dst != nil {
			copy(dst, s.bytes[k:])
			p.handleDeliveryError(p.inbound.handler.Placed(s.bytes[:k], s.header.bodySize-k))
			return
		}
	}
	p.deliver(s.header, s.bytes)
}
