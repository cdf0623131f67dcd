package mtltest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
)

// memory is one module of a Memory. The network's lock guards all of it, because
// modules touch one another; nothing is called upwards with it held.
type memory struct {
	f       *Memory
	env     mtl.Env
	opt     Options
	address int
	peers   []memoryPeer // by endpoint
	queues  map[uint32]*queues
	polls   int
	inbox   []*message
	sends   map[*message]struct{} // those in progress

	receives []*receive // those in progress
	idle     spare[receive]
	cancels  []*receive // those whose cancel has not taken effect
	claims   map[*mtl.Op]*message

	done    []completion // of which the next Poll tells
	told    []completion // room for done, used only by Poll
	control []*message   // of which the next Poll tells
	answers []*message   // synchronous ones that have matched a receive from any source, and are not answered
	failed  error
	closed  bool
}

type completion struct {
	op     *mtl.Op
	result mtl.Result
}

// queues are the matching state of one communicator id.
type queues struct {
	match.Queues[receive, message]
	peers map[int32]*match.Peer[receive, message]
}

// receive is one in progress.
type receive struct {
	at     int // in memory.receives
	op     *mtl.Op
	buf    []byte
	queues *queues
	node   match.Recv[receive]
	cancel int // the poll in which a cancel takes effect; 0: none
}

// message is on its way, or waits for its receive.
type message struct {
	control  bool
	envelope mtl.Envelope
	data     []byte // own, or the sender's buffer
	own      []byte
	from, to *memory
	op       *mtl.Op // of the sender, who is told when the message has matched; or nil
	sync     bool
	wild     bool // it has matched a receive or a probe from any source
	orphan   bool // its sender has closed
	due      int  // the receiver's poll in which it arrives
	node     match.Message[message]
}

// queue returns the matching state of an id, and that of the source unless it is
// AnySource.
func (m *memory) queue(e mtl.Envelope) (*queues, *match.Peer[receive, message]) {
	q := m.queues[e.CID]
	if q == nil {
		q = &queues{peers: map[int32]*match.Peer[receive, message]{}}
		m.queues[e.CID] = q
	}
	p := q.peers[e.Source]
	if p == nil && e.Source != mtl.AnySource {
		p = new(match.Peer[receive, message])
		q.peers[e.Source] = p
	}
	return q, p
}

// state returns why the module takes no operations.
func (m *memory) state() error {
	if m.closed {
		return fmt.Errorf("mtl memory: %w", framework.ErrClosed)
	}
	return m.failed
}

// from is check for a receive or a probe from an endpoint.
func (m *memory) from(from mtl.Endpoint, e mtl.Envelope) error {
	if e.Source != mtl.AnySource && (from == mtl.NoEndpoint || int(from) >= len(m.peers)) {
		return errNobody
	}
	return m.check(e)
}

// errNobody is the error of an endpoint that Connect has not returned.
var errNobody = fmt.Errorf("mtl memory: %w: the endpoint was never connected", framework.ErrUnsupported)

// check is state, and says what is wrong with an envelope: a protocol under test
// must keep to the widths.
func (m *memory) check(e mtl.Envelope) error {
	switch {
	case uint64(e.CID)>>m.opt.CIDBits != 0:
		return fmt.Errorf("mtl memory: id %d does not fit into %d bits", e.CID, m.opt.CIDBits)
	case e.Source < mtl.AnySource || e.Source>>m.opt.SourceBits > 0:
		return fmt.Errorf("mtl memory: source %d does not fit into %d bits", e.Source, m.opt.SourceBits)
	case e.Tag < mtl.AnyTag || e.Tag == mtl.AnySource || e.Tag>>m.opt.TagBits > 0:
		return fmt.Errorf("mtl memory: tag %d does not fit into %d bits", e.Tag, m.opt.TagBits)
	}
	return m.state()
}

func (m *memory) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (done bool, err error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	peer := &m.peers[to]
	if err := m.check(e); err != nil {
		return false, err
	}
	switch {
	case peer.gone != nil:
		return false, peer.gone
	case int64(len(buf)) > m.opt.MaxMessage:
		return false, fmt.Errorf("mtl memory: %d bytes, at most %d: %w", len(buf), m.opt.MaxMessage, mtl.ErrTooLong)
	}
	faults := &m.f.opt.Faults
	err = faults.Send
	if peer.module.closed {
		err = fmt.Errorf("it has closed: %w", framework.ErrClosed)
	}
	if err != nil {
		m.done = append(m.done, completion{op, mtl.Result{Err: m.failure(to, err)}})
		return false, nil
	}
	done = len(buf) <= m.opt.Inject && mode == mtl.Standard && !faults.NeverInject
	var msg *message
	if done {
		msg = m.f.message(buf)
	} else {
		msg = m.f.message(nil)
		msg.data, msg.op = buf, op
		m.sends[msg] = struct{}{}
	}
	msg.envelope, msg.sync, msg.from = e, mode == mtl.Synchronous, m
	m.f.deliver(peer.module, msg)
	return done, nil
}

