package ofi

import (
	"fmt"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
)

func (m *module) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	return m.post(receive, op, from, e, buf)
}

func (m *module) Probe(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, claim bool) error {
	if claim {
		return m.post(claiming, op, from, e, nil)
	}
	return m.post(probe, op, from, e, nil)
}

func (m *module) post(k kind, op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	if m.broken != nil {
		return m.broken
	}
	address := libfabric.AnyAddress
	switch {
	case e.Source == mtl.AnySource:
		from = mtl.NoEndpoint
	case from == mtl.NoEndpoint || int(from) >= len(m.peers):
		return errNobody
	case m.layout.data:
		address = m.peers[from].address
	}
	s, err := m.take(k, op, buf)
	if err != nil {
		return m.transportError("receive", from, err)
	}
	s.to, s.address = from, address
	s.node.Source, s.node.Tag = int(e.Source), int(e.Tag)
	s.tag, s.more = m.layout.receive(e)
	if s.flags = m.spill; k == claiming {
		s.flags |= libfabric.Claim
	}
	return m.accept(e.CID, s)
}

func (m *module) RecvClaimed(op *mtl.Op, buf []byte) error {
	if m.broken != nil {
		return m.broken
	}
	return m.fetch(m.slots[op.Slot], op, buf)
}

// fetch receives a claimed message. An error is its end.
func (m *module) fetch(s *slot, op *mtl.Op, buf []byte) error {
	if err := m.lost(s); err != nil {
		m.leaveThere(s)
		return err
	}
	s.op, op.Slot, s.flags = op, s.number, libfabric.Claim
	if s.length > int64(len(buf)) {
		s.flags |= m.spill
	}
	s.into(buf)
	if code := m.startClaimed(s); code != 0 {
		return m.notStarted(s, code)
	}
	return nil
}

// notStarted gives back the slot of a receive or a probe that the provider does not take.
func (m *module) notStarted(s *slot, code libfabric.Errno) error {
	err := m.callError("receive", s.to, code)
	m.release(s)
	return err
}

// claim notes that a probe has taken a message out of matching.
func (m *module) claim(s *slot, ev *libfabric.Event) mtl.Result {
	r, _ := m.result(ev)
	s.kind, s.posted, s.length = claimed, false, r.Bytes
	if s.to == mtl.NoEndpoint && s.length > m.caps.Eager { // lost wants to know
		if from, ok := m.env.Upcall.Endpoint(m.layout.cidOf(ev.Tag), int(r.Source)); ok {
			s.to = from
		}
	}
	return r
}

// lost returns why the rest of a claimed message can't be had. A provider that is asked
// for it all the same may follow a lost connection (known.go, Prefer).
func (m *module) lost(s *slot) error {
	gone := m.peers[s.to].gone
	if gone == nil || s.length <= m.caps.Eager {
		return nil
	}
	return m.transportError("receive", s.to, fmt.Errorf("some of %d bytes were still with their sender: %w", s.length, gone))
}

// leaveThere gives up a claimed message that is lost. The provider keeps it, and the slot with
// it, until the endpoint closes.
func (m *module) leaveThere(s *slot) {
	s.pins.Unpin()
	s.kind, s.op, s.buf, s.user = abandoned, nil, nil, nil
}

// leftThere is leaveThere for a receive that has the message already, if it is lost.
func (m *module) leftThere(s *slot) bool {
	err := m.lost(s)
	if err != nil {
		m.end(s.op, mtl.Result{Err: err})
		m.leaveThere(s)
	}
	return err != nil
}

// accept starts a receive or a probe, or has it wait in its line. An error means that
// nothing was started.
func (m *module) accept(cid uint32, s *slot) error {
	if len(m.lines) > 0 {
		if l := m.lines[cid]; l != nil && m.join(l, s) {
			return nil
		}
	}
	if s.kind != receive {
		return m.inquire(s)
	}
	switch code := m.start(s); code {
	case 0:
	case libfabric.Again:
		m.wait(m.lineOf(cid), s)
	default:
		return m.notStarted(s, code)
	}
	return nil
}

// inquire starts a probe. Where there is no room for it, it has found nothing; and some
// providers say at once that there is nothing.
func (m *module) inquire(s *slot) error {
	switch code := m.start(s); code {
	case 0:
	case libfabric.Again, libfabric.NoMessage:
		m.giveUp(s, mtl.Result{})
	default:
		return m.notStarted(s, code)
	}
	return nil
}

func (m *module) Cancel(op *mtl.Op) {
	if m.broken != nil || int(op.Slot) >= len(m.slots) {
		return
	}
	s := m.slots[op.Slot]
	switch {
	case s.op != op || s.kind != receive: // such as one whose message is found
	case s.posted:
		s.canceled = true
		if m.away != nil {
			m.cancels = append(m.cancels, s.number)
			break
		}
		m.ep.Cancel(s.number)
	default:
		l := m.lines[m.layout.cidOf(s.tag)]
		l.leave(s)
		m.giveUp(s, mtl.Result{Canceled: true})
		m.settle(l)
	}
}
