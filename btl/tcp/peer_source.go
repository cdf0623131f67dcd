package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/rawsys"
)

// peerSource polls the path from one peer. It reads the sockets of this peer only.
type peerSource struct {
	peer       *peerConn
	peekedLink *link
}

// Poll implements progress.Source. It delivers at most one frame, since a caller usually waits for one.
func (s *peerSource) Poll() (n int) {
	p := s.peer
	m := p.module
	if p.isClosed {
		return 0
	}
	m.pacer.pollCount++
	for _, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
		if l == nil || l.readMode == modeOutOfOrder || n > 0 {
			continue
		}
		if l.state < connFailed {
			l.isSocketEmpty = false
		}
		n += l.readFrames(1)
		if l.needsPoll() {
			l.enqueue()
		}
	}
	if p.isPending && !p.isClosed {
		p.processPending()
	}
	return n
}

// Peek implements btl.Peeker. It reads the sockets about as long as that many polls of memory take.
func (s *peerSource) Peek(polls int) []byte {
	p := s.peer
	if p.isClosed {
		return nil
	}
	p.module.pacer.pollCount++
	if p.isPending {
		p.writeLinks()
	}
	for range max(1, polls/(pollsPerRead*max(1, len(p.path.queuesBySlot)))) {
		if f := s.peekOnce(); f != nil {
			return f
		}
	}
	return nil
}

// pollsPerRead is the number of polls of memory in the time of an empty read.
const pollsPerRead = 10

// peekOnce reads each socket of the peer once.
func (s *peerSource) peekOnce() []byte {
	p := s.peer
	for _, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
		if l == nil || l.readMode == modeOutOfOrder || l.state == connClosed || l.isInUpcall {
			continue
		}
		if l.state < connFailed {
			l.isSocketEmpty = false
			if l.readMode == modeHeader && l.readPos == l.writePos && !l.isEncrypted && !l.tryRead() {
				continue
			}
		}
		for l.state < connDamaged {
			ok, whole := l.readStep(false)
			if whole && l.frameHeader.kind == kindFrame && (l.readMode == modeBuffered || l.readMode == modeAssembled) && l.frameHeader.gatherSize == 0 {
				s.peekedLink = l
				// Without a Drop the next poll delivers it.
				l.enqueue()
				if l.readMode == modeAssembled {
					return l.frameBody[:l.frameHeader.bodySize]
				}
				return l.readBuf[l.readPos : l.readPos+l.frameHeader.bodySize : l.readPos+l.frameHeader.bodySize]
			}
			if whole || !ok {
				break
			}
		}
		l.enqueue()
	}
	return nil
}

// tryRead is fillBuffer for an empty readBuf, with few calls, because a waiting rank runs it in a loop.
func (l *link) tryRead() bool {
	if l.readBuf == nil {
		l.readBuf = l.module.bufferPool.get(readBufferSize)
	}
	most := readBufferSize
	if l.expectsLarge {
		most = readAheadSize
	}
	n, e := rawsys.Read(l.fd, l.readBuf[:most])
	if e == unix.EAGAIN {
		l.isSocketEmpty = true
		l.enqueue()
		return false
	}
	n, err := readResult(n, e)
	l.readPos, l.writePos = 0, l.handleRead(n, most, err)
	return true
}

// Drop implements btl.Peeker. Another link may have a part of the same frame, so only the peeked link
// drops it.
func (s *peerSource) Drop() {
	p, l := s.peer, s.peekedLink
	if s.peekedLink = nil; l == nil || l.state == connClosed || l.readMode == modeHeader || p.path.classify(l.frameHeader.number) != arrivalInOrder {
		return
	}
	h := l.frameHeader
	mode := l.readMode
	l.readMode = modeHeader
	if mode == modeBuffered {
		l.readPos += h.bodySize
		l.expectsLarge = false
	} else {
		p.module.bufferPool.put(l.frameBody)
		l.frameBody = nil
	}
	p.recordInOrder(headerSize + h.bodySize)
	p.deliverBuffered()
	if l.releaseBuffer(); l.needsPoll() {
		l.enqueue()
	}
}
