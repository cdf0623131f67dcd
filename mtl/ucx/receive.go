package ucx

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

func (m *module) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	s, err := m.takeReceive(op, from, e, buf)
	if err == nil {
		tag, mask := matchOf(e)
		m.worker.Recv(s.Number, s.Buf, tag, mask, m.bufferUse(len(buf) >= maxMessage))
	}
	return err
}

// memoryPollsPerSocketPoll is the number of polls of shared memory that take as long as one of sockets.
const memoryPollsPerSocketPoll = 8

// RecvAndPoll implements mtl.ImmediateReceiver.
func (m *module) RecvAndPoll(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte, polls int) error {
	if !m.transportTraits.usesTCP {
		polls *= memoryPollsPerSocketPoll
	}
	if m.spareReceive != nil && len(buf) <= base.MaxBounced {
		return m.recvShortAndPoll(op, from, e, buf, polls)
	}
	s, err := m.takeReceive(op, from, e, buf)
	if err != nil {
		return err
	}
	tag, mask := matchOf(e)
	m.handleEvents(m.worker.RecvAndPoll(s.Number, s.Buf, tag, mask, m.bufferUse(len(buf) >= maxMessage), m.eventBuf[:], polls))
	if m.spareReceive == nil {
		if s, err := m.takeSlot(base.SlotReceive, nil); err == nil {
			s.IsPosted = true
			m.spareReceive = s
		}
	}
	return nil
}

// recvShortAndPoll is RecvAndPoll with the spare receive slot. If the message arrives at once, which is the common case, the
// slot is neither taken nor released.
func (m *module) recvShortAndPoll(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte, polls int) error {
	from, err := m.CheckSource(from, e, len(m.peersByEndpoint))
	if err != nil {
		return err
	}
	s := m.spareReceive
	s.Op, s.Peer, op.Slot = op, from, s.Number
	s.Bounce(buf)
	tag, mask := matchOf(e)
	n := m.worker.RecvAndPoll(s.Number, s.Buf, tag, mask, m.bufferUse(false), m.eventBuf[:], polls)
	ev := &m.eventBuf[0]
	if n != 1 || ev.Slot != s.Number || ev.Err != 0 || ev.Length > uint64(len(buf)) {
		m.spareReceive = nil // It becomes an ordinary slot.
		m.handleEvents(n)
		return nil
	}
	s.bufferWritten(int(ev.Length)) // As in completeReceive.
	s.Op, s.UserBuf = nil, nil
	is := envelopeOf(ev.Tag)
	base.Notify(op, mtl.Result{Source: is.Source, Tag: is.Tag, Bytes: int64(ev.Length)})
	return nil
}

// takeReceive returns the slot of a receive.
func (m *module) takeReceive(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) (*slot, error) {
	from, err := m.CheckSource(from, e, len(m.peersByEndpoint))
	if err != nil {
		return nil, err
	}
	s, err := m.takeSlot(base.SlotReceive, op)
	if err != nil {
		return nil, m.transportError("receive", from, err)
	}
	s.Peer = from
	m.setReceiveBuffer(s, buf)
	return s, nil
}

const _ = uint(ucp.MaxSaved - mtl.MaxSavedMessage) // UCX keeps enough bytes.

// SaveMessages implements mtl.MessageSaver.
func (m *module) SaveMessages(n int) {
	m.savedBytes = n
	m.worker.SaveMessages(n)
}

// SavedMessage implements mtl.MessageSaver.
func (m *module) SavedMessage(op *mtl.Op) []byte {
	if m.Err != nil || int(op.Slot) >= len(m.slotsByNumber) {
		return nil
	}
	return m.worker.SavedMessage(op.Slot, m.savedBytes)
}

// Probe queries UCX, which returns at once. The next Poll delivers the result.
func (m *module) Probe(op *mtl.Op, from mtl.Endpoint, which mtl.Envelope, claim bool) error {
	from, err := m.CheckSource(from, which, len(m.peersByEndpoint))
	if err != nil {
		return err
	}
	s, err := m.takeSlot(base.SlotClaimed, op)
	if err != nil {
		return m.transportError("probe", from, err)
	}
	tag, mask := matchOf(which)
	found, ok := m.worker.Probe(s.Number, tag, mask, claim)
	r := mtl.Result{Found: ok}
	if ok {
		is := envelopeOf(found.Tag)
		r.Source, r.Tag, r.Bytes = is.Source, is.Tag, int64(found.Length)
		s.Peer, s.claimedResult, s.claimedCID = from, r, is.CID
	}
	if !ok || !claim {
		m.releaseSlot(s)
	} else if s.claimedResult.Found, s.Op = false, nil; from == mtl.NoEndpoint && r.Bytes > m.Capabilities.Eager {
		m.unknownSenders = append(m.unknownSenders, s)
	}
	m.QueueResult(op, r)
	return nil
}

