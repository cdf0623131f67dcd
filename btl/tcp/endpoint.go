package tcp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// endpoint is the sending end of the path to a peer.
type endpoint struct {
	// nil if closed.
	peer          *peerConn
	wasUsed       bool
	reservedChunk *chunk
	// The last reservation, header included.
	reservedFrame []byte
}

// Reach implements btl.Module. It checks only the card.
func (m *module) Reach(peer framework.Peer) error {
	_, err := m.decodeReachable(peer)
	return err
}

func (m *module) decodeReachable(peer framework.Peer) (*businessCard, error) {
	if peer.Proc == m.env.Identity.Proc {
		return nil, btl.NotMeant("serves only other processes")
	}
	card, err := decodeCard(peer.Blob)
	if err != nil {
		return nil, err
	}
	if err := m.config.security.mismatch(card.security); err != nil {
		return nil, err
	}
	if len(card.publishedAddrs) == 0 {
		return nil, fmt.Errorf("the peer has published no address: see btl.tcp.address_include there")
	}
	if p := m.peers.byIncarnation[peer.Incarnation]; p != nil && p.wasConnected {
		return &card, nil
	}
	ifs := m.hostInterfaces()
	if len(netaddr.Order(ifs, card.publishedAddrs)) == 0 {
		return nil, fmt.Errorf("none of the peer's addresses is usable from here: %v", card.publishedAddrs)
	}
	return &card, nil
}

// Connect implements btl.Module.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	card, err := m.decodeReachable(peer)
	if err != nil {
		return nil, err
	}
	p := m.peers.byIncarnation[peer.Incarnation]
	if p == nil {
		p = m.newPeerConn(peer.Incarnation, card)
	}
	p.setCard(card)
	if p.outboundPath.endpoint != nil {
		p.outboundPath.endpoint.Close()
	}
	p.outboundPath.endpoint = &endpoint{peer: p}
	// A poll reports the limits, when the protocol has the endpoint.
	p.outboundPath.hasReportedLimits = false
	p.outboundPath.pathsOpened++
	p.sendControl(kindOpen, binary.LittleEndian.AppendUint64(nil, p.outboundPath.pathsOpened))
	m.scheduleAt(0)
	m.pacer.pollsUntilSockets = 0
	return p.outboundPath.endpoint, nil
}

// canSend reports whether a frame of n bytes can be sent now. Without room it requests an ack.
func (e *endpoint) canSend(n int) bool {
	p := e.peer
	if p == nil || !p.outboundPath.hasReportedLimits {
		return false
	}
	if !p.path.hasRoom(headerSize + n) {
		p.module.pacer.pollsUntilSockets = 0
		if p.acks.requestedUpTo < p.path.nextNumber {
			p.requestAck()
		}
		return false
	}
	e.wasUsed = true
	return true
}

// requestAck requests the ack of all frames from the peer.
func (p *peerConn) requestAck() {
	if p.acks.requestedUpTo = p.path.nextNumber; !p.path.queueAck(true) {
		p.acks.requestedUpTo = 0
	}
	p.markPending()
}

// Reserve implements btl.Endpoint. The memory belongs to the send buffer.
func (e *endpoint) Reserve(n int, _ btl.Placement) []byte {
	if !e.canSend(n) {
		return nil
	}
	e.reservedChunk, e.reservedFrame = e.peer.sendBuffer.reserve(headerSize + n)
	return e.reservedFrame[headerSize:]
}

// Commit implements btl.Endpoint.
func (e *endpoint) Commit(n int) {
	if e.peer == nil || e.reservedFrame == nil {
		return
	}
	h := header{bodySize: n, kind: kindFrame}
	e.commitFrame(h, e.reservedFrame[:headerSize+n], nil, nil)
}

// SendShort implements btl.ShortSender.
func (e *endpoint) SendShort(h btl.ShortHeader, payload []byte) bool {
	n := btl.ShortHeaderSize + len(payload)
	if !e.canSend(n) {
		return false
	}
	var b []byte
	e.reservedChunk, b = e.peer.sendBuffer.reserve(headerSize + n)
	h.Put(b[headerSize:])
	copy(b[headerSize+btl.ShortHeaderSize:], payload)
	e.commitFrame(header{bodySize: n, kind: kindFrame}, b, nil, nil)
	return true
}

// Gather implements btl.Gatherer.
func (e *endpoint) Gather(head, payload []byte, c btl.LocalCompletion) bool {
	n := len(head) + len(payload)
	if len(head) > btl.GatherHeader || !e.canSend(n) {
		return false
	}
	var b []byte
	e.reservedChunk, b = e.peer.sendBuffer.reserve(headerSize + len(head))
	copy(b[headerSize:], head)
	e.commitFrame(header{bodySize: n, kind: kindFrame, gatherSize: len(head)}, b, payload, c)
	return true
}

// commitFrame adds a frame to the path, and writes it if possible.
func (e *endpoint) commitFrame(h header, head, payload []byte, c btl.LocalCompletion) {
	p := e.peer
	h.encode(head)
	at := e.reservedChunk.usedBytes
	number := p.path.push(frame{copiedBytes: head, borrowedPayload: payload, completion: c, chunk: e.reservedChunk, chunkOffset: at})
	p.sendBuffer.commit(len(head), number)
	e.reservedFrame = nil
	p.flushFrames()
}

// maxImmediateWrites is the number of small frames that leave at once after a poll. Later ones wait for
// the next poll, or until flushThreshold bytes justify a system call.
const (
	maxImmediateWrites = 1
	flushThreshold     = 16 << 10
)

// flushFrames writes waiting frames now, or schedules them for the next poll.
func (p *peerConn) flushFrames() {
	if p.batching.pollCount != p.module.pacer.pollCount {
		p.batching.pollCount, p.batching.immediateWrites = p.module.pacer.pollCount, 0
	}
	if p.batching.immediateWrites < maxImmediateWrites || p.path.bytesUnassigned >= flushThreshold {
		p.batching.immediateWrites++
		p.writeLinks()
		if !p.path.hasUnassigned() {
			return
		}
	}
	p.markPending()
}

// Idle implements btl.Endpoint. It reports whether all frames are acked, and otherwise requests the ack.
func (e *endpoint) Idle() bool {
	p := e.peer
	if p == nil || p.path.isIdle() {
		return true
	}
	if p.acks.requestedUpTo < p.path.nextNumber && p.path.countUp() > 0 && !p.path.hasUnassigned() {
		p.requestAck()
	}
	return false
}

// Close implements btl.Endpoint. Committed frames stay until they are acked. It copies borrowed payloads.
func (e *endpoint) Close() {
	p := e.peer
	if p == nil {
		return
	}
	e.peer, p.outboundPath.endpoint = nil, nil
	for n := p.path.firstUnacked; n < p.path.nextNumber; n++ {
		if f := p.path.frameAt(n); f.completion != nil {
			done := f.completion
			f.borrowedPayload, f.completion = slices.Clone(f.borrowedPayload), nil
			done.LocallyComplete()
		}
	}
	// The peer has no state of it.
	if !p.wasConnected {
		p.close()
		return
	}
	p.sendControl(kindLeave, nil)
}
