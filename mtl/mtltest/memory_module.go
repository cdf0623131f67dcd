package mtltest

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// memory is one module of a Memory. The network's lock guards all of it, because
// modules touch one another; nothing is called upwards with it held.
type memory struct {
	f       *Memory
	env     mtl.Env
	opt     Options
	most    mtl.Envelope // of opt
	address int
	peers   []memoryPeer // by endpoint
	queues  map[uint32]*queues
	recent  *queues // that were asked for last
	polls   int
	inbox   inbox
	sends   map[*message]struct{} // those in progress

	receives []*receive // by Op.Slot; those without an op are idle
	idle     *receive
	cancels  []*receive // those whose cancel has not taken effect
	claims   map[*mtl.Op]*message

	done    []*mtl.Op  // of which the next Poll tells; their results are set
	told    []*mtl.Op  // room for done, used only by Poll
	control []*message // of which the next Poll tells
	answers []*message // synchronous ones that have matched a receive from any source, and are not answered
	failed  error      // why the module takes no operations
	closed  bool
}

// from returns the error of a receive or a probe that is refused. Protocols under test must keep
// to the widths.
func (m *memory) from(from mtl.Endpoint, e mtl.Envelope) error {
	if e.Source == mtl.AnySource {
		e.Source, e.Endpoint = 0, 0
	} else if from == mtl.NoEndpoint || int(from) >= len(m.peers) {
		return errNobody
	}
	if e.Tag == mtl.AnyTag {
		e.Tag = 0
	}
	if !m.fits(e) {
		return m.misfit(e)
	}
	return m.failed
}

var errClosed = fmt.Errorf("mtl memory: %w", framework.ErrClosed)

// errNobody is the error of an endpoint that Connect has not returned.
var errNobody = fmt.Errorf("mtl memory: %w: the endpoint was never connected", framework.ErrUnsupported)

// fits reports whether an envelope without wildcards keeps to the widths.
func (m *memory) fits(e mtl.Envelope) bool {
	most := &m.most
	return e.CID&^most.CID|uint32(e.Source&^most.Source)|uint32(e.Tag&^most.Tag)|uint32(e.Endpoint&^most.Endpoint) == 0
}

// misfit returns the error of an envelope that does not fit.
func (m *memory) misfit(e mtl.Envelope) error {
	switch {
	case e.CID > m.most.CID:
		return fmt.Errorf("mtl memory: id %d does not fit into %d bits", e.CID, m.opt.CIDBits)
	case e.Source&^m.most.Source != 0:
		return fmt.Errorf("mtl memory: source %d does not fit into %d bits", e.Source, m.opt.SourceBits)
	case e.Endpoint > m.most.Endpoint:
		return fmt.Errorf("mtl memory: endpoint %d does not fit into %d bits", e.Endpoint, m.opt.EndpointBits)
	}
	return fmt.Errorf("mtl memory: tag %d does not fit into %d bits", e.Tag, m.opt.TagBits)
}

func (m *memory) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (done bool, err error) {
	f, peer := m.f, &m.peers[to]
	f.mu.Lock()
	defer f.mu.Unlock()
	if !m.fits(e) {
		return false, m.misfit(e)
	}
	if m.failed != nil {
		return false, m.failed
	}
	if peer.gone != nil {
		return false, peer.gone
	}
	if int64(len(buf)) > m.opt.MaxMessage {
		return false, fmt.Errorf("mtl memory: %d bytes, at most %d: %w", len(buf), m.opt.MaxMessage, mtl.ErrTooLong)
	}
	faults := &f.opt.Faults
	if peer.module.closed || faults.Send != nil {
		err := faults.Send
		if peer.module.closed {
			err = fmt.Errorf("it has closed: %w", framework.ErrClosed)
		}
		m.end(op, mtl.Result{Err: m.failure(to, err)})
		return false, nil
	}
	done = len(buf) <= m.opt.Inject && mode == mtl.Standard && !faults.NeverInject
	var msg *message
	if done {
		msg = f.message(buf)
	} else {
		msg = f.message(nil)
		msg.data, msg.op = buf, op
		m.sends[msg] = struct{}{}
	}
	msg.envelope, msg.sync, msg.from = e, mode == mtl.Synchronous, m
	f.deliver(peer.module, msg)
	return done, nil
}

