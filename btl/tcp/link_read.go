package tcp

// What is read from a link: headers and small frames by way of a buffer, which the module
// lends it while something is there; larger ones in memory of their own, or, where the
// protocol knows the place, straight from the socket into it.

// readMode is what happens to the bytes of a frame.
type readMode uint8

const (
	modeUndecided readMode = iota
	modeBuffered           // they are in buf, or will be
	modePlaced             // they go where the protocol says
	modeAssembled          // they are put together in body
	modeReordered          // as apart: others come before the frame
	modeSkipped
)

const (
	// readBufferSize is what is read at once of small frames, in bytes.
	readBufferSize = 32 << 10
	// largeFrameSize is from which size on frames are not read by way of buf.
	largeFrameSize = 8 << 10
	// readAheadSize is what is read with the header of a frame that may be large.
	readAheadSize = 1 << 10

	framesPerPoll = 64
	bytesPerPoll  = 1 << 20
)

// readFrames hands up frames that have come, at most so many. It returns how much happened.
func (l *link) readFrames(most int) (n int) {
	if l.isDelivering || l.over {
		return 0
	}
	room := bytesPerPoll
	for n < most && room > 0 && !l.over && !l.damaged {
		at := l.received
		ok, whole := l.readStep(true)
		if !ok {
			break
		}
		if k := l.received - at; k > 0 {
			room -= k
		}
		if whole {
			l.isDelivering = true
			l.deliverFrame()
			l.isDelivering = false
			n++
		}
	}
	if l.releaseBuffer(); l.failed != nil {
		l.peer.markPending()
	}
	return n
}

// releaseBuffer gives buf back if nothing is in it.
func (l *link) releaseBuffer() {
	if l.buf != nil && l.readPos == l.writePos && !l.isDelivering && !(l.has && l.mode == modeBuffered) {
		l.module.buffers.put(l.buf)
		l.buf, l.readPos, l.writePos = nil, 0, 0
	}
}

// readStep brings the next frame a step on its way, and reports whether there was one to be
// done, and whether the frame is whole then: finish takes it. Payload is placed only if
// placing is allowed now.
func (l *link) readStep(placing bool) (ok, whole bool) {
	if !l.has {
		return l.parseHeader(), false
	}
	if l.mode == modeUndecided {
		if ok := l.chooseMode(placing); !ok {
			return false, false
		}
	}
	if l.peer.path.classify(l.header.number) == arrivalDuplicate {
		l.skipDuplicate()
	}
	switch l.mode {
	case modeBuffered:
		if l.writePos-l.readPos >= l.header.bodySize {
			return true, true
		}
		return l.fillBuffer(), false
	case modePlaced:
		if !placing {
			return false, false
		}
		return l.readPlaced()
	case modeSkipped:
		k := min(l.header.bodySize-l.received, l.writePos-l.readPos)
		l.received, l.readPos = l.received+k, l.readPos+k
		if l.received == l.header.bodySize {
			return true, true
		}
		l.expectsLarge = false
		return l.fillBuffer(), false
	}
	return l.copyInto(l.body[:l.header.bodySize])
}

// parseHeader reads a header, and takes what it says of frames that went the other way.
func (l *link) parseHeader() bool {
	if l.writePos-l.readPos < headerSize {
		return l.fillBuffer()
	}
	p := l.peer
	h, err := readHeader(l.buf[l.readPos:], p.module.config.frameLimit)
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
		l.header, l.has, l.mode, l.received = h, true, modeUndecided, 0
	}
	return true
}

