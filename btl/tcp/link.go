package tcp

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
)

// link is a connection with a peer after the handshake, and what is read from it.
type link struct {
	m          *module
	p          *pair
	place      int
	fd         int
	near, far  netip.AddrPort
	called     bool          // from here
	since      time.Duration // it is up
	heard      time.Duration // the last bytes came
	lastAlive  time.Duration // the other end\'s host was heard of
	failed     error         // it ends when what has come is taken
	damaged    bool          // nothing more of it is taken
	waits      bool          // for the other host to acknowledge something
	over       bool          // it has ended, and the descriptor is closed
	listed     bool          // in module.hot
	drained    bool          // the socket had nothing more
	ending     bool          // the socket has said that it ends: read until it does
	busy       bool          // a frame is being handed up
	early      bool          // the frame that comes next is not due yet
	earlySince time.Duration
	large      bool // the last frame was: read little ahead

	buf  []byte // bytes r to w have come; nil: none
	r, w int

	// The frame that is being read: its header has been.
	has    bool
	h      header
	way    way
	got    int // bytes of it
	head   [btl.GatherHeader]byte
	body   []byte // what is put together of it
	placed bool   // the protocol has said where it goes
}

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

// ready implements user.
func (l *link) ready(events uint32) {
	if l.over {
		return
	}
	in, out := readiness(events)
	if in {
		l.drained = false
		l.ending = l.ending || events&^(unix.EPOLLIN|unix.EPOLLOUT) != 0
		if l.readable() {
			l.list()
		}
	}
	if c := &l.p.path.links[l.place]; out && c.blocked {
		c.blocked = false
		l.p.touch()
	}
}

// readable reports whether read may bring something.
func (l *link) readable() bool {
	return !l.over && !l.early && (!l.drained && l.failed == nil || l.pending())
}

// pending reports whether something in buf can be taken without more from the socket.
func (l *link) pending() bool {
	switch have := l.w - l.r; {
	case l.damaged || l.early:
		return false
	case !l.has:
		return have >= headerSize
	case l.way == undecided:
		return have >= l.h.gathered
	case l.way == together:
		return have >= l.h.size
	default:
		return have > 0
	}
}

func (l *link) list() {
	if !l.listed {
		l.listed = true
		l.m.hot = append(l.m.hot, l)
	}
}

// fill reads what has come into buf, and reports whether that was anything.
func (l *link) fill() bool {
	if l.drained || l.failed != nil {
		return false
	}
	if l.buf == nil {
		l.buf = l.m.pool.get(bufferSize)
		l.r, l.w = 0, 0
	} else if l.r == l.w {
		l.r, l.w = 0, 0
	} else if l.r > 0 && len(l.buf)-l.w < bufferSize/2 {
		l.w = copy(l.buf, l.buf[l.r:l.w])
		l.r = 0
	}
	most := len(l.buf)
	if l.large {
		most = min(most, l.w+ahead)
	}
	n := l.take(l.buf[l.w:most])
	l.w += n
	return n > 0
}

// take reads from the socket.
func (l *link) take(b []byte) int {
	n, err := unix.Read(l.fd, b)
	switch {
	case n > 0:
		l.heard = l.m.clock
		// What is less than there was room for is all there is: a later arrival is
		// told of.
		if n < len(b) && !l.ending {
			l.drained = true
		}
		return n
	case err == unix.EAGAIN:
		l.drained = true
	case err == unix.EINTR:
	case n == 0 && err == nil:
		l.fail(io.EOF)
	default:
		l.fail(err)
	}
	return 0
}

// fail has the link end at the next Poll.
func (l *link) fail(err error) {
	if l.failed == nil {
		l.failed = err
		l.p.touch()
	}
}

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
	if err == nil && h.confirmed > p.path.told {
		err = p.path.heard(h.confirmed)
		p.touch()
	}
	if err != nil {
		p.path.damages++
		l.damaged = true
		l.fail(err)
		return false
	}
	if h.flags&flagAsk != 0 {
		upTo := h.number
		if h.kind != kindNote {
			upTo++
		}
		p.path.asked = max(p.path.asked, upTo)
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
		k := l.take(dst[l.got:])
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

// end closes the link. What it carried goes by others.
func (l *link) end() {
	if l.over {
		return
	}
	l.alive(l.m.clock)
	l.over = true
	l.m.shut(l.fd)
	if l.buf != nil && !l.busy {
		l.m.pool.put(l.buf)
	}
	l.buf, l.r, l.w, l.body = nil, 0, 0, nil
	if l.p.links[l.place] == l {
		l.p.links[l.place] = nil
		l.p.path.down(l.place)
	}
}

func (l *link) String() string {
	way := "accepted"
	if l.called {
		way = "called"
	}
	return fmt.Sprintf("link %d: %v to %v, %s", l.place, l.near, l.far, way)
}

// readiness splits the events of a socket. Its end is both.
func readiness(events uint32) (in, out bool) {
	return events&^unix.EPOLLOUT != 0, events&^(unix.EPOLLIN|unix.EPOLLRDHUP) != 0
}
