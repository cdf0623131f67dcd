package ofi

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
)

// Poll implements progress.Source: one call of libfabric.
func (m *module) Poll() int {
	n := 0
	if !m.isAway() && m.broken == nil {
		n = m.poll()
	}
	if len(m.over) > 0 {
		n += m.tell()
	}
	return n
}

// pausesBetweenLooks come behind a poll that finds nothing while several messages are waited for,
// where a poll is system calls on sockets: each takes the lock of one, and keeps the peer waiting that is about
// to write there. Where one message is waited for, they would delay it (docs/decisions/hot-path.md, "Over sockets").
const pausesBetweenLooks = 10

func (m *module) poll() int {
	if len(m.worn) > 0 {
		m.deregister()
	}
	n, code := m.ep.Poll(m.events[:])
	if n == 0 && m.software && m.receives > 1 {
		for range pausesBetweenLooks {
			cpu.Pause()
		}
	}
	for i := range n {
		if m.complete(&m.events[i]); m.broken != nil {
			return n
		}
	}
	if code != 0 {
		m.fail(errors.New("completion queue: " + m.text(code)))
		return n
	}
	if len(m.blocked) > 0 {
		m.retry()
	}
	if len(m.turns) > 0 || m.urgent.head != nil || m.held.head != nil {
		m.overflow()
	}
	if len(m.errands) > 0 {
		m.next()
	}
	return n
}

// tell tells of operations that ended without an event.
func (m *module) tell() int {
	m.over, m.telling = m.telling[:0], m.over
	for _, e := range m.telling {
		done(e.op, e.result)
	}
	n := len(m.telling)
	clear(m.telling)
	return n
}

// finish frees a slot and tells its operation's owner.
func (m *module) finish(s *slot, r mtl.Result) {
	op := s.op
	m.release(s)
	if op != nil {
		done(op, r)
	}
}

func done(op *mtl.Op, r mtl.Result) {
	op.Result = r
	op.Owner.Done(op)
}

// complete takes one event.
func (m *module) complete(ev *libfabric.Event) {
	if int(ev.Slot) >= len(m.slots) { // libfabric.NoSlot
		m.stray(ev)
		return
	}
	s := m.slots[ev.Slot]
	m.posted--
	m.strays = 0
	if s.kind.isSend() || s.kind == abandoned {
		m.sends--
		m.peers[s.to].sends--
	}
	if s.kind.isProbe() {
		m.probesAtProvider--
	}
	switch s.kind {
	case receive:
		m.receives--
		m.received(s, ev)
	case claimed:
		m.received(s, ev)
	case looking:
		m.looked(s, ev)
	case send, control, answer, flush:
		m.finish(s, mtl.Result{Err: m.eventError("send", s.to, ev)})
	case synchronous:
		m.sentSynchronous(s, ev)
	case listen:
		m.heard(s, ev)
	case probe, claiming:
		m.probed(s, ev)
	case abandoned:
		m.release(s)
	default:
		m.fail(fmt.Errorf("an event for slot %d, which is not in use", ev.Slot))
	}
}

// stray takes an error that belongs to no operation, such as sockets has for the
// connection of a peer that died. Others are none the worse for it, unless there is
// nothing else any more.
func (m *module) stray(ev *libfabric.Event) {
	text := m.describe(ev)
	if m.strays++; m.strays == 1 {
		m.env.Logger.Warn("mtl ofi: an error that belongs to no operation", "provider", m.about.Provider, "err", text)
	}
	if m.strays > mostFaults {
		m.fail(fmt.Errorf("completion queue: %d errors that belong to no operation in a row, the last one: %s", m.strays, text))
	}
}

func (m *module) describe(ev *libfabric.Event) string {
	return fmt.Sprintf("%s (%d)", m.ep.Describe(ev), ev.Err)
}

// eventError is the error in an event, nil if there is none.
func (m *module) eventError(op string, to mtl.Endpoint, ev *libfabric.Event) error {
	if ev.Err == 0 {
		return nil
	}
	why := m.describe(ev)
	if ev.Err == libfabric.Canceled { // nobody here has asked for it
		why = "the network gave up on it, as it does when the peer leaves in the middle of a message: " + why
	}
	return m.transportError(op, to, errors.New(why))
}

