package udp

import (
	"encoding/binary"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// source polls one peer. All paths share the socket, and Peek leaves datagrams of other peers to Poll.
type source struct {
	m    *module
	peer framework.Incarnation
	// Path of the frame that Peek returned.
	peeked *recvPath
}

var _ btl.Peeker = (*source)(nil)

// PeerSource implements btl.PeerPoller.
func (m *module) PeerSource(peer framework.Incarnation) progress.Source {
	for _, p := range m.recvPaths {
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

// pollsPerRead is the cost of a read of an empty socket, in polls of memory.
const pollsPerRead = 10

// Peek implements btl.Peeker. It also processes acks, duplicates and frames out of order.
func (s *source) Peek(polls int) []byte {
	m := s.m
	if m.closed {
		return nil
	}
	for ; polls > 0; polls -= pollsPerRead {
		isNew := m.bufferedBytes == 0
		if isNew && m.readDatagram() != nil {
			continue
		}
		b := m.buf[:m.bufferedBytes]
		if len(b) < headerSize || b[1] != version || b[0] != kindData && b[0] != kindAck {
			return s.deferToPoll(isNew)
		}
		p := m.recvPaths[binary.LittleEndian.Uint64(b[8:])]
		if b[0] == kindAck || p != nil && binary.LittleEndian.Uint32(b[4:]) != p.nextSeq {
			m.bufferedBytes = 0
			m.handleDatagram(b, m.bufferedFrom)
			continue
		}
		if frame := b[headerSize+piggybackAckSize(b):]; p != nil && p.peer == s.peer && p.reordered == 0 && len(frame) > 0 {
			s.peeked = p
			return frame
		}
		return s.deferToPoll(isNew)
	}
	return nil
}

// deferToPoll keeps the buffered datagram for Poll. The socket no longer wakes a sleeping process for it.
func (s *source) deferToPoll(isNew bool) []byte {
	if isNew {
		s.m.env.Engine.Nudge()
	}
	return nil
}

// Drop implements btl.Peeker.
func (s *source) Drop() {
	m, p := s.m, s.peeked
	m.handlePiggybackAck(m.buf[:m.bufferedBytes])
	m.bufferedBytes = 0
	p.nextSeq++
	if p.unackedFrames++; p.isAckDue() {
		p.sendAck()
	} else if p.ackDueAt == 0 {
		p.scheduleAck(m.lastClock + ackDelay)
	}
}
