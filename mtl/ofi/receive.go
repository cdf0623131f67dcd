package ofi

import (
	"fmt"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
)

func (m *module) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	return m.startMatch(slotReceive, op, from, e, buf)
}

func (m *module) Probe(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, claim bool) error {
	if claim {
		return m.startMatch(slotClaimingProbe, op, from, e, nil)
	}
	return m.startMatch(slotProbe, op, from, e, nil)
}

// startMatch starts or queues a receive or a probe.
func (m *module) startMatch(k slotKind, op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	if m.err != nil {
		return m.err
	}
	address := libfabric.AnyAddress
	switch {
	case e.Source == mtl.AnySource:
		from = mtl.NoEndpoint
	case from == mtl.NoEndpoint || int(from) >= len(m.peers.all):
		return errUnknownEndpoint
	case m.layout.hasSourceData:
		address = m.peers.all[from].address
	}
	s, err := m.takeSlot(k, op, buf)
	if err != nil {
		return m.transportError("receive", from, err)
	}
	s.peer, s.address = from, address
	s.node.Source, s.node.Tag = int(e.Source), int(e.Tag)
	s.tag, s.bits = m.layout.receive(e)
	if s.flags = m.padding; k == slotClaimingProbe {
		s.flags |= libfabric.Claim
	}
	return m.startOrQueue(e.CID, s)
}

func (m *module) RecvClaimed(op *mtl.Op, buf []byte) error {
	if m.err != nil {
		return m.err
	}
	return m.receiveClaimed(m.slots.all[op.Slot], op, buf)
}

// receiveClaimed starts the receive of a claimed message. After an error the message is lost.
func (m *module) receiveClaimed(s *slot, op *mtl.Op, buf []byte) error {
	if err := m.lostClaim(s); err != nil {
		m.abandonClaimed(s)
		return err
	}
	s.op, op.Slot, s.flags = op, s.number, libfabric.Claim
	if s.claimedBytes > int64(len(buf)) {
		s.flags |= m.padding
	}
	s.setReceiveBuffer(buf)
	if code := m.startClaimedReceive(s); code != 0 {
		return m.failStart(s, code)
	}
	return nil
}

// failStart releases the slot of a receive or a probe that the provider rejected, and returns the error.
func (m *module) failStart(s *slot, code libfabric.Errno) error {
	err := m.callError("receive", s.peer, code)
	m.releaseSlot(s)
	return err
}

// recordClaim turns the slot of a probe or a peek into that of the message it has claimed.
func (m *module) recordClaim(s *slot, ev *libfabric.Event) mtl.Result {
	r, _ := m.messageResult(ev)
	s.kind, s.isPosted, s.claimedBytes = slotClaimed, false, r.Bytes
	if s.peer == mtl.NoEndpoint && s.claimedBytes > m.caps.Eager { // for lostClaim
		if from, ok := m.env.Upcall.Endpoint(m.layout.cidOf(ev.Tag), int(r.Source)); ok {
			s.peer = from
		}
	}
	return r
}

// lostClaim returns the error of a claimed message whose sender was forgotten while it still had a part of the
// message, or nil. Some providers would follow a lost connection if they were asked for the rest (quirk
// PreferPacked).
func (m *module) lostClaim(s *slot) error {
	forgetErr := m.peers.all[s.peer].forgetErr
	if forgetErr == nil || s.claimedBytes <= m.caps.Eager {
		return nil
	}
	return m.transportError("receive", s.peer, fmt.Errorf("some of %d bytes were still with their sender: %w", s.claimedBytes, forgetErr))
}

// abandonClaimed gives up a lost message. The provider keeps it until the endpoint closes, and with it
// the slot.
func (m *module) abandonClaimed(s *slot) {
	s.pins.Unpin()
	s.kind, s.op, s.buf, s.userBuf = slotAbandoned, nil, nil, nil
}

// abandonIfLost ends the queued receive of a claimed message if the message is lost.
func (m *module) abandonIfLost(s *slot) bool {
	err := m.lostClaim(s)
	if err != nil {
		m.queueResult(s.op, mtl.Result{Err: err})
		m.abandonClaimed(s)
	}
	return err != nil
}

// startOrQueue starts a receive or a probe, or queues it in the overflow queue of its communicator id. After an
// error nothing was started.
func (m *module) startOrQueue(cid uint32, s *slot) error {
	if len(m.overflow.queues) > 0 {
		if q := m.overflow.queues[cid]; q != nil && m.joinQueue(q, s) {
			return nil
		}
	}
	if s.kind != slotReceive {
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
	if m.err != nil || int(op.Slot) >= len(m.slots.all) {
		return
	}
	s := m.slots.all[op.Slot]
	switch {
	case s.op != op || s.kind != slotReceive: // It has matched, for example.
	case s.isPosted:
		s.isCanceled = true
		if m.offload.active != nil {
			m.offload.cancels = append(m.offload.cancels, s.number)
			break
		}
		m.ep.Cancel(s.number)
	default:
		q := m.overflow.queues[m.layout.cidOf(s.tag)]
		q.removeReceive(s)
		m.endOp(s, mtl.Result{Canceled: true})
		m.updateReady(q)
	}
}
