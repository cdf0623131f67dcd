package tcp

import (
	"fmt"
	"time"
)

// Frames that come before their turn: others that come by another link belong before
// them. They wait in their socket, so that nothing is copied for order. If the one that
// is due does not come, as when the link that carried it was lost and it goes again
// behind them, they are put aside in memory: at most the peer's window.

// reorderTimeout is how long nothing that is due may come before that.
const reorderTimeout = 20 * time.Millisecond

// reorderBuffer has the frames that arrived before their turn.
type reorderBuffer struct {
	frames        map[uint64]bufferedFrame
	bytes         int
	isBuffering   bool // Frames out of order are read instead of left in their sockets.
	lastInOrderAt time.Duration
}

// bufferedFrame is a frame that arrived before its turn.
type bufferedFrame struct {
	header header
	bytes  []byte
}

// resumeLinks looks again at the links whose next frame was not due.
func (p *peerConn) resumeLinks() {
	for _, l := range p.links[:len(p.path.queues)] {
		if l == nil || !l.early {
			continue
		}
		if p.reorder.isBuffering || p.path.classify(l.header.number) != arrivalOutOfOrder {
			l.early = false
			l.enqueue()
		}
	}
}

// checkReorderTimeout puts frames aside if those that are due have not come for a while.
func (p *peerConn) checkReorderTimeout(now time.Duration) {
	for _, l := range p.links[:len(p.path.queues)] {
		if l == nil || !l.early {
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

// maxDeclaredWindow bounds the memory for frames that a peer sends out of turn, however large the window that it
// declares. A process with a larger window itself takes as much as that. Senders stay within the bound.
const maxDeclaredWindow = 64 << 20

// reorderLimit returns the bytes of frames that may be put aside: the peer's window, within mostDeclared, and one frame.
func (p *peerConn) reorderLimit() int {
	return min(p.peerWindow(), max(p.module.config.window, maxDeclaredWindow)) + p.module.config.frameLimit
}

// bufferFrame puts a frame aside.
func (p *peerConn) bufferFrame(h header, b []byte) {
	if _, here := p.reorder.frames[h.number]; here || p.path.classify(h.number) == arrivalDuplicate {
		return
	}
	if p.reorder.bytes += h.bodySize + frameOverhead; p.reorder.bytes > p.reorderLimit() {
		// Some numbers are wrong, and nothing tells which. What is not confirmed comes again
		// by new links.
		p.path.damagedLinks++
		p.reorder.frames, p.reorder.bytes = map[uint64]bufferedFrame{}, 0
		for _, l := range p.links[:len(p.path.queues)] {
			if l != nil {
				l.failDamaged(fmt.Errorf("%w: more than the window of %d bytes arrived out of turn", errDamaged, p.reorderLimit()))
			}
		}
		return
	}
	p.reorder.frames[h.number] = bufferedFrame{h, b}
	p.deliverBuffered() // its turn may have come meanwhile
}

// deliverBuffered hands up what is due now of what was put aside.
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

// deliverFrame hands up a whole frame: to where its payload belongs, if somebody knows.
func (p *peerConn) deliverFrame(s bufferedFrame) {
	if k := s.header.gatherSize; k > 0 && p.inbound.placer != nil {
		if dst := p.inbound.placer.Place(s.bytes[:k], s.header.bodySize-k); dst != nil {
			copy(dst, s.bytes[k:])
			p.handleDeliveryError(p.inbound.placer.Placed(s.bytes[:k], s.header.bodySize-k))
			return
		}
	}
	p.deliver(s.header, s.bytes)
}
