package ofi

import (
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
	wild := e.Source == mtl.AnySource
	if wild {
		from = mtl.NoEndpoint
	} else if from == mtl.NoEndpoint || int(from) >= len(m.peers) {
		return errNobody
	}
	s, err := m.take(k, op, buf)
	if err != nil {
		return m.transportError("receive", from, err)
	}
	s.to, s.wild, s.address = from, wild, libfabric.AnyAddress
	s.tag, s.more = m.layout.receive(e)
	if !wild {
		s.address = m.peers[from].address
	}
	if s.flags = m.spill; k == claiming {
		s.flags |= libfabric.Claim
	}
	return m.accept(e.CID, s)
}

func (m *module) RecvClaimed(op *mtl.Op, buf []byte) error {
	if m.broken != nil {
		return m.broken
	}
	s := m.slots[op.Slot]
	s.op, s.buf, s.flags = op, buf, libfabric.Claim
	if s.length > int64(len(buf)) {
		s.flags |= m.spill
	}
	if len(buf) > 0 {
		s.pins.Pin(&buf[0])
	}
	if code := m.startUrgent(s); code != 0 {
		err := m.callError("receive", s.to, code)
		m.release(s)
		return err
	}
	return nil
}

// accept starts a receive or a probe, or has it wait for room. An error means that
// nothing was started.
func (m *module) accept(cid uint32, s *slot) error {
	code := libfabric.Again
	behind := len(m.lines) > 0 && m.lineOf(cid) != nil
	if !behind {
		code = m.startReceive(s)
	}
	switch {
	case code == 0:
	case code != libfabric.Again:
		err := m.callError("receive", s.to, code)
		m.release(s)
		return err
	case s.kind == probe || s.kind == claiming:
		// What it would find may belong to a receive that waits.
		m.end(s.op, mtl.Result{})
		m.release(s)
	default:
		m.wait(cid, s)
	}
	return nil
}

// startReceive gives a receive or a probe to libfabric.
func (m *module) startReceive(s *slot) libfabric.Errno {
	if m.posted >= m.most {
		return libfabric.Again
	}
	var code libfabric.Errno
	switch s.kind {
	case listen:
		code = m.ep.Recv(s.number, s.buf)
	case probe, claiming:
		code = m.ep.Peek(s.number, s.address, s.tag, s.more, s.flags)
		if code == libfabric.NoMessage { // some providers say so at once
			m.end(s.op, mtl.Result{})
			m.release(s)
			return 0
		}
	case receive:
		if m.receives >= m.mostRecvs {
			return libfabric.Again
		}
		if code = m.ep.TRecv(s.number, s.buf, s.address, s.tag, s.more, s.flags); code == 0 {
			m.receives++
		}
	default:
		code = m.ep.TRecv(s.number, s.buf, s.address, s.tag, s.more, s.flags)
	}
	if code == 0 {
		s.posted = true
		m.posted++
	}
	return code
}

func (m *module) Cancel(op *mtl.Op) {
	if m.broken != nil || int(op.Slot) >= len(m.slots) {
		return
	}
	s := m.slots[op.Slot]
	switch {
	case s.op != op:
	case s.kind == sought: // unless its message is found
		s.canceled = true
	case s.kind != receive:
	case s.posted:
		s.canceled = true
		m.ep.Cancel(s.number)
	default:
		m.leave(m.lineOf(m.layout.cidOf(s.tag)), s)
		m.end(op, mtl.Result{Canceled: true})
		m.release(s)
	}
}
