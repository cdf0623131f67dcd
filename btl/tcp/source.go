package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/nowait"
)

// source polls the path from one peer: its sockets are read, and no other is looked at.
type source struct {
	p      *pair
	peeked *link // has the frame that Peek returned last
}

// Poll implements progress.Source. It hands up one frame, as whoever asks for it waits for
// one as a rule.
func (s *source) Poll() (n int) {
	p := s.p
	m := p.m
	if p.over {
		return 0
	}
	m.polling = true
	m.visits++
	for _, l := range p.links[:len(p.path.links)] {
		if l == nil || l.early || n > 0 {
			continue
		}
		if l.failed == nil {
			l.drained = false
		}
		n += l.read(1)
		if l.again() {
			l.list()
		}
	}
	if p.dirty && !p.over {
		p.settle() // it stays listed, which does no harm
	}
	m.polling = false
	return n
}

// Peek implements btl.Peeker.
func (s *source) Peek(looks int) []byte {
	p := s.p
	if p.over {
		return nil
	}
	p.m.visits++
	if p.dirty {
		p.write()
	}
	for range max(1, looks/(looksPerRead*max(1, len(p.path.links)))) {
		if f := s.peek(); f != nil {
			return f
		}
	}
	return nil
}

// looksPerRead is how many looks into memory take as long as a read that finds nothing.
const looksPerRead = 10

// peek reads each of the path's sockets once.
func (s *source) peek() []byte {
	p := s.p
	for _, l := range p.links[:len(p.path.links)] {
		if l == nil || l.early || l.over || l.busy {
			continue
		}
		if l.failed == nil {
			l.drained = false
			if !l.has && l.r == l.w && !l.encrypted && !l.sees() {
				continue
			}
		}
		for !l.damaged {
			ok, whole := l.step(false)
			if whole && l.h.kind == kindFrame && (l.way == together || l.way == apart) && l.h.gathered == 0 {
				s.peeked = l
				l.list() // if nobody drops it
				if l.way == apart {
					return l.body[:l.h.size]
				}
				return l.buf[l.r : l.r+l.h.size : l.r+l.h.size]
			}
			if whole || !ok {
				break
			}
		}
		l.list() // a Poll takes what is here
	}
	return nil
}

// sees is fill where nothing is in buf, with few calls in between: who waits for a message
// is here again and again. Where it finds nothing, a Poll looks once more.
func (l *link) sees() bool {
	if l.buf == nil {
		l.buf = l.m.pool.get(bufferSize)
	}
	most := bufferSize
	if l.large {
		most = ahead
	}
	n, e := nowait.Read(l.fd, l.buf[:most])
	if e == unix.EAGAIN {
		l.drained = true
		l.list()
		return false
	}
	n, err := result(n, e)
	l.r, l.w = 0, l.took(n, most, err)
	return true
}

// Drop implements btl.Peeker. Another link may be in the midst of the same frame, which has
// gone out again: only the one that was peeked at has all of it.
func (s *source) Drop() {
	p, l := s.p, s.peeked
	if s.peeked = nil; l == nil || l.over || !l.has || p.path.arrive(l.h.number) != handUp {
		return
	}
	h := l.h
	l.has = false
	if l.way == together {
		l.r += h.size
		l.large = false
	} else {
		p.m.pool.put(l.body)
		l.body = nil
	}
	p.received(headerSize + h.size)
	p.unstash()
	if l.rest(); l.again() {
		l.list()
	}
}
