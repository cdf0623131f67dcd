package ofi

import (
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

func (m *module) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	return m.startMatch(base.SlotReceive, op, from, e, buf)
}

func (m *module) Probe(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, claim bool) error {
	if claim {
		return m.startMatch(slotClaimingProbe, op, from, e, nil)
	}
	return m.startMatch(slotProbe, op, from, e, nil)
}

// startMatch starts or queues a receive or a probe.
func (m *module) startMatch(k base.SlotKind, op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	from, err := m.CheckSource(from, e, len(m.peerTable.peersByEndpoint))
	if err != nil {
		return err
	}
	address := libfabric.AnyAddress
	if from != mtl.NoEndpoint && m.tagLayout.hasSourceData {
		address = m.peerTable.peersByEndpoint[from].addressIndex
	}
	s, err := m.takeSlot(k, op, buf)
	if err != nil {
		return m.transportError("receive", from, err)
	}
	s.Peer, s.addressIndex = from, address
	s.queueEntry.Source, s.queueEntry.Tag = int(e.Source), int(e.Tag)
	s.tag, s.bits = m.tagLayout.receive(e)
	if s.flags = m.paddingFlag; k == slotClaimingProbe {
		s.flags |= libfabric.Claim
	}
	return m.startOrQueue(e.CID, s)
}

func (m *module) RecvClaimed(op *mtl.Op, buf []byte) error {
	if m.Err != nil {
		return m.Err
	}
	return m.receiveClaimed(m.slotsByNumber[op.Slot], op, buf)
}

// receiveClaimed starts the receive of a claimed message. After an error the message is lost.
func (m *module) receiveClaimed(s *slot, op *mtl.Op, buf []byte) error {
	if err := m.lostClaim(s); err != nil {
		m.abandonClaimed(s)
		return err
	}
	s.Op, op.Slot, s.flags = op, s.Number, libfabric.Claim
	if s.claimedBytes > int64(len(buf)) {
		s.flags |= m.paddingFlag
	}
	s.SetReceiveBuffer(buf)
	if code := m.startClaimedReceive(s); code != 0 {
		return m.failStart(s, code)
	}
	return nil
}

// failStart releases the slot of a receive or a probe that the provider rejected, and returns the error.
func (m *module) failStart(s *slot, code libfabric.Errno) error {
	err := m.callError("receive", s.Peer, code)
	m.releaseSlot(s)
	return err
}

// recordClaim turns the slot of a probe or a peek into that of the message it has claimed.
func (m *module) recordClaim(s *slot, ev *libfabric.Event) mtl.Result {
	r, _ := m.messageResult(ev)
	s.Kind, s.IsPosted, s.claimedBytes = base.SlotClaimed, false, r.Bytes
	if s.Peer == mtl.NoEndpoint && s.claimedBytes > m.Capabilities.Eager { // for lostClaim
		if from, ok := m.Env.Upcall.Endpoint(m.tagLayout.cidOf(ev.Tag), int(r.Source)); ok {
			s.Peer = from
		}
	}
	return r
}

// lostClaim returns the error of a claimed message that is lost, or nil. Some providers would follow a lost connection if they were asked
// for the rest (quirk PreferPacked).
func (m *module) lostClaim(s *slot) error {
	return m.LostClaim(&m.peerTable.peersByEndpoint[s.Peer].Peer, s.claimedBytes)
}

// abandonClaimed gives up a lost message. The provider keeps it until the endpoint closes, and with it
// the slot.
func (m *module) abandonClaimed(s *slot) {
	s.Unpin()
	s.Kind, s.Op, s.Buf, s.UserBuf = base.SlotAbandoned, nil, nil, nil
}

// abandonIfLost ends the queued receive of a claimed message if the message is lost.
func (m *module) abandonIfLost(s *slot) bool {
	err := m.lostClaim(s)
	if err != nil {
		m.QueueResult(s.Op, mtl.Result{Err: err})
		m.abandonClaimed(s)
	}
	return err != nil
}

// startOrQueue starts a receive or a probe, or queues it in the overflow queue of its communicator id. After an
// error nothing was started.
func (m *module) startOrQueue(cid uint32, s *slot) error {
	if len(m.receiveOverflow.queuesByCID) > 0 {
		if q := m.receiveOverflow.queuesByCID[cid]; q != nil && m.joinQueue(q, s) {
			return nil
		}
	}
	if s.Kind != base.SlotReceive {
		return m.startProbe(s)
	}
	switch code := m.postOp(s); code {
	case 0:
	case libfabric.Again:
		m.enqueueReceive(m.queueFor(cid), s)
	default:
		return m.failStart(s, code)
	}
	return nil
}

// startProbe starts a probe. A probe that the provider has no space for completes without a message. Some
// providers report at once that there is none.
func (m *module) startProbe(s *slot) error {
	switch code := m.postOp(s); code {
	case 0:
	case libfabric.Again, libfabric.NoMessage:
		m.endOp(s, mtl.Result{})
	default:
		return m.failStart(s, code)
	}
	return nil
}

func (m *module) Cancel(op *mtl.Op) {
	if m.Err != nil || int(op.Slot) >= len(m.slotsByNumber) {
		return
	}
	s := m.slotsByNumber[op.Slot]
	switch {
	case s.Op != op || s.Kind != base.SlotReceive: // It has matched, for example.
	case s.IsPosted:
		s.IsCanceled = true
		if m.offloader.activeCall != nil {
			m.offloader.pendingCancels = append(m.offloader.pendingCancels, s.Number)
			break
		}
		m.ep.Cancel(s.Number)
	default:
		q := m.receiveOverflow.queuesByCID[m.tagLayout.cidOf(s.tag)]
		q.removeReceive(s)
		m.endOp(s, mtl.Result{Canceled: true})
		m.updateReady(q)
	}
}
