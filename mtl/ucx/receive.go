package ucx

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
)

// from checks where a receive or a probe looks.
func (m *module) from(from mtl.Endpoint, e mtl.Envelope) (mtl.Endpoint, error) {
	switch {
	case m.broken != nil:
		return 0, m.broken
	case e.Source == mtl.AnySource:
		return mtl.NoEndpoint, nil
	case from == mtl.NoEndpoint || int(from) >= len(m.peers):
		return 0, errNobody
	}
	return from, nil
}

func (m *module) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	s, err := m.receive(op, from, e, buf)
	if err == nil {
		tag, mask := wanted(e)
		m.worker.Recv(s.number, s.buf, tag, mask, m.into(len(buf) >= longest))
	}
	return err
}

// looksOfMemory is how many looks into memory take as long as one through Go, or at sockets.
const looksOfMemory = 8

// RecvLook implements mtl.Looker.
func (m *module) RecvLook(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte, looks int) error {
	if !m.tcp {
		looks *= looksOfMemory
	}
	if m.ready != nil && len(buf) <= shortReceive {
		return m.lookShort(op, from, e, buf, looks)
	}
	s, err := m.receive(op, from, e, buf)
	if err != nil {
		return err
	}
	tag, mask := wanted(e)
	m.came(m.worker.RecvLook(s.number, s.buf, tag, mask, m.into(len(buf) >= longest), m.events[:], looks))
	if m.ready == nil {
		if s, err := m.take(receive, nil); err == nil {
			s.posted = true
			m.ready = s
		}
	}
	return nil
}

// lookShort is RecvLook with the slot that is ready. Where the message comes at once, as it usually
// does, the slot is neither taken nor released.
func (m *module) lookShort(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte, looks int) error {
	from, err := m.from(from, e)
	if err != nil {
		return err
	}
	s := m.ready
	s.op, s.to, s.user, s.buf, op.Slot = op, from, buf, s.short[:len(buf)], s.number
	tag, mask := wanted(e)
	n := m.worker.RecvLook(s.number, s.buf, tag, mask, m.into(false), m.events[:], looks)
	ev := &m.events[0]
	if n != 1 || ev.Slot != s.number || ev.Err != 0 || ev.Length > uint64(len(buf)) {
		m.ready = nil // it is a slot like others
		m.came(n)
		return nil
	}
	s.arrived(int(ev.Length)) // as received has it
	s.op, s.user = nil, nil
	is := envelope(ev.Tag)
	finished(op, mtl.Result{Source: is.Source, Tag: is.Tag, Bytes: int64(ev.Length)})
	return nil
}

// receive returns the slot of a receive.
func (m *module) receive(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) (*slot, error) {
	from, err := m.from(from, e)
	if err != nil {
		return nil, err
	}
	s, err := m.take(receive, op)
	if err != nil {
		return nil, m.transportError("receive", from, err)
	}
	s.to = from
	m.receives(s, buf)
	return s, nil
}

const _ = uint(ucp.MostKept - mtl.MostKept) // that many can be

// Keep implements mtl.Keeper.
func (m *module) Keep(n int) {
	m.kept = n
	m.worker.Keep(n)
}

// Kept implements mtl.Keeper.
func (m *module) Kept(op *mtl.Op) []byte {
	if m.broken != nil || int(op.Slot) >= len(m.slots) {
		return nil
	}
	return m.worker.Kept(op.Slot, m.kept)
}

// Probe asks UCX, which answers at once; the next Poll tells.
func (m *module) Probe(op *mtl.Op, from mtl.Endpoint, which mtl.Envelope, claim bool) error {
	from, err := m.from(from, which)
	if err != nil {
		return err
	}
	s, err := m.take(claimed, op)
	if err != nil {
		return m.transportError("probe", from, err)
	}
	tag, mask := wanted(which)
	found, ok := m.worker.Probe(s.number, tag, mask, claim)
	r := mtl.Result{Found: ok}
	if ok {
		is := envelope(found.Tag)
		r.Source, r.Tag, r.Bytes = is.Source, is.Tag, int64(found.Length)
		s.to, s.found, s.cid = from, r, is.CID
	}
	e := ended{op: op, result: r}
	if !ok || !claim {
		m.release(s)
	} else {
		s.found.Found, s.op, e.claim = false, nil, s
	}
	m.over = append(m.over, e)
	return nil
}

