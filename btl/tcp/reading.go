package tcp

// What is read from a link: headers and small frames by way of a buffer, which the module
// lends it while something is there; larger ones in memory of their own, or, where the
// protocol knows the place, straight from the socket into it.

// way is what happens to the bytes of a frame.
type way uint8

const (
	undecided way = iota
	together      // they are in buf, or will be
	inPlace       // they go where the protocol says
	apart         // they are put together in body
	forLater      // as apart: others come before the frame
	skipped
)

const (
	// bufferSize is what is read at once of small frames, in bytes.
	bufferSize = 32 << 10
	// largeFrame is from which size on frames are not read by way of buf.
	largeFrame = 8 << 10
	// ahead is what is read with the header of a frame that may be large.
	ahead = 1 << 10

	framesPerPoll = 64
	bytesPerPoll  = 1 << 20
)

// read hands up frames that have come, at most so many. It returns how much happened.
func (l *link) read(most int) (n int) {
	if l.busy || l.over {
		return 0
	}
	room := bytesPerPoll
	for n < most && room > 0 && !l.over && !l.damaged {
		at := l.got
		ok, whole := l.step(true)
		if !ok {
			break
		}
		if k := l.got - at; k > 0 {
			room -= k
		}
		if whole {
			l.busy = true
			l.finish()
			l.busy = false
			n++
		}
	}
	if l.rest(); l.failed != nil {
		l.p.touch()
	}
	return n
}

// rest gives buf back if nothing is in it.
func (l *link) rest() {
	if l.buf != nil && l.r == l.w && !l.busy && !(l.has && l.way == together) {
		l.m.pool.put(l.buf)
		l.buf, l.r, l.w = nil, 0, 0
	}
}

// step brings the next frame a step on its way, and reports whether there was one to be
// done, and whether the frame is whole then: finish takes it. Payload is placed only if
// placing is allowed now.
func (l *link) step(placing bool) (ok, whole bool) {
	if !l.has {
		return l.begin(), false
	}
	if l.way == undecided {
		if ok := l.decide(placing); !ok {
			return false, false
		}
	}
	if l.p.path.arrive(l.h.number) == old {
		l.overtaken()
	}
	switch l.way {
	case together:
		if l.w-l.r >= l.h.size {
			return true, true
		}
		return l.fill(), false
	case inPlace:
		if !placing {
			return false, false
		}
		return l.deposit()
	case skipped:
		k := min(l.h.size-l.got, l.w-l.r)
		l.got, l.r = l.got+k, l.r+k
		if l.got == l.h.size {
			return true, true
		}
		l.large = false
		return l.fill(), false
	}
	return l.into(l.body[:l.h.size])
}

// begin reads a header, and takes what it says of frames that went the other way.
func (l *link) begin() bool {
	if l.w-l.r < headerSize {
		return l.fill()
	}
	p := l.p
	h, err := readHeader(l.buf[l.r:], p.m.frame)
	l.r += headerSize
	if err == nil {
		err = p.path.check(h.number)
	}
	if err == nil && h.confirmed > p.path.told {
		err = p.path.heard(h.confirmed)
		p.touch()
	}
	if err != nil {
		p.path.damages++
		l.spoil(err)
		return false
	}
	if h.flags&flagAsk != 0 {
		upTo := h.number
		if h.kind != kindNote {
			upTo++
		}
		p.path.ask(upTo)
		p.touch()
	}
	if h.kind != kindNote {
		l.h, l.has, l.way, l.got = h, true, undecided, 0
	}
	return true
}

// decide chooses the way of a frame whose header is here.
func (l *link) decide(placing bool) bool {
	p, h := l.p, &l.h
	switch p.path.arrive(h.number) {
	case old:
		l.way = skipped
		return true
	case early:
		if _, here := p.stash[h.number]; here {
			l.way = skipped
			return true
		}
		if !p.hasty {
			l.early, l.earlySince = true, l.m.clock
			p.m.at(l.m.clock + earlyPatience)
			return false
		}
		l.way, l.body = forLater, make([]byte, h.size)
		return true
	}
	l.early = false
	switch {
	case h.kind == kindFrame && p.up == nil:
		l.way = skipped // nobody reads the path any more
	case h.gathered > 0 && h.size >= ahead && p.placer != nil:
		if !placing {
			return false
		}
		for l.w-l.r < h.gathered {
			if !l.fill() {
				return false
			}
		}
		copy(l.head[:], l.buf[l.r:l.r+h.gathered])
		l.r += h.gathered
		l.got, l.way, l.placed = h.gathered, inPlace, false
	case h.size > largeFrame:
		l.way, l.body = apart, l.m.pool.get(h.size)
	default:
		l.way = together
		if len(l.buf)-l.r < h.size { // the rest would find no room
			l.w = copy(l.buf, l.buf[l.r:l.w])
			l.r = 0
		}
	}
	return true
}

// overtaken skips the rest of a frame that came whole by another link meanwhile: the sender
// had given this link up, but what it had left to the system still arrives.
func (l *link) overtaken() {
	if l.way == apart {
		l.m.pool.put(l.body)
		l.body = nil
	}
	if l.way != forLater { // which keep drops
		l.way = skipped
	}
}

// deposit reads payload to where the protocol says that it goes.
func (l *link) deposit() (ok, whole bool) {
	p, h := l.p, &l.h
	head := l.head[:h.gathered]
	l.busy = true
	dst := p.placer.Place(head, h.size-h.gathered)
	l.busy = false
	switch {
	case l.over:
		return false, false
	case dst == nil && l.placed: // its receive has ended
		l.way = skipped
		return true, false
	case dst == nil:
		l.way, l.body = apart, l.m.pool.get(h.size)
		copy(l.body, head)
		return true, false
	}
	l.placed = true
	l.got -= h.gathered
	ok, whole = l.into(dst)
	l.got += h.gathered
	return ok, whole
}

// into moves bytes of the frame to dst, which takes all that are counted by got.
func (l *link) into(dst []byte) (ok, whole bool) {
	if k := copy(dst[l.got:], l.buf[l.r:l.w]); k > 0 {
		l.r, l.got = l.r+k, l.got+k
		ok = true
	}
	if l.got < len(dst) && !l.drained && l.failed == nil {
		k := l.takeFrame(dst[l.got:])
		l.got += k
		ok = ok || k > 0
	}
	if l.large = len(dst) >= largeFrame; l.got == len(dst) {
		return true, true
	}
	return ok, false
}

// finish takes a frame that is whole.
func (l *link) finish() {
	p, h, way := l.p, l.h, l.way
	l.has = false
	var bytes []byte
	switch way {
	case together:
		bytes = l.buf[l.r : l.r+h.size : l.r+h.size]
		l.r += h.size
		l.large = false
	case apart, forLater:
		bytes, l.body = l.body[:h.size], nil
	}
	switch {
	case way == forLater:
		p.keep(h, bytes)
		return
	case way == skipped && p.path.arrive(h.number) != handUp:
		return
	}
	p.received(headerSize + h.size)
	switch way {
	case inPlace:
		p.took(p.placer.Placed(l.head[:h.gathered], h.size-h.gathered))
	case together, apart:
		p.take(h, bytes)
	}
	if way == apart && !l.over {
		l.m.pool.put(bytes[:cap(bytes)])
	}
	p.unstash()
}