// RecvClaimed does not ask UCX for the rest of a message whose sender was forgotten.
func (m *module) RecvClaimed(op *mtl.Op, buf []byte) error {
	if m.Err != nil {
		return m.Err
	}
	s := m.slotsByNumber[op.Slot]
	if err := m.LostClaim(&m.peersByEndpoint[s.Peer].Peer, s.claimedResult.Bytes); err != nil {
		s.Kind = base.SlotAbandoned // UCX keeps the message, and the slot stays in use.
		return err
	}
	s.Op = op
	m.setReceiveBuffer(s, buf)
	m.worker.RecvClaimed(s.Number, s.Buf, m.bufferUse(s.claimedResult.Bytes <= int64(len(buf))))
	return nil
}

// bufferUse selects how UCX uses the buffer of a receive. fits is set if no message can be longer. In mode none
// over tcp, UCX never ends a receive whose sender fails in the middle, so the receive must be abandonable.
func (m *module) bufferUse(fits bool) ucp.BufferUse {
	switch {
	case !m.transportTraits.isPeerMode && m.transportTraits.usesTCP:
		return ucp.Abandonable
	case fits:
		return ucp.DropLonger
	}
	return ucp.CutLonger
}

func (m *module) Cancel(op *mtl.Op) {
	if m.Err != nil || int(op.Slot) >= len(m.slotsByNumber) {
		return
	}
	if s := m.slotsByNumber[op.Slot]; s.Op == op && s.Kind == base.SlotReceive && !s.IsCanceled {
		s.IsCanceled, s.canceledAt = true, time.Now()
		m.worker.Cancel(s.Number)
		m.canceledReceives.receives = append(m.canceledReceives.receives, canceledReceive{s, op})
	}
}

type canceledReceive struct {
	s *slot
	// op detects that the slot was reused.
	op *mtl.Op
}

// canceledReceives holds canceled receives. It may contain receives that have ended since the last scan.
type canceledReceives struct {
	receives       []canceledReceive
	pollsSinceScan int
	// forgottenAtScan counts the peers forgotten before the last scan.
	forgottenPeers, forgottenAtScan int
}

// abandonAfter is the time after which a canceled receive from any source is abandoned, once a peer has failed. It may have
// matched a message of that peer, and then UCX never ends it.
const abandonAfter = time.Second

// scansPerPoll is the mean number of canceled receives that one Poll examines. A program may cancel thousands at once.
const scansPerPoll = 16

// abandonCanceled ends canceled receives whose senders failed in the middle of the message. UCX completes all others.
func (m *module) abandonCanceled() {
	if m.canceledReceives.pollsSinceScan++; m.canceledReceives.pollsSinceScan*scansPerPoll < len(m.canceledReceives.receives) && m.canceledReceives.forgottenAtScan == m.canceledReceives.forgottenPeers {
		return
	}
	m.canceledReceives.pollsSinceScan, m.canceledReceives.forgottenAtScan = 0, m.canceledReceives.forgottenPeers
	left := m.canceledReceives.receives[:0]
	for _, v := range m.canceledReceives.receives {
		s := v.s
		if s.Op != v.op || !s.IsCanceled || !s.IsPosted {
			continue
		}
		dead := s.Peer != mtl.NoEndpoint && m.peersByEndpoint[s.Peer].IsForgotten
		if !dead && (m.canceledReceives.forgottenPeers == 0 || time.Since(s.canceledAt) < abandonAfter) || !m.worker.Abandon(s.Number) {
			left = append(left, v)
			continue
		}
		m.endPartialReceive(s)
	}
	clear(m.canceledReceives.receives[len(left):])
	m.canceledReceives.receives = left
}

// endPartialReceive ends an abandoned receive, which UCX will never complete.
func (m *module) endPartialReceive(s *slot) {
	err := fmt.Errorf("its sender died in the middle of the message: %w", framework.ErrTransport)
	m.Abandon(&s.Slot, m.transportError("receive", s.Peer, err))
	m.unpinIfPinned(s)
}

// abandonClaimedReceives ends receives of claimed messages from a forgotten peer. In peer mode UCX ends them.
func (m *module) abandonClaimedReceives(from mtl.Endpoint) {
	if m.transportTraits.isPeerMode {
		return
	}
	for _, s := range m.slotsByNumber {
		if s.Kind == base.SlotClaimed && s.IsPosted && s.Op != nil && s.Peer == from && s.claimedResult.Bytes > m.Capabilities.Eager && m.worker.Abandon(s.Number) {
			m.endPartialReceive(s)
		}
	}
}