// end has the next Poll tell of the end of an operation.
func (m *memory) end(op *mtl.Op, r mtl.Result) {
	op.Result = r
	m.done = append(m.done, op)
}

func (m *memory) SendControl(op *mtl.Op, to mtl.Endpoint, data []byte) (done bool, err error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	peer := &m.peers[to]
	switch {
	case m.failed != nil:
		return false, m.failed
	case peer.gone != nil:
		return false, peer.gone
	case len(data) == 0 || len(data) > m.opt.ControlLimit:
		return false, fmt.Errorf("mtl memory: a control message of %d bytes, at most %d: %w", len(data), m.opt.ControlLimit, mtl.ErrTooLong)
	}
	if f := m.f.opt.Faults.Control; f != nil {
		for _, other := range f(bytes.Clone(data)) {
			m.f.deliverControl(peer.module, other)
		}
	} else {
		m.f.deliverControl(peer.module, data)
	}
	if m.f.opt.Faults.NeverInject {
		m.end(op, mtl.Result{})
		return false, nil
	}
	return true, nil
}

// giveUp ends a send whose message nobody has received. It may arrive all the
// same, as on a network.
func (m *memory) giveUp(msg *message, r mtl.Result) {
	msg.own = append(msg.own[:0], msg.data...)
	msg.data = msg.own
	m.sent(msg, r)
}

// sent ends the send of a message. f.mu held.
func (m *memory) sent(msg *message, r mtl.Result) {
	if msg.op == nil {
		return
	}
	m.end(msg.op, r)
	delete(m.sends, msg)
	msg.op = nil
}

func (m *memory) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if err := m.from(from, e); err != nil {
		return err
	}
	q, p := m.queue(e.CID, m.sourceOf(from, e))
	r := m.idle
	if r == nil {
		r = &receive{slot: uint32(len(m.receives))}
		r.node.Owner = r
		m.receives = append(m.receives, r)
	} else {
		m.idle, r.next = r.next, nil
	}
	r.op, r.buf, r.queues = op, buf, q
	op.Slot = r.slot
	r.node.Source, r.node.Tag = int(e.Source), int(e.Tag)
	if found := q.Post(p, &r.node); found != nil {
		m.received(r, found.Owner)
	}
	return nil
}

// finish ends a receive that has no message.
func (m *memory) finish(r *receive, result mtl.Result) {
	m.end(r.op, result)
	m.free(r)
}

func (m *memory) free(r *receive) {
	r.op, r.buf, r.cancel = nil, nil, 0
	r.next, m.idle = m.idle, r
}

// received ends a receive with its message.
func (m *memory) received(r *receive, msg *message) {
	msg.wild = r.node.Source == mtl.AnySource
	m.take(r.op, r.buf, msg)
	m.free(r)
}

// take ends an operation with a message that has matched, and has its sender told, which
// may be here.
func (m *memory) take(op *mtl.Op, buf []byte, msg *message) {
	var err error
	if int64(len(msg.data)) > m.opt.Eager {
		if err = m.lost(msg); err != nil { // and the sender, if there is one, is never told
			m.end(op, mtl.Result{Err: err})
			return
		}
	}
	if copy(buf, msg.data) < len(msg.data) {
		err = framework.ErrTruncate
	}
	m.end(op, mtl.Result{Source: msg.envelope.Source, Tag: msg.envelope.Tag, Bytes: int64(len(msg.data)), Err: err})
	if msg.sync && msg.wild {
		m.answers = append(m.answers, msg)
	} else {
		m.over(msg)
	}
}

// lost returns why the rest of a long message can't be had: its sender has closed, or is
// forgotten here.
func (m *memory) lost(msg *message) error {
	for i := range m.peers {
		if p := &m.peers[i]; p.module == msg.from && p.gone != nil {
			return p.gone
		}
	}
	if msg.orphan {
		return &framework.TransportError{Component: "mtl memory", Op: "receive", Err: errOrphan}
	}
	return nil
}

var errOrphan = errors.New("some of the message was still with its sender, which has closed")

// over ends the send of a message that has been received.
func (m *memory) over(msg *message) {
	if msg.op != nil {
		msg.from.sent(msg, mtl.Result{})
	}
	m.f.release(msg)
}

