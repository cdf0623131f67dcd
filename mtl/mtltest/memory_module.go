package mtltest

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// memoryModule is a module of a Memory. Modules access one another, so the network's lock guards all of them. There are no upcalls with the lock
// held.
type memoryModule struct {
	f   *Memory
	env mtl.Env
	opt Options
	// envelopeLimits are those of opt.
	envelopeLimits  mtl.Envelope
	address         int
	peersByEndpoint []memoryPeer
	queuesByCID     map[uint32]*idQueues
	// recentQueues caches the last result of findQueues.
	recentQueues *idQueues
	pollCount    int
	inbox        inbox
	activeSends  map[*message]struct{}

	receivesBySlot []*receive
	idleReceives   *receive
	// pendingCancels are receives with a cancel that has not taken effect.
	pendingCancels []*receive
	claimsByOp     map[*mtl.Op]*message

	pollQueue
	moduleFailure error
	isClosed      bool
}

// pollQueue is the work of the next Poll.
type pollQueue struct {
	completedOps []*mtl.Op
	// deliveringOps is the second buffer of completedOps. Only Poll uses it.
	deliveringOps   []*mtl.Op
	controlMessages []*message
	// unackedMessages are synchronous ones that have matched a receive from any source.
	unackedMessages []*message
}

// checkSource returns the error of an invalid receive or probe. It also rejects fields that exceed their widths.
func (m *memoryModule) checkSource(from mtl.Endpoint, e mtl.Envelope) error {
	if e.Source == mtl.AnySource {
		e.Source, e.Endpoint = 0, 0
	} else if from == mtl.NoEndpoint || int(from) >= len(m.peersByEndpoint) {
		return errUnknownEndpoint
	}
	if e.Tag == mtl.AnyTag {
		e.Tag = 0
	}
	if !m.fits(e) {
		return m.misfit(e)
	}
	return m.moduleFailure
}

var errClosed = fmt.Errorf("mtl memory: %w", framework.ErrClosed)

// errUnknownEndpoint is the error of an endpoint that Connect has not returned.
var errUnknownEndpoint = fmt.Errorf("mtl memory: %w: the endpoint was never connected", framework.ErrUnsupported)

// fits reports whether an envelope without wildcards is within the limits.
func (m *memoryModule) fits(e mtl.Envelope) bool {
	most := &m.envelopeLimits
	return e.CID&^most.CID|uint32(e.Source&^most.Source)|uint32(e.Tag&^most.Tag)|uint32(e.Endpoint&^most.Endpoint) == 0
}

// misfit returns the error of an envelope outside of the limits.
func (m *memoryModule) misfit(e mtl.Envelope) error {
	switch {
	case e.CID > m.envelopeLimits.CID:
		return fmt.Errorf("mtl memory: id %d does not fit into %d bits", e.CID, m.opt.CIDBits)
	case e.Source&^m.envelopeLimits.Source != 0:
		return fmt.Errorf("mtl memory: source %d does not fit into %d bits", e.Source, m.opt.SourceBits)
	case e.Endpoint > m.envelopeLimits.Endpoint:
		return fmt.Errorf("mtl memory: endpoint %d does not fit into %d bits", e.Endpoint, m.opt.EndpointBits)
	}
	return fmt.Errorf("mtl memory: tag %d does not fit into %d bits", e.Tag, m.opt.TagBits)
}

func (m *memoryModule) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (done bool, err error) {
	f, peer := m.f, &m.peersByEndpoint[to]
	f.mu.Lock()
	defer f.mu.Unlock()
	if !m.fits(e) {
		return false, m.misfit(e)
	}
	if m.moduleFailure != nil {
		return false, m.moduleFailure
	}
	if peer.forgetErr != nil {
		return false, peer.forgetErr
	}
	if int64(len(buf)) > m.opt.MaxMessage {
		return false, fmt.Errorf("mtl memory: %d bytes, at most %d: %w", len(buf), m.opt.MaxMessage, mtl.ErrTooLong)
	}
	faults := &f.opt.Faults
	if peer.module.isClosed || faults.Send != nil {
		err := faults.Send
		if peer.module.isClosed {
			err = fmt.Errorf("it has closed: %w", framework.ErrClosed)
		}
		m.queueResult(op, mtl.Result{Err: m.sendError(to, err)})
		return false, nil
	}
	done = len(buf) <= m.opt.Inject && mode == mtl.Standard && !faults.NeverInject
	var msg *message
	if done {
		msg = f.newMessage(buf)
	} else {
		msg = f.newMessage(nil)
		msg.data, msg.sendOp = buf, op
		m.activeSends[msg] = struct{}{}
	}
	msg.envelope, msg.isSync, msg.from = e, mode == mtl.Synchronous, m
	f.deliver(peer.module, msg)
	return done, nil
}

