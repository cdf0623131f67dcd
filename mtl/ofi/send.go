package ofi

import (
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// may returns why nothing can be sent to a peer.
func (m *module) may(to mtl.Endpoint) error {
	if m.broken != nil {
		return m.broken
	}
	if int(to) >= len(m.peers) {
		return errNobody
	}
	return m.peers[to].gone
}

// Send implements mtl.Module. A message up to the provider's inject size costs
// one call of libfabric, which copies it; a longer one a slot and a pin as well.
func (m *module) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (done bool, err error) {
	if err := m.may(to); err != nil {
		return false, err
	}
	p := &m.peers[to]
	tag, data := m.layout.send(e, mode)
	var flags libfabric.Kind
	if m.layout.data {
		flags = libfabric.WithData
	}
	k := send
	if mode == mtl.Synchronous {
		k = synchronous
	} else if len(buf) <= m.caps.Inject && p.queue.head == nil && m.away == nil && p.stage == greeted {
		switch code := m.ep.TSend(0, buf, p.address, tag, data, flags|libfabric.Inject); code {
		case 0:
			m.injected(to)
			return true, nil
		case libfabric.Again:
		default:
			return false, m.callError("send", to, code)
		}
	}
	if int64(len(buf)) > m.caps.MaxMessage {
		return false, fmt.Errorf("%s: %d bytes, and %s takes at most %d: %w", component, len(buf), m.about.Provider, m.caps.MaxMessage, mtl.ErrTooLong)
	}
	s, err := m.take(k, op, buf)
	if err != nil {
		return false, m.transportError("send", to, err)
	}
	s.to, s.address, s.tag, s.more, s.flags = to, p.address, tag, data, flags
	return false, m.dispatch(s)
}

func (m *module) SendControl(op *mtl.Op, to mtl.Endpoint, data []byte) (done bool, err error) {
	if err := m.may(to); err != nil {
		return false, err
	}
	if len(data) == 0 || len(data) > m.caps.ControlLimit {
		return false, fmt.Errorf("%s: a control message of %d bytes, and 1 to %d are possible: %w", component, len(data), m.caps.ControlLimit, mtl.ErrTooLong)
	}
	return m.untagged(control, op, to, append(append(m.scratch[:0], frameControl), data...))
}

// untagged sends a frame to the peer's listening buffers. frame is copied if it
// can't go at once. Only a flush stands behind messages: what else is sent so may be what the
// peer waits for before it receives those that fill the provider's queue.
func (m *module) untagged(k kind, op *mtl.Op, to mtl.Endpoint, frame []byte) (done bool, err error) {
	p := &m.peers[to]
	if k != flush && len(frame) <= m.caps.Inject && m.away == nil && p.stage == greeted {
		switch code := m.ep.Send(0, frame, p.address, libfabric.Inject); code {
		case 0:
			m.hears(p, true)
			m.injected(to)
			return true, nil
		case libfabric.Again:
		default:
			return false, m.callError("send", to, code)
		}
	}
	s, err := m.take(k, op, nil)
	if err != nil {
		return false, m.transportError("send", to, err)
	}
	if s.own == nil {
		s.own = make([]byte, 0, controlFrame)
	}
	s.own = append(s.own[:0], frame...)
	s.buf = s.own
	s.pins.Pin(&s.buf[0])
	s.to, s.address = to, p.address
	return false, m.dispatch(s)
}

func (m *module) callError(op string, to mtl.Endpoint, code libfabric.Errno) error {
	return m.transportError(op, to, errors.New(m.text(code)))
}

// injected notes that there may be bytes for a peer which only this process can
// bring on their way.
func (m *module) injected(to mtl.Endpoint) {
	if p := &m.peers[to]; !p.dirty {
		p.dirty = true
		m.dirty = append(m.dirty, to)
	}
}

// dispatch starts a send, or queues it behind others that wait for room, or before them if
// that is what it may (untagged). An error
// means that nothing was started.
func (m *module) dispatch(s *slot) error {
	p := &m.peers[s.to]
	first := s.kind == control || s.kind == answer
	if first || p.queue.head == nil {
		code := m.start(s)
		if code == 0 {
			m.hears(p, true)
			m.started(s)
			return nil
		}
		if code != libfabric.Again {
			err := m.callError("send", s.to, code)
			m.release(s)
			return err
		}
		m.refusedBy(p)
	}
	if s.kind == flush {
		s.since = time.Now()
	}
	if first {
		p.queue.pushFirst(s)
	} else {
		p.queue.push(s)
	}
	if !p.isQueued {
		p.isQueued = true
		m.blocked = append(m.blocked, s.to)
	}
	return nil
}

// started has a synchronous send that libfabric has wait for its answer, and ends what
// was injected, which no event tells of. Sends are answered in their order.
func (m *module) started(s *slot) {
	switch {
	case !s.posted:
		m.injected(s.to)
		m.giveUp(s, mtl.Result{})
	case s.kind == synchronous:
		m.expect(s)
	}
}

// retryMost is how many peers' queues one Poll looks at: a job that talks to
// thousands must not spend its polls on those that don't answer.
const retryMost = 16

// flushPatience is how long a flush frame waits for room. Where the peer has closed
// before us, a provider that connects again for each message answers that there is
// none for ever: but then nothing is left of what the frame was to stand behind.
const flushPatience = 200 * time.Millisecond

// retry starts what waits for room.
func (m *module) retry() {
	for range min(retryMost, len(m.blocked)) {
		if m.latest++; m.latest >= len(m.blocked) {
			m.latest = 0
		}
		to := m.blocked[m.latest]
		p := &m.peers[to]
		if p.queue.head == nil { // since the Poll before: the last refusal may have begun a connection
			p.isQueued = false
			m.hears(p, true)
			n := len(m.blocked) - 1
			m.blocked[m.latest] = m.blocked[n]
			m.blocked = m.blocked[:n]
			continue
		}
		for p.queue.head != nil {
			s := p.queue.head
			code := m.start(s)
			if code == libfabric.Again {
				m.refusedBy(p)
				if s.kind != flush || time.Since(s.since) < flushPatience {
					break
				}
				code = libfabric.Canceled
			}
			p.queue.pop()
			if code == 0 {
				p.refusals, p.wait = 0, nil
				m.hears(p, true)
				m.started(s)
				continue
			}
			m.giveUp(s, mtl.Result{Err: m.callError("send", to, code)})
		}
		if p.queue.head != nil && m.overdue(to) {
			m.giveUpOn(to)
		}
	}
}

// lookEvery is at how many refusals a look at the clock is due: refusals are part
// of every stream of messages.
const lookEvery = 64

// overdue reports whether nobody is there who would take what waits for a peer. A
// peer that is slow has something on its way, which is waited for without a limit.
// Nor does it count while the sends of others fill the provider's queue.
func (m *module) overdue(to mtl.Endpoint) bool {
	p := &m.peers[to]
	if p.refusals++; p.refusals%lookEvery != 0 {
		return false
	}
	if p.wait == nil {
		p.wait = trial.NewPatience(m.connect)
	}
	if !p.wait.Over() {
		return false
	}
	p.wait = nil // if not now, then after another while
	return p.sends == 0 && !m.isCrowded()
}

// refusedBy notes that libfabric takes nothing for a peer now. If that is not because its queue is full, the peer is deaf
// (mustHold), whatever of it libfabric has: a long message stays there until it is received, or its receiver forgotten.
func (m *module) refusedBy(p *peer) {
	if m.away == nil {
		m.hears(p, p.stage < greeted || m.isCrowded())
	}
}

// isCrowded reports whether sends find no room in libfabric's queue, whomever they are for.
func (m *module) isCrowded() bool { return m.sends >= m.txSize/2 || m.posted >= m.room.all }

// hears notes whether a peer takes messages, as far as is known.
func (m *module) hears(p *peer, does bool) {
	if p.deaf == does {
		p.deaf = !does
		if does {
			m.deaf--
		} else {
			m.deaf++
		}
	}
}

// route describes the addresses of both ends of a socket provider, for errors.
func (m *module) route(to mtl.Endpoint) string {
	own, isIP := ipOf(m.format, m.own)
	peer, isPeerIP := ipOf(m.format, m.peers[to].name)
	if !isIP || !isPeerIP {
		return ""
	}
	return fmt.Sprintf(" from %s (%v) at %v; mtl.ofi.domain_include chooses the interface", m.about.Device, own, peer)
}

// giveUpOn ends the sends that wait for a peer. Another one is tried again.
func (m *module) giveUpOn(to mtl.Endpoint) {
	p := &m.peers[to]
	err := m.transportError("send", to, fmt.Errorf("%v: nothing took a message there within %v (mtl.ofi.connect_timeout): its session is over, its process is stopped, or %s does not reach it%s",
		m.env.Identity.Proc, m.connect, m.about.Provider, m.route(to)))
	for p.queue.head != nil {
		s := p.queue.head
		p.queue.pop()
		m.giveUp(s, mtl.Result{Err: err})
	}
}

// Idle implements mtl.Module. Where messages were injected, and the provider may
// still have some of them, a frame that the peer ignores goes behind them: when
// that has left, so have they.
func (m *module) Idle() bool {
	if m.broken != nil {
		return true
	}
	for len(m.dirty) > 0 {
		to := m.dirty[len(m.dirty)-1]
		m.dirty = m.dirty[:len(m.dirty)-1]
		p := &m.peers[to]
		p.dirty = false
		if p.gone == nil {
			// An error means that the peer gets nothing any more.
			m.untagged(flush, nil, to, append(m.scratch[:0], frameFlush))
		}
	}
	return m.sending == 0 && len(m.over) == 0
}