func (m *memory) Probe(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, claim bool) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if err := m.from(from, e); err != nil {
		return err
	}
	q, p := m.queue(e.CID, m.sourceOf(from, e))
	var r mtl.Result
	if found := q.Find(p, int(e.Source), int(e.Tag)); found != nil {
		msg := found.Owner
		r = mtl.Result{Found: true, Source: msg.envelope.Source, Tag: msg.envelope.Tag, Bytes: int64(len(msg.data))}
		if claim {
			q.Take(found)
			m.claims[op] = msg
			msg.wild = e.Source == mtl.AnySource
		}
	}
	m.end(op, r)
	return nil
}

func (m *memory) RecvClaimed(op *mtl.Op, buf []byte) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.failed != nil {
		return m.failed
	}
	m.take(op, buf, m.claims[op])
	delete(m.claims, op)
	return nil
}

func (m *memory) Cancel(op *mtl.Op) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if int(op.Slot) >= len(m.receives) { // it is a send
		return
	}
	if r := m.receives[op.Slot]; r.op == op && r.cancel == 0 {
		r.cancel = m.polls + m.f.opt.Faults.Polls
		m.cancels = append(m.cancels, r)
	}
}

func (m *memory) Idle() bool {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	return len(m.done) == 0 && len(m.answers) == 0
}

// arrive brings in what is due.
func (m *memory) arrive() {
	for msg := m.inbox.head; msg != nil && msg.due <= m.polls; msg = m.inbox.head {
		m.inbox.pop()
		if msg.control {
			m.control = append(m.control, msg)
			continue
		}
		source := int(msg.envelope.Source)
		if m.opt.ByProcess {
			source = msg.from.endpoint(msg.envelope)
		}
		q, p := m.queue(msg.envelope.CID, source)
		if r := q.Arrive(p, int(msg.envelope.Tag)); r != nil {
			m.received(r.Owner, msg)
		} else {
			q.Keep(p, &msg.node)
		}
	}
	if len(m.cancels) > 0 {
		m.withdraw()
	}
}

// withdraw takes the receives out whose cancel is due.
func (m *memory) withdraw() {
	kept := m.cancels[:0]
	for _, r := range m.cancels {
		switch {
		case r.cancel == 0: // it has matched meanwhile
		case r.cancel > m.polls:
			kept = append(kept, r)
		case r.queues.Cancel(&r.node):
			m.finish(r, mtl.Result{Canceled: true})
		}
	}
	m.cancels = kept
}

// giveAllUp ends everything that is in progress.
func (m *memory) giveAllUp(result mtl.Result) {
	for msg := range m.sends {
		m.giveUp(msg, result)
	}
	for _, r := range m.receives {
		if r.op != nil {
			r.queues.Cancel(&r.node)
			m.finish(r, result)
		}
	}
}

func (m *memory) Poll() int {
	f := m.f
	f.mu.Lock()
	m.polls++
	if m.failed == nil {
		m.arrive()
	} else {
		m.giveAllUp(mtl.Result{Err: m.failed})
	}
	n := len(m.done) + len(m.control)
	if len(m.answers)+len(m.control) > 0 {
		m.callUp()
	}
	// What Done starts may be over at once: that is for the next Poll.
	done := m.done
	m.done = m.told[:0]
	f.mu.Unlock()
	for _, op := range done {
		op.Owner.Done(op)
	}
	m.told = done
	return n
}

// callUp asks for whom it must answer, and hands up what has come. f.mu held, and released
// meanwhile.
func (m *memory) callUp() {
	f := m.f
	for _, msg := range m.answers {
		f.mu.Unlock()
		_, answered := m.env.Upcall.Endpoint(msg.envelope.CID, int(msg.envelope.Source))
		f.mu.Lock()
		if answered {
			m.over(msg)
		}
	}
	m.answers = m.answers[:0]
	for _, msg := range m.control {
		f.mu.Unlock()
		m.env.Upcall.Control(msg.data)
		f.mu.Lock()
		f.release(msg)
	}
	m.control = m.control[:0]
}

func (m *memory) Close() error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed, m.failed = true, errClosed
	for msg := range m.sends {
		msg.orphan = true
	}
	m.giveAllUp(mtl.Result{Canceled: true})
	m.done, m.inbox, m.queues = nil, inbox{}, nil
	m.f.modules[m.address] = departed
	return nil
}

// Interval implements progress.Polled.
func (m *memory) Interval() time.Duration { return 100 * time.Microsecond }
