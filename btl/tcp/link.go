package tcp

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
)

// link is one TCP connection with a peer, after the handshake.
type link struct {
	module      *module
	peer        *peerConn
	slot        int
	fd          int
	localAddr   netip.AddrPort
	remoteAddr  netip.AddrPort
	isCaller    bool
	isEncrypted bool

	broken  error // it fails when the system has nothing more of it
	failed  error // it ends when what has come is taken
	damaged bool  // nothing more of it is taken
	over    bool  // it has ended, and the descriptor is closed
	early   bool  // the frame that comes next is not due yet

	liveness     liveness
	isQueued     bool // In module.readyLinks.
	isDrained    bool // The socket is empty.
	hasHangup    bool // The socket has reported its end.
	isDelivering bool // A frame is in an upcall.
	readState
}

// readState is the incoming byte stream of a link.
type readState struct {
	buf      []byte // Bytes readPos to writePos are unread; nil if empty.
	readPos  int
	writePos int

	expectsLarge bool // The last frame was large, so that little is read ahead.

	// The current frame.
	has             bool
	header          header
	mode            readMode
	received        int // Bytes of the frame so far.
	gatherHeader    [btl.GatherHeader]byte
	body            []byte // Memory of an assembled frame.
	isPlaced        bool   // The protocol has given memory for the payload.
	outOfOrderSince time.Duration
}

// handleEvents implements user.
func (l *link) handleEvents(events uint32) {
	if l.over {
		return
	}
	in, out := splitEvents(events)
	if in {
		l.isDrained = false
		l.hasHangup = l.hasHangup || events&^(unix.EPOLLIN|unix.EPOLLOUT) != 0
		if l.canRead() {
			l.enqueue()
		}
	}
	if c := &l.peer.path.queues[l.slot]; out && c.isBlocked {
		c.isBlocked = false
		l.peer.markPending()
	}
}

// canRead reports whether read may bring something.
func (l *link) canRead() bool {
	return !l.over && !l.early && (!l.isDrained && l.failed == nil || l.hasBufferedFrame())
}

// hasBufferedFrame reports whether something in buf can be taken without more from the socket.
func (l *link) hasBufferedFrame() bool {
	switch have := l.writePos - l.readPos; {
	case l.damaged || l.early:
		return false
	case !l.has:
		return have >= headerSize
	case l.mode == modeUndecided:
		return have >= l.header.gatherSize
	case l.mode == modeBuffered:
		return have >= l.header.bodySize
	default:
		return have > 0
	}
}

// needsPoll reports whether a direct read has left something that no event will announce:
// in buf, or possibly in TLS.
func (l *link) needsPoll() bool { return l.canRead() && (l.hasBufferedFrame() || l.isEncrypted) }

func (l *link) enqueue() {
	if !l.isQueued {
		l.isQueued = true
		l.module.readyLinks = append(l.module.readyLinks, l)
	}
}

// fillBuffer reads what has come into buf, and reports whether that was anything.
func (l *link) fillBuffer() bool {
	if l.isDrained || l.failed != nil {
		return false
	}
	if l.buf == nil {
		l.buf = l.module.buffers.get(readBufferSize)
		l.readPos, l.writePos = 0, 0
	} else if l.readPos == l.writePos {
		l.readPos, l.writePos = 0, 0
	} else if l.readPos > 0 && len(l.buf)-l.writePos < readBufferSize/2 {
		l.writePos = copy(l.buf, l.buf[l.readPos:l.writePos])
		l.readPos = 0
	}
	most := len(l.buf)
	if l.expectsLarge {
		most = min(most, l.writePos+readAheadSize)
	}
	n := l.readInto(l.buf[l.writePos:most])
	l.writePos += n
	return n > 0
}

// readInto reads from the socket.
func (l *link) readInto(b []byte) int {
	n, err := l.module.readSocket(l.fd, b)
	return l.handleRead(n, len(b), err)
}

// readBodyAndHeader reads the rest of a large frame, and with the same system call the header of
// the next one, into buf, which is empty.
func (l *link) readBodyAndHeader(rest []byte) int {
	if l.isEncrypted { // what has come is in memory already
		return l.readInto(rest)
	}
	if l.buf == nil {
		l.buf = l.module.buffers.get(readBufferSize)
	}
	l.module.scratch.readVec[0], l.module.scratch.readVec[1] = rest, l.buf[:readAheadSize]
	n, err := unix.Readv(l.fd, l.module.scratch.readVec[:])
	clear(l.module.scratch.readVec[:])
	n = l.handleRead(n, len(rest)+readAheadSize, err)
	l.readPos, l.writePos = 0, max(0, n-len(rest))
	return n - l.writePos
}

// handleRead says what a read of so many bytes, of at most so many, means.
func (l *link) handleRead(n, most int, err error) int {
	switch {
	case n > 0:
		l.liveness.lastReadAt = l.module.timers.now
		// What is less than there was room for is all there is: a later arrival is
		// told of. TLS gives no more than a record at a time.
		if n < most && !l.hasHangup && !l.isEncrypted {
			l.isDrained = true
		}
		return n
	case err == unix.EINTR:
	case l.broken != nil:
		l.fail(l.broken)
	case err == unix.EAGAIN:
		l.isDrained = true
	case n == 0 && err == nil:
		l.fail(io.EOF)
	default:
		l.fail(err)
	}
	return 0
}

// failAfterDrain has the link fail when all that the system has of it is read: the peer may have
// closed, or died, and what it said before is whole.
func (l *link) failAfterDrain(err error) {
	if l.broken == nil {
		l.broken = err
	}
	l.hasHangup, l.isDrained = true, false
	l.enqueue()
	l.peer.markPending()
}

// fail has the link end at the next Poll.
func (l *link) fail(err error) {
	if l.failed == nil {
		l.failed = err
		l.peer.markPending()
	}
}

// failDamaged has the link end because what it carries makes no sense: nothing more of it is taken.
func (l *link) failDamaged(err error) {
	l.damaged = true
	l.fail(err)
}

// close closes the link. What it carried goes by others.
func (l *link) close() {
	if l.over {
		return
	}
	l.updateLiveness(l.module.timers.now)
	l.over = true
	l.module.closeSocket(l.fd)
	if l.buf != nil && !l.isDelivering {
		l.module.buffers.put(l.buf)
	}
	l.buf, l.readPos, l.writePos, l.body = nil, 0, 0, nil
	if l.peer.links[l.slot] == l {
		l.peer.links[l.slot] = nil
		l.peer.path.linkDown(l.slot)
	}
}

func (l *link) String() string {
	way := "accepted"
	if l.isCaller {
		way = "called"
	}
	if l.isEncrypted {
		way += ", TLS"
	}
	return fmt.Sprintf("link %d: %v to %v, %s", l.slot, l.localAddr, l.remoteAddr, way)
}

// splitEvents splits the events of a socket. Its end is both.
func splitEvents(events uint32) (in, out bool) {
	return events&^unix.EPOLLOUT != 0, events&^(unix.EPOLLIN|unix.EPOLLRDHUP) != 0
}