// chooseMode chooses the way of a frame whose header is here.
func (l *link) chooseMode(placing bool) bool {
	p, h := l.peer, &l.header
	switch p.path.classify(h.number) {
	case arrivalDuplicate:
		l.mode = modeSkipped
		return true
	case arrivalOutOfOrder:
		if _, here := p.reorder.frames[h.number]; here {
			l.mode = modeSkipped
			return true
		}
		if !p.reorder.isBuffering {
			l.early, l.outOfOrderSince = true, l.module.timers.now
			p.module.scheduleAt(l.module.timers.now + reorderTimeout)
			return false
		}
		l.mode, l.body = modeReordered, make([]byte, h.bodySize)
		return true
	}
	l.early = false
	switch {
	case h.kind == kindFrame && p.inbound.handler == nil:
		l.mode = modeSkipped // nobody reads the path any more
	case h.gatherSize > 0 && h.bodySize >= readAheadSize && p.inbound.placer != nil:
		if !placing {
			return false
		}
		for l.writePos-l.readPos < h.gatherSize {
			if !l.fillBuffer() {
				return false
			}
		}
		copy(l.gatherHeader[:], l.buf[l.readPos:l.readPos+h.gatherSize])
		l.readPos += h.gatherSize
		l.received, l.mode, l.isPlaced = h.gatherSize, modePlaced, false
	case h.bodySize > largeFrameSize:
		l.mode, l.body = modeAssembled, l.module.buffers.get(h.bodySize)
	default:
		l.mode = modeBuffered
		if len(l.buf)-l.readPos < h.bodySize { // the rest would find no room
			l.writePos = copy(l.buf, l.buf[l.readPos:l.writePos])
			l.readPos = 0
		}
	}
	return true
}

// skipDuplicate skips the rest of a frame that came whole by another link meanwhile: the sender
// had given this link up, but what it had left to the system still arrives.
func (l *link) skipDuplicate() {
	if l.mode == modeAssembled {
		l.module.buffers.put(l.body)
		l.body = nil
	}
	if l.mode != modeReordered { // which keep drops
		l.mode = modeSkipped
	}
}

// readPlaced reads payload to where the protocol says that it goes.
func (l *link) readPlaced() (ok, whole bool) {
	p, h := l.peer, &l.header
	head := l.gatherHeader[:h.gatherSize]
	l.isDelivering = true
	dst := p.inbound.placer.Place(head, h.bodySize-h.gatherSize)
	l.isDelivering = false
	switch {
	case l.over:
		return false, false
	case dst == nil && l.isPlaced: // its receive has ended
		l.mode = modeSkipped
		return true, false
	case dst == nil:
		l.mode, l.body = modeAssembled, l.module.buffers.get(h.bodySize)
		copy(l.body, head)
		return true, false
	}
	l.isPlaced = true
	l.received -= h.gatherSize
	ok, whole = l.copyInto(dst)
	l.received += h.gatherSize
	return ok, whole
}

// copyInto moves bytes of the frame to dst, which takes all that are counted by got.
func (l *link) copyInto(dst []byte) (ok, whole bool) {
	if k := copy(dst[l.received:], l.buf[l.readPos:l.writePos]); k > 0 {
		l.readPos, l.received = l.readPos+k, l.received+k
		ok = true
	}
	if l.received < len(dst) && !l.isDrained && l.failed == nil {
		k := l.readBodyAndHeader(dst[l.received:])
		l.received += k
		ok = ok || k > 0
	}
	if l.expectsLarge = len(dst) >= largeFrameSize; l.received == len(dst) {
		return true, true
	}
	return ok, false
}

// deliverFrame takes a frame that is whole.
func (l *link) deliverFrame() {
	p, h, way := l.peer, l.header, l.mode
	l.has = false
	var bytes []byte
	switch way {
	case modeBuffered:
		bytes = l.buf[l.readPos : l.readPos+h.bodySize : l.readPos+h.bodySize]
		l.readPos += h.bodySize
		l.expectsLarge = false
	case modeAssembled, modeReordered:
		bytes, l.body = l.body[:h.bodySize], nil
	}
	switch {
	case way == modeReordered:
		p.bufferFrame(h, bytes)
		return
	case way == modeSkipped && p.path.classify(h.number) != arrivalInOrder:
		return
	}
	p.recordInOrder(headerSize + h.bodySize)
	switch way {
	case modePlaced:
		p.handleDeliveryError(p.inbound.placer.Placed(l.gatherHeader[:h.gatherSize], h.bodySize-h.gatherSize))
	case modeBuffered, modeAssembled:
		p.deliver(h, bytes)
	}
	if way == modeAssembled && !l.over {
		l.module.buffers.put(bytes[:cap(bytes)])
	}
	p.deliverBuffered()
}