func (m *memory) SendControl(op *mtl.Op, to mtl.Endpoint, data []byte) (done bool, err error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	peer := &m.peers[to]
	switch {
	case m.state() != nil:
		return false, m.state()
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
		m.done = append(m.done, completion{op: op})
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
	m.done = append(m.done, completion{msg.op, r})
	delete(m.sends, msg)
	msg.op = nil
}

func (m *memory) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if err := m.from(from, e); err != nil {
		return err
	}
	q, p := m.queue(e)
	r := m.idle.take()
	r.at, r.op, r.buf, r.queues = len(m.receives), op, buf, q
	r.node.Owner, r.node.Source, r.node.Tag = r, int(e.Source), int(e.Tag)
	m.receives = append(m.receives, r)
	if found := q.Post(p, &r.node); found != nil {
		m.received(r, found.Owner)
	}
	return nil
}

// finish ends a receive that has no message.
func (m *memory) finish(r *receive, result mtl.Result) {
	m.done = append(m.done, completion{r.op, result})
	m.free(r)
}

func (m *memory) free(r *receive) {
	last := len(m.receives) - 1
	m.receives[r.at], m.receives[last].at = m.receives[last], r.at
	m.receives[last] = nil
	m.receives = m.receives[:last]
	r.op, r.buf, r.cancel = nil, nil, 0
	m.idle.give(r)
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
	if err := m.lost(msg); err != nil { // and the sender, if there is one, is never told
		m.done = append(m.done, completion{op, mtl.Result{Err: err}})
		return
	}
	var err error
	if copy(buf, msg.data) < len(msg.data) {
		err = framework.ErrTruncate
	}
	m.done = append(m.done, completion{op, mtl.Result{Source: msg.envelope.Source, Tag: msg.envelope.Tag, Bytes: int64(len(msg.data)), Err: err}})
	if msg.sync && msg.wild {
		m.answers = append(m.answers, msg)
	} else {
		m.over(msg)
	}
}

// lost returns why the rest of a message can't be had: its sender has closed, or is
// forgotten here.
func (m *memory) lost(msg *message) error {
	if int64(len(msg.data)) <= m.opt.Eager {
		return nil
	}
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
	msg.from.sent(msg, mtl.Result{})
	m.f.release(msg)
}

func (m *memory) Probe(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, claim bool) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if err := m.from(from, e); err != nil {
		return err
	}
	q, p := m.queue(e)
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
	m.done = append(m.done, completion{op, r})
	return nil
}

func (m *memory) RecvClaimed(op *mtl.Op, buf []byte) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if err := m.state(); err != nil {
		return err
	}
	m.take(op, buf, m.claims[op])
	delete(m.claims, op)
	return nil
}

func (m *memory) Cancel(op *mtl.Op) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	i := slices.IndexFunc(m.receives, func(r *receive) bool { return r.op == op })
	if i < 0 {
		return
	}
	if r := m.receives[i]; r.cancel == 0 {
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
	due := 0
	for ; due < len(m.inbox) && m.inbox[due].due <= m.polls; due++ {
		msg := m.inbox[due]
		if msg.control {
			m.control = append(m.control, msg)
			continue
		}
		q, p := m.queue(msg.envelope)
		if r := q.Arrive(p, int(msg.envelope.Tag)); r != nil {
			m.received(r.Owner, msg)
		} else {
			msg.node.Owner = msg
			q.Keep(p, &msg.node)
		}
	}
	m.inbox = slices.Delete(m.inbox, 0, due)
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
	for _, r := range slices.Clone(m.receives) { // finish takes them out
		r.queues.Cancel(&r.node)
		m.finish(r, result)
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
	// What Done starts may be over at once: that is for the next Poll.
	done := m.done
	m.done = m.told[:0]
	f.mu.Unlock()
	for _, c := range done {
		c.op.Result = c.result
		c.op.Owner.Done(c.op)
	}
	m.told = done
	return n
}

func (m *memory) Close() error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	for msg := range m.sends {
		msg.orphan = true
	}
	m.giveAllUp(mtl.Result{Canceled: true})
	m.done, m.inbox, m.queues = nil, nil, nil
	m.f.modules[m.address] = departed
	return nil
}

// Interval implements progress.Polled.
func (m *memory) Interval() time.Duration { return 100 * time.Microsecond }
