package tcp

import (
	"time"

	"github.com/ferrympi/ferry/btl"
)

// readState is the incoming byte stream of a link. Headers and small frames pass through readBuf.
// Large frames are read into memory of their own, or into that of the receive.
type readState struct {
	// Bytes readPos to writePos are unread. nil if empty.
	readBuf  []byte
	readPos  int
	writePos int
	// The last frame was large, so that little is read ahead.
	expectsLarge bool

	// The current frame.
	readMode     readMode
	frameHeader  header
	bodyReceived int
	gatherHeader [btl.GatherHeader]byte
	// Memory of an assembled frame.
	frameBody       []byte
	isPlaced        bool
	outOfOrderSince time.Duration
}

// readMode is the handling of the bytes that come next.
type readMode uint8

const (
	modeHeader     readMode = iota
	modeUndecided           // The header is read.
	modeOutOfOrder          // The frame stays in the socket until its turn.
	modeBuffered            // The body is read into readBuf.
	modePlaced              // The payload is read into memory of the protocol.
	modeAssembled           // The body is read into frameBody.
	modeReordered           // As assembled, for the reorder buffer.
	modeSkipped             // The body is dropped.
)

const (
	readBufferSize = 32 << 10
	largeFrameSize = 8 << 10 // Larger frames are not read into readBuf.
	readAheadSize  = 1 << 10 // Bytes read with the header of a frame that may be large.

	framesPerPoll = 64
	bytesPerPoll  = 1 << 20
)

// readFrames delivers at most limit frames, and returns their number.
func (l *link) readFrames(limit int) (n int) {
	if l.isInUpcall || l.state == connClosed {
		return 0
	}
	budget := bytesPerPoll
	for n < limit && budget > 0 && l.state < connDamaged {
		before := l.bodyReceived
		ok, isWhole := l.readStep(true)
		if !ok {
			break
		}
		if k := l.bodyReceived - before; k > 0 {
			budget -= k
		}
		if isWhole {
			l.isInUpcall = true
			l.deliverFrame()
			l.isInUpcall = false
			n++
		}
	}
	if l.releaseBuffer(); l.state >= connFailed {
		l.peer.markPending()
	}
	return n
}

// releaseBuffer returns an empty readBuf to the pool.
func (l *link) releaseBuffer() {
	if l.readBuf != nil && l.readPos == l.writePos && l.readMode != modeBuffered && !l.isInUpcall {
		l.module.bufferPool.put(l.readBuf)
		l.readBuf, l.readPos, l.writePos = nil, 0, 0
	}
}

// readStep makes progress with the current frame. It reports whether there was any, and whether
// the frame is whole; then deliverFrame takes it. Without canPlace it makes no upcall.
func (l *link) readStep(canPlace bool) (ok, isWhole bool) {
	if l.readMode == modeHeader {
		return l.parseHeader(), false
	}
	if l.readMode <= modeOutOfOrder {
		if ok := l.chooseMode(canPlace); !ok {
			return false, false
		}
	}
	if l.peer.path.classify(l.frameHeader.number) == arrivalDuplicate {
		l.skipDuplicate()
	}
	switch l.readMode {
	case modeBuffered:
		if l.writePos-l.readPos >= l.frameHeader.bodySize {
			return true, true
		}
		return l.fillBuffer(), false
	case modePlaced:
		if !canPlace {
			return false, false
		}
		return l.readPlaced()
	case modeSkipped:
		k := min(l.frameHeader.bodySize-l.bodyReceived, l.writePos-l.readPos)
		l.bodyReceived, l.readPos = l.bodyReceived+k, l.readPos+k
		if l.bodyReceived == l.frameHeader.bodySize {
			return true, true
		}
		l.expectsLarge = false
		return l.fillBuffer(), false
	}
	return l.copyInto(l.frameBody[:l.frameHeader.bodySize])
}

// parseHeader reads a header, and applies its ack and its ack request.
func (l *link) parseHeader() bool {
	if l.writePos-l.readPos < headerSize {
		return l.fillBuffer()
	}
	p := l.peer
	h, err := readHeader(l.readBuf[l.readPos:], p.module.config.frameLimit)
	l.readPos += headerSize
	if err == nil {
		err = p.path.checkNumber(h.number)
	}
	if err == nil && h.ackedUpTo > p.path.ackedUpTo {
		err = p.path.recordAck(h.ackedUpTo)
		p.markPending()
	}
	if err != nil {
		p.path.damagedLinks++
		l.failDamaged(err)
		return false
	}
	if h.flags&flagAckRequest != 0 {
		upTo := h.number
		if h.kind != kindAck {
			upTo++
		}
		p.path.recordAckRequest(upTo)
		p.markPending()
	}
	if h.kind != kindAck {
		l.frameHeader, l.readMode, l.bodyReceived = h, modeUndecided, 0
	}
	return true
}

