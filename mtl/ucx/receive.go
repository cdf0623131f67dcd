package ucx

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
)

// checkSource validates the source of a receive or a probe.
func (m *module) checkSource(from mtl.Endpoint, e mtl.Envelope) (mtl.Endpoint, error) {
	switch {
	case m.err != nil:
		return 0, m.err
	case e.Source == mtl.AnySource:
		return mtl.NoEndpoint, nil
	case from == mtl.NoEndpoint || int(from) >= len(m.peers.all):
		return 0, errUnknownEndpoint
	}
	return from, nil
}

func (m *module) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	s, err := m.takeReceive(op, from, e, buf)
	if err == nil {
		tag, mask := matchOf(e)
		m.worker.Recv(s.number, s.buf, tag, mask, m.bufferUse(len(buf) >= maxMessage))
	}
	return err
}

// pollsPerLook is the number of polls of shared memory that take as long as one of sockets.
const pollsPerLook = 8

// RecvAndPoll implements mtl.ImmediateReceiver.
func (m *module) RecvAndPoll(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte, looks int) error {
	if !m.usesTCP {
		looks *= pollsPerLook
	}
	if m.slots.spareReceive != nil && len(buf) <= maxBounced {
		return m.recvShortAndPoll(op, from, e, buf, looks)
	}
	s, err := m.takeReceive(op, from, e, buf)
	if err != nil {
		return err
	}
	tag, mask := matchOf(e)
	m.handleEvents(m.worker.RecvAndPoll(s.number, s.buf, tag, mask, m.bufferUse(len(buf) >= maxMessage), m.events[:], looks))
	if m.slots.spareReceive == nil {
		if s, err := m.takeSlot(slotReceive, nil); err == nil {
			s.isPosted = true
			m.slots.spareReceive = s
		}
	}
	return nil
}

// recvShortAndPoll is RecvAndPoll with the spare receive slot. If the message arrives at once, which is the common case, the
// slot is neither taken nor released.
func (m *module) recvShortAndPoll(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte, looks int) error {
	from, err := m.checkSource(from, e)
	if err != nil {
		return err
	}
	s := m.slots.spareReceive
	s.op, s.peer, s.userBuf, s.buf, op.Slot = op, from, buf, s.bounceBuf[:len(buf)], s.number
	tag, mask := matchOf(e)
	n := m.worker.RecvAndPoll(s.number, s.buf, tag, mask, m.bufferUse(false), m.events[:], looks)
	ev := &m.events[0]
	if n != 1 || ev.Slot != s.number || ev.Err != 0 || ev.Length > uint64(len(buf)) {
		m.slots.spareReceive = nil // It becomes an ordinary slot.
		m.handleEvents(n)
		return nil
	}
	s.bufferWritten(int(ev.Length)) // As in completeReceive.
	s.op, s.userBuf = nil, nil
	is := envelopeOf(ev.Tag)
	notifyOwner(op, mtl.Result{Source: is.Source, Tag: is.Tag, Bytes: int64(ev.Length)})
	return nil
}

// takeReceive returns the slot of a receive.
func (m *module) takeReceive(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) (*slot, error) {
	from, err := m.checkSource(from, e)
	if err != nil {
		return nil, err
	}
	s, err := m.takeSlot(slotReceive, op)
	if err != nil {
		return nil, m.transportError("receive", from, err)
	}
	s.peer = from
	m.setReceiveBuffer(s, buf)
	return s, nil
}

const _ = uint(ucp.MaxSaved - mtl.MaxSavedMessage) // UCX keeps enough bytes.

// SaveMessages implements mtl.MessageSaver.
func (m *module) SaveMessages(n int) {
	m.keptBytes = n
	m.worker.SaveMessages(n)
}

// SavedMessage implements mtl.MessageSaver.
func (m *module) SavedMessage(op *mtl.Op) []byte {
	if m.err != nil || int(op.Slot) >= len(m.slots.all) {
		return nil
	}
	return m.worker.SavedMessage(op.Slot, m.keptBytes)
}

// Probe queries UCX, which returns at once. The next Poll delivers the result.
func (m *module) Probe(op *mtl.Op, from mtl.Endpoint, which mtl.Envelope, claim bool) error {
	from, err := m.checkSource(from, which)
	if err != nil {
		return err
	}
	s, err := m.takeSlot(slotClaimed, op)
	if err != nil {
		return m.transportError("probe", from, err)
	}
	tag, mask := matchOf(which)
	found, ok := m.worker.Probe(s.number, tag, mask, claim)
	r := mtl.Result{Found: ok}
	if ok {
		is := envelopeOf(found.Tag)
		r.Source, r.Tag, r.Bytes = is.Source, is.Tag, int64(found.Length)
		s.peer, s.found, s.cid = from, r, is.CID
	}
	e := queuedResult{op: op, result: r}
	if !ok || !claim {
		m.releaseSlot(s)
	} else {
		s.found.Found, s.op, e.claim = false, nil, s
	}
	m.results.pending = append(m.results.pending, e)
	return nil
}

