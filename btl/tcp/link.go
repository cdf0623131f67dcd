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
	lastAlive  time.Duration // the other end's host was heard of
	broken     error         // it fails when the system has nothing more of it
	failed     error         // it ends when what has come is taken
	damaged    bool          // nothing more of it is taken
	waits      time.Duration // since then it waits for the other host to acknowledge something; 0: it does not
	trip       time.Duration // how long that may take
	pathMTU    int           // Path MTU in bytes, as the system assumes it; 0: not known.
	encrypted  bool          // by TLS
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

// again reports whether a direct read has left something that no event will announce:
// in buf, or possibly in TLS.
func (l *link) again() bool { return l.readable() && (l.pending() || l.encrypted) }

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
	n, err := l.m.input(l.fd, b)
	return l.took(n, len(b), err)
}

// takeFrame reads the rest of a large frame, and with the same system call the header of
// the next one, into buf, which is empty.
func (l *link) takeFrame(rest []byte) int {
	if l.encrypted { // what has come is in memory already
		return l.take(rest)
	}
	if l.buf == nil {
		l.buf = l.m.pool.get(bufferSize)
	}
	l.m.pair[0], l.m.pair[1] = rest, l.buf[:ahead]
	n, err := unix.Readv(l.fd, l.m.pair[:])
	clear(l.m.pair[:])
	n = l.took(n, len(rest)+ahead, err)
	l.r, l.w = 0, max(0, n-len(rest))
	return n - l.w
}

// took says what a read of so many bytes, of at most so many, means.
func (l *link) took(n, most int, err error) int {
	switch {
	case n > 0:
		l.heard = l.m.clock
		// What is less than there was room for is all there is: a later arrival is
		// told of. TLS gives no more than a record at a time.
		if n < most && !l.ending && !l.encrypted {
			l.drained = true
		}
		return n
	case err == unix.EINTR:
	case l.broken != nil:
		l.fail(l.broken)
	case err == unix.EAGAIN:
		l.drained = true
	case n == 0 && err == nil:
		l.fail(io.EOF)
	default:
		l.fail(err)
	}
	return 0
}

// breaks has the link fail when all that the system has of it is read: the peer may have
// closed, or died, and what it said before is whole.
func (l *link) breaks(err error) {
	if l.broken == nil {
		l.broken = err
	}
	l.ending, l.drained = true, false
	l.list()
	l.p.touch()
}

// fail has the link end at the next Poll.
func (l *link) fail(err error) {
	if l.failed == nil {
		l.failed = err
		l.p.touch()
	}
}

// spoil has the link end because what it carries makes no sense: nothing more of it is taken.
func (l *link) spoil(err error) {
	l.damaged = true
	l.fail(err)
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
	if l.encrypted {
		way += ", TLS"
	}
	return fmt.Sprintf("link %d: %v to %v, %s", l.place, l.near, l.far, way)
}

// readiness splits the events of a socket. Its end is both.
func readiness(events uint32) (in, out bool) {
	return events&^unix.EPOLLOUT != 0, events&^(unix.EPOLLIN|unix.EPOLLRDHUP) != 0
}