// queueResult queues the result of an operation for the next Poll.
func (q *pollQueue) queueResult(op *mtl.Op, r mtl.Result) {
	op.Result = r
	q.completedOps = append(q.completedOps, op)
}

func (m *memoryModule) SendControl(op *mtl.Op, to mtl.Endpoint, data []byte) (done bool, err error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	peer := &m.peersByEndpoint[to]
	switch {
	case m.moduleFailure != nil:
		return false, m.moduleFailure
	case peer.forgetErr != nil:
		return false, peer.forgetErr
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
		m.queueResult(op, mtl.Result{})
		return false, nil
	}
	return true, nil
}

// abandonSend ends a send whose message was not received. The message may still arrive, as on a network.
func (m *memoryModule) abandonSend(msg *message, r mtl.Result) {
	msg.ownData = append(msg.ownData[:0], msg.data...)
	msg.data = msg.ownData
	m.completeSend(msg, r)
}

// completeSend ends the send of a message. f.mu held.
func (m *memoryModule) completeSend(msg *message, r mtl.Result) {
	if msg.sendOp == nil {
		return
	}
	m.queueResult(msg.sendOp, r)
	delete(m.activeSends, msg)
	msg.sendOp = nil
}

func (m *memoryModule) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if err := m.checkSource(from, e); err != nil {
		return err
	}
	q, p := m.queuesFor(e.CID, m.sourceIDOf(from, e))
	r := m.idleReceives
	if r == nil {
		r = &receive{slotIndex: uint32(len(m.receivesBySlot))}
		r.queueNode.Owner = r
		m.receivesBySlot = append(m.receivesBySlot, r)
	} else {
		m.idleReceives, r.nextIdle = r.nextIdle, nil
	}
	r.op, r.buf, r.idQueues = op, buf, q
	op.Slot = r.slotIndex
	r.queueNode.Source, r.queueNode.Tag = int(e.Source), int(e.Tag)
	if found := q.Post(p, &r.queueNode); found != nil {
		m.completeReceive(r, found.Owner)
	}
	return nil
}

// endReceive ends a receive without a message.
func (m *memoryModule) endReceive(r *receive, result mtl.Result) {
	m.queueResult(r.op, result)
	m.freeReceive(r)
}

func (m *memoryModule) freeReceive(r *receive) {
	r.op, r.buf, r.cancelAt = nil, nil, 0
	r.nextIdle, m.idleReceives = m.idleReceives, r
}

// completeReceive ends a receive with its message.
func (m *memoryModule) completeReceive(r *receive, msg *message) {
	msg.matchedAnySource = r.queueNode.Source == mtl.AnySource
	m.completeWithMessage(r.op, r.buf, msg)
	m.freeReceive(r)
}

// completeWithMessage ends an operation with its message, and acknowledges a synchronous one.
func (m *memoryModule) completeWithMessage(op *mtl.Op, buf []byte, msg *message) {
	var err error
	if int64(len(msg.data)) > m.opt.Eager {
		if err = m.lostError(msg); err != nil { // The send is not acknowledged.
			m.queueResult(op, mtl.Result{Err: err})
			return
		}
	}
	if copy(buf, msg.data) < len(msg.data) {
		err = framework.ErrTruncate
	}
	m.queueResult(op, mtl.Result{Source: msg.envelope.Source, Tag: msg.envelope.Tag, Bytes: int64(len(msg.data)), Err: err})
	if msg.isSync && msg.matchedAnySource {
		m.unackedMessages = append(m.unackedMessages, msg)
	} else {
		m.finishMessage(msg)
	}
}

// lostError returns the error of a long message whose sender has closed or was forgotten here, or nil.
func (m *memoryModule) lostError(msg *message) error {
	for i := range m.peersByEndpoint {
		if p := &m.peersByEndpoint[i]; p.module == msg.from && p.forgetErr != nil {
			return p.forgetErr
		}
	}
	if msg.isOrphan {
		return &framework.TransportError{Component: "mtl memory", Op: "receive", Err: errOrphan}
	}
	return nil
}

var errOrphan = errors.New("some of the message was still with its sender, which has closed")

// finishMessage ends the send of a received message.
func (m *memoryModule) finishMessage(msg *message) {
	if msg.sendOp != nil {
		msg.from.completeSend(msg, mtl.Result{})
	}
	m.f.freeMessage(msg)
}

func (m *memoryModule) Probe(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, claim bool) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if err := m.checkSource(from, e); err != nil {
		return err
	}
	q, p := m.queuesFor(e.CID, m.sourceIDOf(from, e))
	var r mtl.Result
	if found := q.Find(p, int(e.Source), int(e.Tag)); found != nil {
		msg := found.Owner
		r = mtl.Result{Found: true, Source: msg.envelope.Source, Tag: msg.envelope.Tag, Bytes: int64(len(msg.data))}
		if claim {
			q.RemoveUnexpected(found)
			m.claimsByOp[op] = msg
			msg.matchedAnySource = e.Source == mtl.AnySource
		}
	}
	m.queueResult(op, r)
	return nil
}

