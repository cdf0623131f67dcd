package udp

import (
	"encoding/binary"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// source is the path from one peer, for who waits for a frame of it. All paths share the
// socket: what Peek finds there and may not take is left to Poll.
type source struct {
	m      *module
	peer   framework.Life
	peeked *inbound // has the frame that Peek has just returned
}

// A source saves the way of a frame through the engine and the protocol's queues.
var _ btl.Peeker = (*source)(nil)

// PeerSource implements btl.PeerPoller.
func (m *module) PeerSource(peer framework.Life) progress.Source {
	for _, p := range m.in {
		if p.peer == peer {
			return &source{m: m, peer: peer}
		}
	}
	return nil
}

// Poll implements progress.Source.
func (s *source) Poll() int {
	if s.m.closed {
		return 0
	}
	return s.m.Poll()
}

// looksPerRead is how many looks into memory take as long as a read that finds nothing.
const looksPerRead = 10

// Peek implements btl.Peeker. Confirmations, and frames that came before or too early, concern
// no protocol, and are taken here.
func (s *source) Peek(looks int) []byte {
	m := s.m
	if m.closed {
		return nil
	}
	for ; looks > 0; looks -= looksPerRead {
		fresh := m.kept == 0
		if fresh && m.read() != nil {
			continue
		}
		b := m.buf[:m.kept]
		if len(b) < headerSize || b[1] != version || b[0] != data && b[0] != confirm {
			return s.leave(fresh)
		}
		p := m.in[binary.LittleEndian.Uint64(b[8:])]
		if b[0] == confirm || p != nil && binary.LittleEndian.Uint32(b[4:]) != p.next {
			m.kept = 0
			m.datagram(b, m.from)
			continue
		}
		if frame := b[headerSize+confirmationIn(b):]; p != nil && p.peer == s.peer && p.waits == 0 && len(frame) > 0 {
			s.peeked = p
			return frame
		}
		return s.leave(fresh)
	}
	return nil
}

// leave leaves the datagram that is kept to Poll. Who sleeps would not hear of it: the socket has
// it no more.
func (s *source) leave(fresh bool) []byte {
	if fresh {
		s.m.env.Engine.Nudge()
	}
	return nil
}

// Drop implements btl.Peeker.
func (s *source) Drop() {
	m, p := s.m, s.peeked
	m.confirmation(m.buf[:m.kept])
	m.kept = 0
	p.next++
	if p.news++; p.many() {
		p.confirm()
	} else if p.owes == 0 {
		p.owe(m.at + confirmAfter)
	}
}
