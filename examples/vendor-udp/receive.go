package udp

import (
	"bytes"
	"encoding/binary"
	"slices"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// recvPath is a path from a peer.
type recvPath struct {
	m        *module
	id       uint64
	peer     framework.Incarnation
	greeting []byte
	// Destination of acks.
	dest   syscall.Sockaddr
	upcall btl.Inbound
	// First missing frame.
	nextSeq uint32
	// Frames in reorderBuf.
	reordered int
	// By sequence number modulo maxWindow.
	reorderBuf [maxWindow][]byte

	unackedFrames int
	// Zero if no ack is owed.
	ackDueAt time.Duration
	// Listed in module.ackPaths.
	hasTimer bool
}

// A separate ack costs a datagram, so it is delayed until a frame to the peer carries it, ackEvery frames
// have arrived or ackDelay has passed. Small windows are acked earlier.
const (
	ackDelay = time.Millisecond
	ackEvery = 8
)

// acceptPath creates the path if it is new, and replies to every request to open it.
func (m *module) acceptPath(id uint64, greeting []byte, from syscall.Sockaddr) {
	p := m.recvPaths[id]
	switch {
	case m.closed:
		m.sendControl(kindRefused, id, 0, nil, from)
		return
	case p != nil && !bytes.Equal(p.greeting, greeting): // The id belongs to another path.
		return
	case p == nil:
		peer, err := m.env.Greeted(greeting)
		if err != nil {
			m.sendControl(kindRefused, id, 0, truncateReason(err.Error()), from)
			return
		}
		p = &recvPath{m: m, id: id, peer: peer, greeting: slices.Clone(greeting), dest: from, upcall: m.env.Upcall.Accept(peer)}
		m.recvPaths[id] = p
		for _, e := range m.sendPaths {
			if e.peer == peer {
				e.reverse = p
			}
		}
	}
	m.sendControl(kindOpened, id, 0, nil, from)
}

// handleData delivers a frame, and those behind it in the reorder buffer. Frames out of order are buffered.
func (p *recvPath) handleData(number uint32, frame []byte) {
	distance := number - p.nextSeq
	if len(frame) == 0 || distance >= maxWindow {
		p.scheduleAck(p.m.lastClock) // A duplicate. Its ack may be lost.
		return
	}
	if distance > 0 {
		if slot := &p.reorderBuf[number%maxWindow]; *slot == nil {
			*slot = slices.Clone(frame)
			p.reordered++
		}
		p.scheduleAck(p.m.lastClock) // The gap is reported at once.
		return
	}
	for frame != nil {
		p.nextSeq++
		p.unackedFrames++
		if err := p.upcall.Frame(frame); err != nil {
			delete(p.m.recvPaths, p.id)
			p.m.sendControl(kindRefused, p.id, 0, truncateReason("invalid frame: "+err.Error()), p.dest)
			p.ackDueAt = 0
			p.m.env.Ended("btl udp", p.peer, "receive", err)
			return
		}
		slot := &p.reorderBuf[p.nextSeq%maxWindow]
		if frame, *slot = *slot, nil; frame != nil {
			p.reordered--
		}
	}
	if p.isAckDue() {
		p.scheduleAck(p.m.lastClock)
	} else if p.ackDueAt == 0 {
		p.scheduleAck(p.m.lastClock + ackDelay)
	}
}

func (p *recvPath) isAckDue() bool { return p.unackedFrames >= min(ackEvery, (p.m.params.Window+3)/4) }

// scheduleAck sends an ack at that time, or earlier with a frame to the peer.
func (p *recvPath) scheduleAck(at time.Duration) {
	if !p.hasTimer {
		p.hasTimer = true
		p.m.ackPaths = append(p.m.ackPaths, p)
	}
	p.ackDueAt = at
	p.m.scheduleTimers(at)
}

func (p *recvPath) sendAck() {
	p.ackDueAt, p.unackedFrames = 0, 0
	var body [8]byte
	binary.LittleEndian.PutUint64(body[:], p.selectiveAcks())
	p.m.sendControl(kindAck, p.id, p.nextSeq, body[:], p.dest)
}

// appendOwedAck writes an owed ack to b and returns its size, or 0. p may be nil.
func (p *recvPath) appendOwedAck(b []byte) int {
	if p == nil || p.ackDueAt == 0 {
		return 0
	}
	p.ackDueAt, p.unackedFrames = 0, 0
	binary.LittleEndian.PutUint64(b, p.id)
	binary.LittleEndian.PutUint32(b[8:], p.nextSeq)
	binary.LittleEndian.PutUint64(b[12:], p.selectiveAcks())
	return ackSize
}

// selectiveAcks returns a bit for each frame in the reorder buffer. Bit i stands for nextSeq+1+i.
func (p *recvPath) selectiveAcks() (more uint64) {
	if p.reordered == 0 {
		return 0
	}
	for i := range uint32(maxWindow - 1) {
		if p.reorderBuf[(p.nextSeq+1+i)%maxWindow] != nil {
			more |= 1 << i
		}
	}
	return more
}

func truncateReason(reason string) []byte { return []byte(reason[:min(len(reason), maxReason)]) }
