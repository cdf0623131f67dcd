package ofi

import (
	"encoding/binary"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// A provider does not report to the sender that a message has matched. The receiver of a synchronous
// message therefore sends an ack with the tag of the message.

// unackedSends holds the synchronous sends to one peer that wait for acks, indexed by tag. Messages
// with one tag match in order, so each ack belongs to the oldest send with its tag, even if acks
// arrive out of order.
type unackedSends struct {
	matchQueues match.Queues[slot, slot]
	matchPeer   match.Peer[slot, slot]
}

// awaitAck adds a synchronous send to the unacked sends of its peer.
func (m *module) awaitAck(s *slot) {
	p := &m.peerTable.peersByEndpoint[s.Peer]
	if p.unackedSends == nil {
		p.unackedSends = new(unackedSends)
	}
	s.queueEntry.Source, s.queueEntry.Tag = 0, int(m.ackTag(s.tag))
	p.unackedSends.matchQueues.Post(&p.unackedSends.matchPeer, &s.queueEntry)
}

// ackTag returns the tag of a message without the bit that marks it synchronous.
func (m *module) ackTag(tag uint64) uint64 {
	if !m.tagLayout.hasSourceData {
		tag &^= m.tagLayout.syncBit
	}
	return tag
}

// completeSyncSend handles the completion of a synchronous send: its buffer is free. The ack may have arrived
// before.
func (m *module) completeSyncSend(s *slot, ev *libfabric.Event) {
	s.isBufferFree = true
	if ev.Err == 0 && !s.isAcked {
		return
	}
	if !s.isAcked {
		m.peerTable.peersByEndpoint[s.Peer].unackedSends.matchQueues.Cancel(&s.queueEntry)
	}
	m.completeOp(s, mtl.Result{Err: m.eventError("send", s.Peer, ev)})
}

// sendSyncAck acknowledges a synchronous message that has matched.
func (m *module) sendSyncAck(s *slot, tag uint64, source int32) {
	to := s.Peer
	if to == mtl.NoEndpoint {
		e, _ := m.tagLayout.message(tag, 0)
		var ok bool
		if to, ok = m.Env.Upcall.Endpoint(e.CID, int(source)); !ok {
			return
		}
	}
	if m.checkSend(to) != nil {
		return
	}
	b := append(m.controlReceives.injectBuf[:0], frameSyncAck)
	b = binary.LittleEndian.AppendUint64(b, m.Env.Self.Nonce)
	b = binary.LittleEndian.AppendUint64(b, m.ackTag(tag))
	m.sendFrame(base.SlotSyncAck, nil, to, b) // After an error the peer is unreachable, and needs no ack.
}

// receiveSyncAck completes the oldest unacked send with a tag to the peer that has the nonce. Frames that match
// no send are ignored.
func (m *module) receiveSyncAck(nonce, tag uint64) {
	to, ok := m.peerTable.byNonce[nonce]
	if !ok {
		return
	}
	unacked := m.peerTable.peersByEndpoint[to].unackedSends
	if unacked == nil || int(tag) < 0 { // No layout uses the highest bit.
		return
	}
	e := unacked.matchQueues.Arrive(&unacked.matchPeer, int(tag))
	if e == nil {
		return
	}
	s := e.Owner
	if s.isAcked = true; s.isBufferFree {
		m.completeOp(s, mtl.Result{})
	}
}