func (m *memoryModule) RecvClaimed(op *mtl.Op, buf []byte) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.moduleFailure != nil {
		return m.moduleFailure
	}
	m.completeWithMessage(op, buf, m.claimsByOp[op])
	delete(m.claimsByOp, op)
	return nil
}

func (m *memoryModule) Cancel(op *mtl.Op) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if int(op.Slot) >= len(m.receivesBySlot) { // A send.
		return
	}
	if r := m.receivesBySlot[op.Slot]; r.op == op && r.cancelAt == 0 {
		r.cancelAt = m.pollCount + m.f.opt.Faults.Polls
		m.pendingCancels = append(m.pendingCancels, r)
	}
}

func (m *memoryModule) Idle() bool {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	return len(m.completedOps) == 0 && len(m.unackedMessages) == 0
}

// deliverDue matches the messages that are due.
func (m *memoryModule) deliverDue() {
	for msg := m.inbox.head; msg != nil && msg.dueAt <= m.pollCount; msg = m.inbox.head {
		m.inbox.pop()
		if msg.isControl {
			m.controlMessages = append(m.controlMessages, msg)
			continue
		}
		source := int(msg.envelope.Source)
		if m.opt.ByProcess {
			source = msg.from.sourceID(msg.envelope)
		}
		q, p := m.queuesFor(msg.envelope.CID, source)
		if r := q.Arrive(p, int(msg.envelope.Tag)); r != nil {
			m.completeReceive(r.Owner, msg)
		} else {
			q.AddUnexpected(p, &msg.queueNode)
		}
	}
	if len(m.pendingCancels) > 0 {
		m.applyCancels()
	}
}

// applyCancels withdraws the receives whose cancel is due.
func (m *memoryModule) applyCancels() {
	kept := m.pendingCancels[:0]
	for _, r := range m.pendingCancels {
		switch {
		case r.cancelAt == 0: // It has matched.
		case r.cancelAt > m.pollCount:
			kept = append(kept, r)
		case r.idQueues.Cancel(&r.queueNode):
			m.endReceive(r, mtl.Result{Canceled: true})
		}
	}
	m.pendingCancels = kept
}

// endAll ends all operations.
func (m *memoryModule) endAll(result mtl.Result) {
	for msg := range m.activeSends {
		m.abandonSend(msg, result)
	}
	for _, r := range m.receivesBySlot {
		if r.op != nil {
			r.idQueues.Cancel(&r.queueNode)
			m.endReceive(r, result)
		}
	}
}

func (m *memoryModule) Poll() int {
	f := m.f
	f.mu.Lock()
	m.pollCount++
	if m.moduleFailure == nil {
		m.deliverDue()
	} else {
		m.endAll(mtl.Result{Err: m.moduleFailure})
	}
	n := len(m.completedOps) + len(m.controlMessages)
	if len(m.unackedMessages)+len(m.controlMessages) > 0 {
		m.deliverUpcalls()
	}
	// Operations that Done starts may complete at once. The next Poll delivers them.
	done := m.completedOps
	m.completedOps = m.deliveringOps[:0]
	f.mu.Unlock()
	for _, op := range done {
		op.Owner.Done(op)
	}
	m.deliveringOps = done
	return n
}

// deliverUpcalls acknowledges synchronous messages and delivers control messages. f.mu is held, and released during each upcall.
func (m *memoryModule) deliverUpcalls() {
	f := m.f
	for _, msg := range m.unackedMessages {
		f.mu.Unlock()
		_, answered := m.env.Upcall.Endpoint(msg.envelope.CID, int(msg.envelope.Source))
		f.mu.Lock()
		if answered {
			m.finishMessage(msg)
		}
	}
	m.unackedMessages = m.unackedMessages[:0]
	for _, msg := range m.controlMessages {
		f.mu.Unlock()
		m.env.Upcall.Control(msg.data)
		f.mu.Lock()
		f.freeMessage(msg)
	}
	m.controlMessages = m.controlMessages[:0]
}

func (m *memoryModule) Close() error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.isClosed {
		return nil
	}
	m.isClosed, m.moduleFailure = true, errClosed
	for msg := range m.activeSends {
		msg.isOrphan = true
	}
	m.endAll(mtl.Result{Canceled: true})
	m.completedOps, m.inbox, m.queuesByCID = nil, inbox{}, nil
	m.f.modulesByAddress[m.address] = closedModule
	return nil
}

// Interval implements progress.Polled.
func (m *memoryModule) Interval() time.Duration { return 100 * time.Microsecond }
