package ucx

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// eventsPerPoll is the largest number of completions that one Poll reads.
const eventsPerPoll = 64

// Poll implements progress.Source. It calls UCX once.
func (m *module) Poll() int {
	n := 0
	if !m.isClosed {
		n = m.worker.Poll(m.eventBuf[:], m.longOperations > 0)
		m.handleEvents(n)
		if m.queueGuard != nil && m.queueGuard.isWaiting {
			m.pollGuard(n > 0)
		}
	}
	if len(m.unknownSenders) > 0 {
		m.findSenders()
	}
	if !m.Results.IsEmpty() {
		n += m.Results.Deliver()
	}
	return n
}

// handleEvents handles the first n events.
func (m *module) handleEvents(n int) {
	for i := range n {
		m.handleEvent(&m.eventBuf[i])
	}
	if len(m.canceledReceives.receives) > 0 {
		m.abandonCanceled()
	}
}

// findSenders finds the senders of claimed messages that may not be complete, for LostClaim. That of a process that has left the
// communicator remains NoEndpoint.
func (m *module) findSenders() {
	for _, s := range m.unknownSenders {
		if from, ok := m.Env.Upcall.Endpoint(s.claimedCID, int(s.claimedResult.Source)); ok {
			s.Peer = from
		}
	}
	m.unknownSenders = m.unknownSenders[:0]
}

// completeOp releases a slot and notifies the owner of its operation.
func (m *module) completeOp(s *slot, r mtl.Result) {
	op := s.Op
	m.releaseSlot(s)
	base.Notify(op, r)
}

// handleEvent handles one completion.
func (m *module) handleEvent(ev *ucp.Event) {
	if ev.Slot == ucp.NoSlot {
		m.endpointFailed(mtl.Endpoint(ev.Peer), ev.Err)
		return
	}
	s := m.slotsByNumber[ev.Slot]
	switch s.Kind {
	case base.SlotReceive, base.SlotClaimed:
		m.completeReceive(s, ev)
	case base.SlotSend, base.SlotSyncSend, base.SlotFlush:
		var r mtl.Result
		if ev.Err != 0 {
			r.Err = m.codeError("send", s.Peer, ev.Err)
		} else if s.Kind != base.SlotFlush {
			m.MarkUnflushed(&m.peersByEndpoint[s.Peer].Peer, s.Peer)
		}
		m.completeOp(s, r)
	case base.SlotControlReceive:
		m.completeControlReceive(s, ev)
	default:
		m.releaseSlot(s)
	}
}

// endpointFailed disconnects a peer in peer mode after an error of its endpoint, because messages may be lost. The process may
// still be alive.
func (m *module) endpointFailed(to mtl.Endpoint, code ucp.Status) {
	if p := &m.peersByEndpoint[to]; p.SendErr == nil {
		m.disconnectPeer(to, m.codeError("send", to, code))
	}
}

// completeReceive handles the completion of a receive.
func (m *module) completeReceive(s *slot, ev *ucp.Event) {
	is := envelopeOf(ev.Tag)
	r := mtl.Result{Source: is.Source, Tag: is.Tag, Bytes: int64(ev.Length)}
	if s.Kind == base.SlotClaimed {
		r = s.claimedResult
	}
	switch ev.Err {
	case 0:
		s.isRegistered = s.isRegistered && r.Bytes > ucp.MaxCopied
		if r.Bytes > int64(len(s.Buf)) {
			r.Err = framework.ErrTruncate
		}
	case ucp.Canceled:
		if s.IsCanceled {
			m.completeOp(s, mtl.Result{Canceled: true})
			return
		}
		fallthrough
	default:
		why := fmt.Errorf("the network gave it up, as it does when the peer goes in the middle of a message: %w", errors.New(m.worker.Describe(ev.Err)))
		m.completeOp(s, mtl.Result{Err: m.transportError("receive", s.Peer, why)})
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
		s, err := m.takeSlot(base.SlotControlReceive, nil)
		if err != nil {
			return err
		}
		m.pin(s, all[i*controlLimit:(i+1)*controlLimit])
		m.postControlReceive(s)
	}
	return nil
}

func (m *module) postControlReceive(s *slot) {
	s.IsPosted = true
	m.worker.Recv(s.Number, s.Buf, controlTag, ^uint64(0), ucp.DropLonger)
}

// completeControlReceive handles a control message and posts its buffer again, also after an error. Messages of unknown
// processes that are too long are dropped.
func (m *module) completeControlReceive(s *slot, ev *ucp.Event) {
	if s.IsPosted = false; m.isClosed {
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
		ucp.Wrote(s.Buf, int(ev.Length))
		if data := s.Buf[:ev.Length]; !m.queueGuard.receivePing(data) {
			m.Env.Upcall.Control(data)
		}
	}
	m.postControlReceive(s)
}
