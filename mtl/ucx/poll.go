package ucx

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
)

// eventsPerPoll is the largest number of completions that one Poll reads.
const eventsPerPoll = 64

// Poll implements progress.Source. It calls UCX once.
func (m *module) Poll() int {
	n := 0
	if !m.isClosed {
		n = m.worker.Poll(m.events[:], m.slots.longOperations > 0)
		m.handleEvents(n)
		if m.guard != nil && m.guard.isWaiting {
			m.pollGuard(n > 0)
		}
	}
	if len(m.results.pending) > 0 {
		n += m.deliverResults()
	}
	return n
}

// handleEvents handles the first n events.
func (m *module) handleEvents(n int) {
	for i := range n {
		m.handleEvent(&m.events[i])
	}
	if len(m.canceled.receives) > 0 {
		m.abandonCanceled()
	}
}

// resultQueue holds results for the next Poll.
type resultQueue struct {
	pending []queuedResult
	// delivering is the second buffer of pending. Only Poll uses it.
	delivering []queuedResult
}

// queuedResult is the result of an operation that ended without a completion.
type queuedResult struct {
	op     *mtl.Op
	result mtl.Result
	// claim is the slot of the message that a probe has claimed, or nil.
	claim *slot
}

// queueResult queues the result of op for the next Poll.
func (m *module) queueResult(op *mtl.Op, r mtl.Result) {
	if op != nil {
		m.results.pending = append(m.results.pending, queuedResult{op: op, result: r})
	}
}

// deliverResults notifies the owners of the queued results.
func (m *module) deliverResults() int {
	m.results.pending, m.results.delivering = m.results.delivering[:0], m.results.pending
	for _, e := range m.results.delivering {
		if e.claim != nil {
			m.findSender(e.claim)
		}
		notifyOwner(e.op, e.result)
	}
	n := len(m.results.delivering)
	clear(m.results.delivering)
	return n
}

// findSender finds the sender of a claimed message that may not be complete, for lostClaim.
func (m *module) findSender(s *slot) {
	if s.peer == mtl.NoEndpoint && s.found.Bytes > m.caps.Eager {
		from, ok := m.env.Upcall.Endpoint(s.cid, int(s.found.Source))
		s.peer, s.hasLeft = from, !ok
	}
}

// completeOp releases a slot and notifies the owner of its operation.
func (m *module) completeOp(s *slot, r mtl.Result) {
	op := s.op
	m.releaseSlot(s)
	if op != nil {
		notifyOwner(op, r)
	}
}

// notifyOwner sets the result of an operation and notifies its owner. It assigns the fields one by one, because a copy of the
// struct would wait for the stores of its fields.
func notifyOwner(op *mtl.Op, r mtl.Result) {
	to := &op.Result
	to.Source, to.Tag, to.Found, to.Canceled, to.Bytes, to.Err = r.Source, r.Tag, r.Found, r.Canceled, r.Bytes, r.Err
	op.Owner.Done(op)
}

// handleEvent handles one completion.
func (m *module) handleEvent(ev *ucp.Event) {
	if ev.Slot == ucp.NoSlot {
		m.endpointFailed(mtl.Endpoint(ev.Peer), ev.Err)
		return
	}
	s := m.slots.all[ev.Slot]
	switch s.kind {
	case slotReceive, slotClaimed:
		m.completeReceive(s, ev)
	case slotSend, slotSyncSend, slotFlush:
		var r mtl.Result
		if ev.Err != 0 {
			r.Err = m.codeError("send", s.peer, ev.Err)
		} else if s.kind != slotFlush {
			m.markUnflushed(s.peer)
		}
		m.completeOp(s, r)
	case slotControlReceive:
		m.completeControlReceive(s, ev)
	default:
		m.releaseSlot(s)
	}
}

// endpointFailed disconnects a peer in peer mode after an error of its endpoint, because messages may be lost. The process may
// still be alive.
func (m *module) endpointFailed(to mtl.Endpoint, code ucp.Status) {
	if p := &m.peers.all[to]; p.sendErr == nil {
		m.disconnectPeer(to, m.codeError("send", to, code))
	}
}

// completeReceive handles the completion of a receive.
func (m *module) completeReceive(s *slot, ev *ucp.Event) {
	is := envelopeOf(ev.Tag)
	r := mtl.Result{Source: is.Source, Tag: is.Tag, Bytes: int64(ev.Length)}
	if s.kind == slotClaimed {
		r = s.found
	}
	switch ev.Err {
	case 0:
		s.isRegistered = s.isRegistered && r.Bytes > ucp.MaxCopied
		if r.Bytes > int64(len(s.buf)) {
			r.Err = framework.ErrTruncate
		}
	case ucp.Canceled:
		if s.isCanceled {
			m.completeOp(s, mtl.Result{Canceled: true})
			return
		}
		fallthrough
	default:
		why := fmt.Errorf("the network gave it up, as it does when the peer goes in the middle of a message: %w", errors.New(m.worker.Describe(ev.Err)))
		m.completeOp(s, mtl.Result{Err: m.transportError("receive", s.peer, why)})
		return
	}
	s.bufferWritten(int(r.Bytes))
	m.completeOp(s, r)
}

// Control messages.
const (
	controlLimit    = 256 // In bytes.
	controlReceives = 8   // Posted receives. UCX queues further messages.
)

func (m *module) postControlReceives() error {
	all := make([]byte, controlReceives*controlLimit)
	for i := range controlReceives {
		s, err := m.takeSlot(slotControlReceive, nil)
		if err != nil {
			return err
		}
		m.pin(s, all[i*controlLimit:(i+1)*controlLimit])
		m.postControlReceive(s)
	}
	return nil
}

func (m *module) postControlReceive(s *slot) {
	s.isPosted = true
	m.worker.Recv(s.number, s.buf, controlTag, ^uint64(0), ucp.DropLonger)
}

// completeControlReceive handles a control message and posts its buffer again, also after an error. Messages of unknown
// processes that are too long are dropped.
func (m *module) completeControlReceive(s *slot, ev *ucp.Event) {
	if s.isPosted = false; m.isClosed {
		m.releaseSlot(s)
		return
	}
	switch ev.Err {
	case 0:
		m.consecutiveFaults = 0
	case ucp.Canceled, ucp.Truncated:
	default:
		if m.consecutiveFaults++; m.consecutiveFaults > controlReceives {
			m.failModule(m.transportError("receive", mtl.NoEndpoint, fmt.Errorf("control messages: %w", errors.New(m.worker.Describe(ev.Err)))))
			m.releaseSlot(s)
			return
		}
	}
	if ev.Err == 0 && ev.Length > 0 && ev.Length <= controlLimit {
		ucp.Wrote(s.buf, int(ev.Length))
		if data := s.buf[:ev.Length]; !m.guard.receivePing(data) {
			m.env.Upcall.Control(data)
		}
	}
	m.postControlReceive(s)
}
