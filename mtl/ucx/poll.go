package ucx

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
)

// pollMost is how many completions one Poll takes.
const pollMost = 64

// Poll implements progress.Source: one call of UCX.
func (m *module) Poll() int {
	n := 0
	if !m.closed {
		n = m.worker.Poll(m.events[:], m.long > 0)
		m.came(n)
		if m.guard != nil && m.guard.asked {
			m.watch(n > 0)
		}
	}
	if len(m.over) > 0 {
		n += m.tell()
	}
	return n
}

// came takes n events.
func (m *module) came(n int) {
	for i := range n {
		m.complete(&m.events[i])
	}
	if len(m.vain) > 0 {
		m.abandon()
	}
}

// ended is an operation of which the next Poll tells.
type ended struct {
	op     *mtl.Op
	result mtl.Result
	claim  *slot // that has the message of a probe
}

// end has the next Poll tell op's owner.
func (m *module) end(op *mtl.Op, r mtl.Result) {
	if op != nil {
		m.over = append(m.over, ended{op: op, result: r})
	}
}

// tell tells of operations that ended without an event.
func (m *module) tell() int {
	m.over, m.telling = m.telling[:0], m.over
	for _, e := range m.telling {
		if e.claim != nil {
			m.find(e.claim)
		}
		finished(e.op, e.result)
	}
	n := len(m.telling)
	clear(m.telling)
	return n
}

// find finds out who has sent a message that a probe has claimed, if some of it may still be
// there: lost wants to know.
func (m *module) find(s *slot) {
	if s.to == mtl.NoEndpoint && s.found.Bytes > m.caps.Eager {
		from, ok := m.env.Upcall.Endpoint(s.cid, int(s.found.Source))
		s.to, s.orphan = from, !ok
	}
}

// finish frees a slot and tells its operation's owner.
func (m *module) finish(s *slot, r mtl.Result) {
	op := s.op
	m.release(s)
	if op != nil {
		finished(op, r)
	}
}

// finished tells an operation's owner. The result is written field by field: a copy at once would wait
// for the stores of its parts.
func finished(op *mtl.Op, r mtl.Result) {
	to := &op.Result
	to.Source, to.Tag, to.Found, to.Canceled, to.Bytes, to.Err = r.Source, r.Tag, r.Found, r.Canceled, r.Bytes, r.Err
	op.Owner.Done(op)
}

// complete takes one event.
func (m *module) complete(ev *ucp.Event) {
	if ev.Slot == ucp.NoSlot {
		m.failed(mtl.Endpoint(ev.Peer), ev.Err)
		return
	}
	s := m.slots[ev.Slot]
	switch s.kind {
	case receive, claimed:
		m.received(s, ev)
	case send, synchronous, flush:
		var r mtl.Result
		if ev.Err != 0 {
			r.Err = m.codeError("send", s.to, ev.Err)
		} else if s.kind != flush {
			m.sent(s.to)
		}
		m.finish(s, r)
	case listen:
		m.heard(s, ev)
	default:
		m.release(s)
	}
}

// failed takes the end of an endpoint, in peer mode: nothing goes to that process any more, as
// some of what went there may be lost. Whether it has died is not known.
func (m *module) failed(to mtl.Endpoint, code ucp.Status) {
	if p := &m.peers[to]; p.gone == nil {
		m.leave(to, m.codeError("send", to, code))
	}
}

// received ends a receive.
func (m *module) received(s *slot, ev *ucp.Event) {
	is := envelope(ev.Tag)
	r := mtl.Result{Source: is.Source, Tag: is.Tag, Bytes: int64(ev.Length)}
	if s.kind == claimed {
		r = s.found
	}
	switch ev.Err {
	case 0:
		s.known = s.known && r.Bytes > ucp.Short
		if r.Bytes > int64(len(s.buf)) {
			r.Err = framework.ErrTruncate
		}
	case ucp.Canceled:
		if s.canceled {
			m.finish(s, mtl.Result{Canceled: true})
			return
		}
		fallthrough
	default:
		why := fmt.Errorf("the network gave it up, as it does when the peer goes in the middle of a message: %w", errors.New(m.worker.Describe(ev.Err)))
		m.finish(s, mtl.Result{Err: m.transportError("receive", s.to, why)})
		return
	}
	s.arrived(int(r.Bytes))
	m.finish(s, r)
}

// Control messages.
const (
	controlLimit = 256 // bytes
	listeners    = 8   // receives that are posted; UCX keeps what else comes
)

// listen posts the receives of control messages.
func (m *module) listen() error {
	all := make([]byte, listeners*controlLimit)
	for i := range listeners {
		s, err := m.take(listen, nil)
		if err != nil {
			return err
		}
		m.pin(s, all[i*controlLimit:(i+1)*controlLimit])
		m.listenAgain(s)
	}
	return nil
}

func (m *module) listenAgain(s *slot) {
	s.posted = true
	m.worker.Recv(s.number, s.buf, control, ^uint64(0), ucp.Whole)
}

// heard takes a control message, and posts the buffer again whatever it was. It may be a
// stranger's: one that is longer than any of ours is dropped.
func (m *module) heard(s *slot, ev *ucp.Event) {
	if s.posted = false; m.closed {
		m.release(s)
		return
	}
	switch ev.Err {
	case 0:
		m.failedListens = 0
	case ucp.Canceled, ucp.Truncated:
	default:
		if m.failedListens++; m.failedListens > listeners {
			m.breakDown(m.transportError("receive", mtl.NoEndpoint, fmt.Errorf("control messages: %w", errors.New(m.worker.Describe(ev.Err)))))
			m.release(s)
			return
		}
	}
	if ev.Err == 0 && ev.Length > 0 && ev.Length <= controlLimit {
		ucp.Wrote(s.buf, int(ev.Length))
		if data := s.buf[:ev.Length]; !m.guard.heard(data) {
			m.env.Upcall.Control(data)
		}
	}
	m.listenAgain(s)
}