// received ends a receive.
func (m *module) received(s *slot, ev *libfabric.Event) {
	r, mode := m.result(ev)
	if s.kind == claimed {
		r.Bytes = s.length
	}
	switch {
	case ev.Err == 0:
		if r.Bytes > int64(len(s.buf)) { // it was spilt
			r.Err = framework.ErrTruncate
		}
	case ev.Err == libfabric.Truncated:
		r.Err = framework.ErrTruncate
		room := int64(len(s.buf))
		if s.flags&libfabric.Spill != 0 {
			room += libfabric.SpillBytes
		}
		r.Bytes = max(r.Bytes, room+int64(ev.Overflow))
	case ev.Err == libfabric.Canceled && s.canceled:
		m.finish(s, mtl.Result{Canceled: true})
		return
	default:
		m.finish(s, mtl.Result{Err: m.eventError("receive", s.to, ev)})
		return
	}
	if s.user != nil {
		copy(s.user, s.buf[:min(r.Bytes, int64(len(s.buf)))])
	}
	if mode == mtl.Synchronous {
		m.acknowledge(s, ev.Tag, r.Source)
	}
	m.finish(s, r)
}

// result says what came.
func (m *module) result(ev *libfabric.Event) (mtl.Result, mtl.Mode) {
	e, mode := m.layout.message(ev.Tag, ev.Data)
	return mtl.Result{Source: e.Source, Tag: e.Tag, Bytes: int64(ev.Length)}, mode
}

// probed ends a probe. What it claims stays with the slot.
func (m *module) probed(s *slot, ev *libfabric.Event) {
	switch {
	case ev.Err == 0 && s.flags&libfabric.Claim != 0:
		op, r := s.op, m.claim(s, ev)
		s.op, r.Found = nil, true
		done(op, r)
	case ev.Err == 0:
		r, _ := m.result(ev)
		r.Found = true
		m.finish(s, r)
	case ev.Err == libfabric.NoMessage:
		m.finish(s, mtl.Result{})
	default:
		m.finish(s, mtl.Result{Err: m.eventError("probe", s.to, ev)})
	}
}

// What modules send to one another's listening buffers begins with one of these.
const (
	frameControl byte = iota // then the protocol's control message
	frameAnswer              // a synchronous message has matched: nonce of the answerer, tag
	frameFlush               // nothing
)

// Sizes of frames, in bytes.
const (
	controlLimit = 256
	controlFrame = 1 + controlLimit
	answerFrame  = 1 + 8 + 8
)

// listen posts the receives of control messages.
func (m *module) listen(buffers int) error {
	m.listening = make([]byte, buffers*controlFrame)
	m.pins.Pin(&m.listening[0])
	if m.local {
		r, err := m.ep.Register(m.listening)
		if err != nil {
			return err
		}
		m.regions = append(m.regions, &region{buf: m.listening, r: r})
	}
	for i := range buffers {
		s, err := m.take(listen, nil, nil)
		if err != nil {
			return err
		}
		s.buf = m.listening[i*controlFrame : (i+1)*controlFrame]
		if code := m.startUrgent(s); code != 0 {
			return m.callError("receive", mtl.NoEndpoint, code)
		}
	}
	return nil
}

// mostFaults is how many control receives in a row may fail, or errors in a row
// belong to no operation, before the module counts as failed: an endpoint that
// refuses all would otherwise be asked for ever.
const mostFaults = 1000

// heard takes a control message, and posts the buffer again whatever it was.
func (m *module) heard(s *slot, ev *libfabric.Event) {
	s.posted = false
	switch {
	case ev.Err == 0:
		m.faults = 0
		m.frame(s.buf[:min(ev.Length, uint64(len(s.buf)))])
	case ev.Err == libfabric.Truncated: // a stranger's: longer than any of ours
	default:
		m.faults++
	}
	if m.broken != nil {
		return
	}
	if code := m.startUrgent(s); code != 0 || m.faults > mostFaults {
		m.fail(errors.New("receives of control messages fail: " + m.text(max(code, ev.Err))))
	}
}

// frame takes what came into a listening buffer. It may be a stranger's: what makes
// no sense is nobody's.
func (m *module) frame(b []byte) {
	switch {
	case len(b) > 1 && b[0] == frameControl:
		m.env.Upcall.Control(b[1:])
	case len(b) == answerFrame && b[0] == frameAnswer:
		m.answered(binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint64(b[9:]))
	}
}