// RecvClaimed asks nothing of a sender that was forgotten.
func (m *module) RecvClaimed(op *mtl.Op, buf []byte) error {
	if m.broken != nil {
		return m.broken
	}
	s := m.slots[op.Slot]
	if err := m.lost(s); err != nil {
		s.kind = abandoned // UCX keeps the message, and the slot with it
		return err
	}
	s.op = op
	m.receives(s, buf)
	m.worker.RecvClaimed(s.number, s.buf, m.into(s.found.Bytes <= int64(len(buf))))
	return nil
}

// lost returns why the rest of a claimed message can't be had.
func (m *module) lost(s *slot) error {
	if s.orphan {
		return m.transportError("receive", mtl.NoEndpoint, fmt.Errorf("of %d bytes some were still with their sender, which has left the communicator", s.found.Bytes))
	}
	if s.found.Bytes <= m.caps.Eager || s.to == mtl.NoEndpoint {
		return nil
	}
	if p := &m.peers[s.to]; p.gone != nil {
		return m.transportError("receive", s.to, fmt.Errorf("of %d bytes some were still with their sender: %w", s.found.Bytes, p.gone))
	}
	return nil
}

// into is how UCX gets the buffer of a receive; fits: no message is longer. In mode none over tcp it
// may not know it: a receive whose sender dies in the middle never ends there, and has to be abandoned.
func (m *module) into(fits bool) ucp.Into {
	switch {
	case !m.peerMode && m.tcp:
		return ucp.Abandonable
	case fits:
		return ucp.Whole
	}
	return ucp.Cut
}

func (m *module) Cancel(op *mtl.Op) {
	if m.broken != nil || int(op.Slot) >= len(m.slots) {
		return
	}
	if s := m.slots[op.Slot]; s.op == op && s.kind == receive && !s.canceled {
		s.canceled, s.since = true, time.Now()
		m.worker.Cancel(s.number)
		m.vain = append(m.vain, vain{s, op})
	}
}

// vain is a receive that was canceled.
type vain struct {
	s  *slot
	op *mtl.Op
}

// stuckAfter is how long a canceled receive from any source, which has matched, may go on after a
// process has died: if it has matched the dead process's message, UCX may never end it.
const stuckAfter = time.Second

// vainSteps is how many canceled receives a poll looks at, in the mean: all of them in one of as many
// polls as that takes. A program may cancel thousands at once.
const vainSteps = 16

// abandon gives up canceled receives of messages whose senders died in the middle. What has
// been withdrawn, or goes on, has its event.
func (m *module) abandon() {
	if m.unseen++; m.unseen*vainSteps < len(m.vain) && m.seen == m.forgotten {
		return
	}
	m.unseen, m.seen = 0, m.forgotten
	left := m.vain[:0]
	for _, v := range m.vain {
		s := v.s
		if s.op != v.op || !s.canceled || !s.posted {
			continue
		}
		dead := s.to != mtl.NoEndpoint && m.peers[s.to].forgotten
		if !dead && (m.forgotten == 0 || time.Since(s.since) < stuckAfter) || !m.worker.Abandon(s.number) {
			left = append(left, v)
			continue
		}
		m.endInTheMiddle(s)
	}
	clear(m.vain[len(left):])
	m.vain = left
}

// endInTheMiddle ends a receive that UCX never will, and that was abandoned.
func (m *module) endInTheMiddle(s *slot) {
	err := fmt.Errorf("its sender died in the middle of the message: %w", framework.ErrTransport)
	m.giveUp(s, m.transportError("receive", s.to, err))
	m.drop(s)
}

// abandonClaimed does so for receives of messages that were claimed, which nobody cancels, when their
// sender has died. In mode peer UCX ends them.
func (m *module) abandonClaimed(from mtl.Endpoint) {
	if m.peerMode {
		return
	}
	for _, s := range m.slots {
		if s.kind == claimed && s.posted && s.op != nil && s.to == from && s.found.Bytes > m.caps.Eager && m.worker.Abandon(s.number) {
			m.endInTheMiddle(s)
		}
	}
}
