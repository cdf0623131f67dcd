package tcp

import (
	"fmt"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"
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

	state connState
	// Reason of the state, from connDraining on.
	lossErr  error
	liveness liveness

	isQueued       bool
	isSocketEmpty  bool
	hasSocketEnded bool
	isInUpcall     bool
	readState
}

// connState is the state of a link. It only increases.
type connState uint8

const (
	connOpen     connState = iota
	connDraining           // A write has failed. The link fails at the end of the incoming stream.
	connFailed             // The link closes when the buffered frames are delivered.
	connDamaged            // The link closes without them.
	connClosed
)

// handleEvents implements socketHandler.
func (l *link) handleEvents(events uint32) {
	if l.state == connClosed {
		return
	}
	in, out := splitEvents(events)
	if in {
		l.isSocketEmpty = false
		l.hasSocketEnded = l.hasSocketEnded || events&^(unix.EPOLLIN|unix.EPOLLOUT) != 0
		if l.canRead() {
			l.enqueue()
		}
	}
	if q := &l.peer.path.queuesBySlot[l.slot]; out && q.isSocketFull {
		q.isSocketFull = false
		l.peer.markPending()
	}
}

// canRead reports whether readFrames may make progress.
func (l *link) canRead() bool {
	return l.state < connClosed && l.readMode != modeOutOfOrder && (!l.isSocketEmpty && l.state < connFailed || l.hasBufferedFrame())
}

// hasBufferedFrame reports whether readBuf allows progress without a read of the socket.
func (l *link) hasBufferedFrame() bool {
	if l.state >= connDamaged {
		return false
	}
	switch unread := l.writePos - l.readPos; l.readMode {
	case modeOutOfOrder:
		return false
	case modeHeader:
		return unread >= headerSize
	case modeUndecided:
		return unread >= l.frameHeader.gatherSize
	case modeBuffered:
		return unread >= l.frameHeader.bodySize
	default:
		return unread > 0
	}
}

// needsPoll reports whether a direct read has left data that no event announces, in readBuf or in TLS.
func (l *link) needsPoll() bool { return l.canRead() && (l.hasBufferedFrame() || l.isEncrypted) }

// enqueue adds the link to module.readyLinks.
func (l *link) enqueue() {
	if !l.isQueued {
		l.isQueued = true
		l.module.readyLinks = append(l.module.readyLinks, l)
	}
}

// failAfterDrain fails the link at the end of the incoming stream, because the last frames of a
// peer that has closed or died may be in the socket.
func (l *link) failAfterDrain(err error) {
	if l.state == connOpen {
		l.state, l.lossErr = connDraining, err
	}
	l.hasSocketEnded, l.isSocketEmpty = true, false
	l.enqueue()
	l.peer.markPending()
}

// fail closes the link at the next poll. The first error stays.
func (l *link) fail(err error) {
	if l.state < connFailed {
		l.state, l.lossErr = connFailed, err
		l.peer.markPending()
	}
}

// failDamaged fails the link and drops its buffered bytes.
func (l *link) failDamaged(err error) {
	l.fail(err)
	l.state = max(l.state, connDamaged)
}

// close closes the link. Its unacked frames are retransmitted on others.
func (l *link) close() {
	if l.state == connClosed {
		return
	}
	l.updateLiveness(l.module.timers.lastClock)
	l.state = connClosed
	l.module.closeSocket(l.fd)
	if l.readBuf != nil && !l.isInUpcall {
		l.module.bufferPool.put(l.readBuf)
	}
	l.readBuf, l.readPos, l.writePos, l.frameBody = nil, 0, 0, nil
	if l.peer.linksBySlot[l.slot] == l {
		l.peer.linksBySlot[l.slot] = nil
		l.peer.path.linkDown(l.slot)
	}
}

func (l *link) String() string {
	origin := "accepted"
	if l.isCaller {
		origin = "dialed"
	}
	if l.isEncrypted {
		origin += ", TLS"
	}
	return fmt.Sprintf("link %d: %v to %v, %s", l.slot, l.localAddr, l.remoteAddr, origin)
}

// splitEvents splits the events of a socket. The end of the stream is both.
func splitEvents(events uint32) (in, out bool) {
	return events&^unix.EPOLLOUT != 0, events&^(unix.EPOLLIN|unix.EPOLLRDHUP) != 0
}

// fillBuffer reads from the socket into readBuf, and reports whether it got data.
func (l *link) fillBuffer() bool {
	if l.isSocketEmpty || l.state >= connFailed {
		return false
	}
	if l.readBuf == nil {
		l.readBuf = l.module.bufferPool.get(readBufferSize)
		l.readPos, l.writePos = 0, 0
	} else if l.readPos == l.writePos {
		l.readPos, l.writePos = 0, 0
	} else if l.readPos > 0 && len(l.readBuf)-l.writePos < readBufferSize/2 {
		l.writePos = copy(l.readBuf, l.readBuf[l.readPos:l.writePos])
		l.readPos = 0
	}
	end := len(l.readBuf)
	if l.expectsLarge {
		end = min(end, l.writePos+readAheadSize)
	}
	n := l.readInto(l.readBuf[l.writePos:end])
	l.writePos += n
	return n > 0
}

// readInto reads from the socket into b, and returns the number of bytes.
func (l *link) readInto(b []byte) int {
	n, err := l.module.readSocket(l.fd, b)
	return l.handleRead(n, len(b), err)
}

// readBodyAndHeader reads the rest of a large frame, and in the same system call the header of
// the next one into readBuf, which must be empty. It returns the bytes of rest.
func (l *link) readBodyAndHeader(rest []byte) int {
	if l.isEncrypted {
		return l.readInto(rest)
	}
	if l.readBuf == nil {
		l.readBuf = l.module.bufferPool.get(readBufferSize)
	}
	vec := &l.module.scratch.readVec
	vec[0], vec[1] = rest, l.readBuf[:readAheadSize]
	n, err := unix.Readv(l.fd, vec[:])
	clear(vec[:])
	n = l.handleRead(n, len(rest)+readAheadSize, err)
	l.readPos, l.writePos = 0, max(0, n-len(rest))
	return n - l.writePos
}

// handleRead updates the state after a read of n bytes into a buffer of size bytes. It returns the bytes.
func (l *link) handleRead(n, size int, err error) int {
	switch {
	case n > 0:
		l.liveness.lastReadAt = l.module.timers.lastClock
		// A short read has emptied the socket, and an event announces later bytes. TLS returns at
		// most one record.
		if n < size && !l.hasSocketEnded && !l.isEncrypted {
			l.isSocketEmpty = true
		}
		return n
	case err == unix.EINTR:
	case l.state == connDraining:
		l.fail(l.lossErr)
	case err == unix.EAGAIN:
		l.isSocketEmpty = true
	case n == 0 && err == nil:
		l.fail(io.EOF)
	default:
		l.fail(err)
	}
	return 0
}