// RecvClaimed does not ask UCX for the rest of a message whose sender was forgotten.
func (m *module) RecvClaimed(op *mtl.Op, buf []byte) error {
	if m.err != nil {
		return m.err
	}
	s := m.slots.all[op.Slot]
	if err := m.lostClaim(s); err != nil {
		s.kind = slotAbandoned // UCX keeps the message, and the slot stays in use.
		return err
	}
	s.op = op
	m.setReceiveBuffer(s, buf)
	m.worker.RecvClaimed(s.number, s.buf, m.bufferUse(s.found.Bytes <= int64(len(buf))))
	return nil
}

// lostClaim returns the error of a claimed message whose sender is gone and still had a part of it, or nil.
func (m *module) lostClaim(s *slot) error {
	if s.hasLeft {
		return m.transportError("receive", mtl.NoEndpoint, fmt.Errorf("of %d bytes some were still with their sender, which has left the communicator", s.found.Bytes))
	}
	if s.found.Bytes <= m.caps.Eager || s.peer == mtl.NoEndpoint {
		return nil
	}
	if p := &m.peers.all[s.peer]; p.sendErr != nil {
		return m.transportError("receive", s.peer, fmt.Errorf("of %d bytes some were still with their sender: %w", s.found.Bytes, p.sendErr))
	}
	return nil
}

// bufferUse selects how UCX uses the buffer of a receive. fits is set if no message can be longer. In mode none
// over tcp, UCX never ends a receive whose sender fails in the middle, so the receive must be abandonable.
func (m *module) bufferUse(fits bool) ucp.BufferUse {
	switch {
	case !m.peerMode && m.usesTCP:
		return ucp.Abandonable
	case fits:
		return ucp.DropLonger
	}
	return ucp.CutLonger
}

func (m *module) Cancel(op *mtl.Op) {
	if m.err != nil || int(op.Slot) >= len(m.slots.all) {
		return
	}
	if s := m.slots.all[op.Slot]; s.op == op && s.kind == slotReceive && !s.isCanceled {
		s.isCanceled, s.canceledAt = true, time.Now()
		m.worker.Cancel(s.number)
		m.canceled.receives = append(m.canceled.receives, canceledReceive{s, op})
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
	// forgottenAtScan is the value of peerTable.forgotten at the last scan.
	forgottenAtScan int
}

// abandonAfter is the time after which a canceled receive from any source is abandoned, once a peer has failed. It may have
// matched a message of that peer, and then UCX never ends it.
const abandonAfter = time.Second

// scansPerPoll is the mean number of canceled receives that one Poll examines. A program may cancel thousands at once.
const scansPerPoll = 16

// abandonCanceled ends canceled receives whose senders failed in the middle of the message. UCX completes all others.
func (m *module) abandonCanceled() {
	if m.canceled.pollsSinceScan++; m.canceled.pollsSinceScan*scansPerPoll < len(m.canceled.receives) && m.canceled.forgottenAtScan == m.peers.forgotten {
		return
	}
	m.canceled.pollsSinceScan, m.canceled.forgottenAtScan = 0, m.peers.forgotten
	left := m.canceled.receives[:0]
	for _, v := range m.canceled.receives {
		s := v.s
		if s.op != v.op || !s.isCanceled || !s.isPosted {
			continue
		}
		dead := s.peer != mtl.NoEndpoint && m.peers.all[s.peer].isForgotten
		if !dead && (m.peers.forgotten == 0 || time.Since(s.canceledAt) < abandonAfter) || !m.worker.Abandon(s.number) {
			left = append(left, v)
			continue
		}
		m.endPartialReceive(s)
	}
	clear(m.canceled.receives[len(left):])
	m.canceled.receives = left
}

// endPartialReceive ends an abandoned receive, which UCX will never complete.
func (m *module) endPartialReceive(s *slot) {
	err := fmt.Errorf("its sender died in the middle of the message: %w", framework.ErrTransport)
	m.abandonOp(s, m.transportError("receive", s.peer, err))
	m.unpinIfPinned(s)
}

// abandonClaimedReceives ends receives of claimed messages from a forgotten peer. In peer mode UCX ends them.
func (m *module) abandonClaimedReceives(from mtl.Endpoint) {
	if m.peerMode {
		return
	}
	for _, s := range m.slots.all {
		if s.kind == slotClaimed && s.isPosted && s.op != nil && s.peer == from && s.found.Bytes > m.caps.Eager && m.worker.Abandon(s.number) {
			m.endPartialReceive(s)
		}
	}
}