// chooseMode chooses the mode of a frame after its header. It reports false if the frame must wait.
func (l *link) chooseMode(canPlace bool) bool {
	p, h := l.peer, &l.frameHeader
	switch p.path.classify(h.number) {
	case arrivalDuplicate:
		l.readMode = modeSkipped
		return true
	case arrivalOutOfOrder:
		if _, ok := p.reorderBuffer.framesByNumber[h.number]; ok {
			l.readMode = modeSkipped
			return true
		}
		if !p.reorderBuffer.isBuffering {
			l.readMode, l.outOfOrderSince = modeOutOfOrder, l.module.timers.lastClock
			p.module.scheduleAt(l.module.timers.lastClock + reorderTimeout)
			return false
		}
		l.readMode, l.frameBody = modeReordered, make([]byte, h.bodySize)
		return true
	}
	l.readMode = modeUndecided
	switch {
	case h.kind == kindFrame && p.inboundPath.handler == nil:
		l.readMode = modeSkipped
	case h.gatherSize > 0 && h.bodySize >= readAheadSize && p.inboundPath.handler != nil:
		if !canPlace {
			return false
		}
		for l.writePos-l.readPos < h.gatherSize {
			if !l.fillBuffer() {
				return false
			}
		}
		copy(l.gatherHeader[:], l.readBuf[l.readPos:l.readPos+h.gatherSize])
		l.readPos += h.gatherSize
		l.bodyReceived, l.readMode, l.isPlaced = h.gatherSize, modePlaced, false
	case h.bodySize > largeFrameSize:
		l.readMode, l.frameBody = modeAssembled, l.module.bufferPool.get(h.bodySize)
	default:
		l.readMode = modeBuffered
		if len(l.readBuf)-l.readPos < h.bodySize {
			l.writePos = copy(l.readBuf, l.readBuf[l.readPos:l.writePos])
			l.readPos = 0
		}
	}
	return true
}

// skipDuplicate drops the rest of a frame that another link has delivered meanwhile. The sender
// has closed this link, and its system still sends the accepted bytes.
func (l *link) skipDuplicate() {
	if l.readMode == modeAssembled {
		l.module.bufferPool.put(l.frameBody)
		l.frameBody = nil
	}
	if l.readMode != modeReordered { // bufferFrame drops a duplicate.
		l.readMode = modeSkipped
	}
}

// readPlaced reads payload into memory of the protocol, which may end the receive between two calls.
func (l *link) readPlaced() (ok, isWhole bool) {
	p, h := l.peer, &l.frameHeader
	head := l.gatherHeader[:h.gatherSize]
	l.isInUpcall = true
	dst := p.inboundPath.handler.Place(head, h.bodySize-h.gatherSize)
	l.isInUpcall = false
	switch {
	case l.state == connClosed:
		return false, false
	case dst == nil && l.isPlaced:
		l.readMode = modeSkipped
		return true, false
	case dst == nil:
		l.readMode, l.frameBody = modeAssembled, l.module.bufferPool.get(h.bodySize)
		copy(l.frameBody, head)
		return true, false
	}
	l.isPlaced = true
	l.bodyReceived -= h.gatherSize
	ok, isWhole = l.copyInto(dst)
	l.bodyReceived += h.gatherSize
	return ok, isWhole
}

// copyInto moves bytes to dst from index l.bodyReceived on.
func (l *link) copyInto(dst []byte) (ok, isWhole bool) {
	if k := copy(dst[l.bodyReceived:], l.readBuf[l.readPos:l.writePos]); k > 0 {
		l.readPos, l.bodyReceived = l.readPos+k, l.bodyReceived+k
		ok = true
	}
	if l.bodyReceived < len(dst) && !l.isSocketEmpty && l.state < connFailed {
		k := l.readBodyAndHeader(dst[l.bodyReceived:])
		l.bodyReceived += k
		ok = ok || k > 0
	}
	if l.expectsLarge = len(dst) >= largeFrameSize; l.bodyReceived == len(dst) {
		return true, true
	}
	return ok, false
}

// deliverFrame delivers the whole frame to the protocol or to the reorder buffer.
func (l *link) deliverFrame() {
	p, h, mode := l.peer, l.frameHeader, l.readMode
	l.readMode = modeHeader
	var bytes []byte
	switch mode {
	case modeBuffered:
		bytes = l.readBuf[l.readPos : l.readPos+h.bodySize : l.readPos+h.bodySize]
		l.readPos += h.bodySize
		l.expectsLarge = false
	case modeAssembled, modeReordered:
		bytes, l.frameBody = l.frameBody[:h.bodySize], nil
	}
	switch {
	case mode == modeReordered:
		p.bufferFrame(h, bytes)
		return
	case mode == modeSkipped && p.path.classify(h.number) != arrivalInOrder:
		return
	}
	p.recordInOrder(headerSize + h.bodySize)
	switch mode {
	case modePlaced:
		p.handleDeliveryError(p.inboundPath.handler.Placed(l.gatherHeader[:h.gatherSize], h.bodySize-h.gatherSize))
	case modeBuffered, modeAssembled:
		p.deliver(h, bytes)
	}
	if mode == modeAssembled && l.state < connClosed {
		l.module.bufferPool.put(bytes[:cap(bytes)])
	}
	p.deliverBuffered()
}
