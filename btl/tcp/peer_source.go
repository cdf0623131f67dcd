package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/nowait"
)

// peerSource polls the path from one peer: its sockets are read, and no other is looked at.
type peerSource struct {
	peer       *peerConn
	peekedLink *link // has the frame that Peek returned last
}

// Poll implements progress.Source. It hands up one frame, as whoever asks for it waits for
// one as a rule.
func (s *peerSource) Poll() (n int) {
	p := s.peer
	m := p.module
	if p.isClosed {
		return 0
	}
	m.pacer.pollCount++
	for _, l := range p.links[:len(p.path.queues)] {
		if l == nil || l.early || n > 0 {
			continue
		}
		if l.failed == nil {
			l.isDrained = false
		}
		n += l.readFrames(1)
		if l.needsPoll() {
			l.enqueue()
		}
	}
	if p.isPending && !p.isClosed {
		p.processPending() // it stays listed, which does no harm
	}
	return n
}

// Peek implements btl.Peeker.
func (s *peerSource) Peek(looks int) []byte {
	p := s.peer
	if p.isClosed {
		return nil
	}
	p.module.pacer.pollCount++
	if p.isPending {
		p.writeLinks()
	}
	for range max(1, looks/(pollsPerRead*max(1, len(p.path.queues)))) {
		if f := s.peekOnce(); f != nil {
			return f
		}
	}
	return nil
}

// pollsPerRead is how many looks into memory take as long as a read that finds nothing.
const pollsPerRead = 10

// peekOnce reads each of the path's sockets once.
func (s *peerSource) peekOnce() []byte {
	p := s.peer
	for _, l := range p.links[:len(p.path.queues)] {
		if l == nil || l.early || l.over || l.isDelivering {
			continue
		}
		if l.failed == nil {
			l.isDrained = false
			if !l.has && l.readPos == l.writePos && !l.isEncrypted && !l.tryRead() {
				continue
			}
		}
		for !l.damaged {
			ok, whole := l.readStep(false)
			if whole && l.header.kind == kindFrame && (l.mode == modeBuffered || l.mode == modeAssembled) && l.header.gatherSize == 0 {
				s.peekedLink = l
				l.enqueue() // if nobody drops it
				if l.mode == modeAssembled {
					return l.body[:l.header.bodySize]
				}
				return l.buf[l.readPos : l.readPos+l.header.bodySize : l.readPos+l.header.bodySize]
			}
			if whole || !ok {
				break
			}
		}
		l.enqueue() // a Poll takes what is here
	}
	return nil
}

// tryRead is fill where nothing is in buf, with few calls in between: who waits for a message
// is here again and again. Where it finds nothing, a Poll looks once more.
func (l *link) tryRead() bool {
	if l.buf == nil {
		l.buf = l.module.buffers.get(readBufferSize)
	}
	most := readBufferSize
	if l.expectsLarge {
		most = readAheadSize
	}
	n, e := nowait.Read(l.fd, l.buf[:most])
	if e == unix.EAGAIN {
		l.isDrained = true
		l.enqueue()
		return false
	}
	n, err := readResult(n, e)
	l.readPos, l.writePos = 0, l.handleRead(n, most, err)
	return true
}

// Drop implements btl.Peeker. Another link may be in the midst of the same frame, which has
// gone out again: only the one that was peeked at has all of it.
func (s *peerSource) Drop() {
	p, l := s.peer, s.peekedLink
	if s.peekedLink = nil; l == nil || l.over || !l.has || p.path.classify(l.header.number) != arrivalInOrder {
		return
	}
	h := l.header
	l.has = false
	if l.mode == modeBuffered {
		l.readPos += h.bodySize
		l.expectsLarge = false
	} else {
		p.module.buffers.put(l.body)
		l.body = nil
	}
	p.recordInOrder(headerSize + h.bodySize)
	p.deliverBuffered()
	if l.releaseBuffer(); l.needsPoll() {
		l.enqueue()
	}
}
