package ofi

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// Poll implements progress.Source. It reads the completion queue once.
func (m *module) Poll() int {
	n := 0
	if !m.pollOffload() && m.Err == nil {
		n = m.pollEndpoint()
	}
	if !m.Results.IsEmpty() {
		n += m.Results.Deliver()
	}
	return n
}

// pausesAfterEmptyPoll is the number of pauses after an empty poll while several receives are posted to a
// provider on sockets. Each poll locks a socket, which delays a peer that is about to write to it. With one
// receive the pauses would delay its message (docs/decisions/hot-path.md).
const pausesAfterEmptyPoll = 10

func (m *module) pollEndpoint() int {
	if len(m.registrations.expiredRegions) > 0 {
		m.releaseExpired()
	}
	n, code := m.ep.Poll(m.eventBuf[:])
	if n == 0 && m.isSoftware && m.postedCounts.receives > 1 {
		for range pausesAfterEmptyPoll {
			cpu.Pause()
		}
	}
	for i := range n {
		if m.handleEvent(&m.eventBuf[i]); m.Err != nil {
			return n
		}
	}
	if code != 0 {
		m.failModule(errors.New("completion queue: " + m.errnoText(code)))
		return n
	}
	if len(m.peerTable.blockedPeers) > 0 {
		m.retryBlocked()
	}
	if m.receiveOverflow.hasReceives() {
		m.advanceOverflow()
	}
	if len(m.offloader.queuedCalls) > 0 {
		m.startOffloads()
	}
	return n
}

// completeOp releases a slot and notifies the owner of its operation.
func (m *module) completeOp(s *slot, r mtl.Result) {
	op := s.Op
	m.releaseSlot(s)
	base.Notify(op, r)
}

// handleEvent handles one completion.
func (m *module) handleEvent(ev *libfabric.Event) {
	if int(ev.Slot) >= len(m.slotsByNumber) { // libfabric.NoSlot
		m.handleStrayError(ev)
		return
	}
	s := m.slotsByNumber[ev.Slot]
	m.uncountPosted(s)
	m.consecutiveStrays = 0
	switch s.Kind {
	case base.SlotReceive, base.SlotClaimed:
		m.completeReceive(s, ev)
	case slotPeek:
		m.completePeek(s, ev)
	case base.SlotSend, base.SlotControl, base.SlotSyncAck, base.SlotFlush:
		m.completeOp(s, mtl.Result{Err: m.eventError("send", s.Peer, ev)})
	case base.SlotSyncSend:
		m.completeSyncSend(s, ev)
	case base.SlotControlReceive:
		m.completeControlReceive(s, ev)
	case slotProbe, slotClaimingProbe:
		m.completeProbe(s, ev)
	case base.SlotAbandoned:
		m.releaseSlot(s)
	default:
		m.failModule(fmt.Errorf("completion for slot %d, which is not in use", ev.Slot))
	}
}

// handleStrayError handles an error that belongs to no operation. Provider sockets reports such errors for the
// connections of failed peers. The module fails only after many of them in a row.
func (m *module) handleStrayError(ev *libfabric.Event) {
	text := m.eventText(ev)
	if m.consecutiveStrays++; m.consecutiveStrays == 1 {
		m.Env.Logger.Warn("mtl ofi: error that belongs to no operation", "provider", m.Description.Provider, "err", text)
	}
	if m.consecutiveStrays > maxConsecutiveFaults {
		m.failModule(fmt.Errorf("completion queue: %d errors that belong to no operation in a row, the last one: %s", m.consecutiveStrays, text))
	}
}

func (m *module) eventText(ev *libfabric.Event) string {
	return fmt.Sprintf("%s (%d)", m.ep.Describe(ev), ev.Err)
}

// eventError returns the error of a completion, or nil.
func (m *module) eventError(op string, to mtl.Endpoint, ev *libfabric.Event) error {
	if ev.Err == 0 {
		return nil
	}
	why := m.eventText(ev)
	if ev.Err == libfabric.Canceled { // without a call of Cancel
		why = "the network gave up on it, as it does when the peer leaves in the middle of a message: " + why
	}
	return m.transportError(op, to, errors.New(why))
}

// completeReceive handles the completion of a receive.
func (m *module) completeReceive(s *slot, ev *libfabric.Event) {
	r, mode := m.messageResult(ev)
	if s.Kind == base.SlotClaimed {
		r.Bytes = s.claimedBytes
	}
	switch {
	case ev.Err == 0:
		if r.Bytes > int64(len(s.Buf)) { // The padding took the rest.
			r.Err = framework.ErrTruncate
		}
	case ev.Err == libfabric.Truncated:
		r.Err = framework.ErrTruncate
		capacity := int64(len(s.Buf))
		if s.flags&libfabric.DiscardExcess != 0 {
			capacity += libfabric.MaxDiscarded
		}
		r.Bytes = max(r.Bytes, capacity+int64(ev.Overflow))
	case ev.Err == libfabric.Canceled && s.IsCanceled:
		m.completeOp(s, mtl.Result{Canceled: true})
		return
	default:
		m.completeOp(s, mtl.Result{Err: m.eventError("receive", s.Peer, ev)})
		return
	}
	s.CopyBounced(r.Bytes)
	if mode == mtl.Synchronous {
		m.sendSyncAck(s, ev.Tag, r.Source)
	}
	m.completeOp(s, r)
}

// messageResult returns the envelope and length of the message of a completion.
func (m *module) messageResult(ev *libfabric.Event) (mtl.Result, mtl.Mode) {
	e, mode := m.tagLayout.message(ev.Tag, ev.Data)
	return mtl.Result{Source: e.Source, Tag: e.Tag, Bytes: int64(ev.Length)}, mode
}

// completeProbe handles the completion of a probe. The slot of a claiming probe stays with its message.
func (m *module) completeProbe(s *slot, ev *libfabric.Event) {
	switch {
	case ev.Err == 0 && s.flags&libfabric.Claim != 0:
		op, r := s.Op, m.recordClaim(s, ev)
		s.Op, r.Found = nil, true
		base.Notify(op, r)
	case ev.Err == 0:
		r, _ := m.messageResult(ev)
		r.Found = true
		m.completeOp(s, r)
	case ev.Err == libfabric.NoMessage:
		m.completeOp(s, mtl.Result{})
	default:
		m.completeOp(s, mtl.Result{Err: m.eventError("probe", s.Peer, ev)})
	}
}
