package cm

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// How the index of a closed communicator becomes free.
//
// A network keeps a message until a receive with its id takes it. So all messages that were
// sent under an id must leave the network before another communicator gets the id. cid.CommClose
// decides when that is the case, by the message counts in control messages, which may
// overtake messages. The reaper claims and drops unreceived messages. Unknown
// senders, which have never exchanged anything with this process, may still send. The reaper
// covers a communicator with unknown senders until maxQuiet others have become quiet after
// it. From then on, only the generation in the id keeps a late message from a newer
// communicator, and a layout may have few bits for it.
//
// The messages of a failed member are not waited for. Those that have come must not meet a
// newer communicator either, so the reaper probes once more after the failure.

// Close implements pml.Comm.
func (c *comm) Close() {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if !c.Closing.Close() {
		return
	}
	for plane := range pml.Plane(pml.Planes) {
		c.discardUnexpected(plane)
	}
	m.wakeProbes()
	c.startReaping()
	c.advanceClose()
}

// startReaping makes the reaper drop the messages to a closed communicator, or on its
// aborted planes. Lock held.
func (c *comm) startReaping() {
	m := c.m
	if !slices.Contains(m.reapedComms, c) {
		m.reapedComms = append(m.reapedComms, c)
	}
	m.reaper.roundInterval, m.reaper.notBefore = 0, time.Time{}
}

// discardUnexpected drops the unexpected messages of a plane that is closed or aborted, so that
// their senders do not wait for a receive. During a pull it does nothing, because deferred receives
// come first; postDeferred calls it again. Lock held.
func (c *comm) discardUnexpected(plane pml.Plane) {
	if c.pullsByPlane[plane].remainingMessages > 0 {
		return
	}
	c.matchQueues[plane].Unexpected(func(msg *match.Message[message]) { c.takeUnexpected(msg, plane).reject() })
}

// advanceClose notifies the members once the communicator is closed and no operation is
// pending. Lock held.
func (c *comm) advanceClose() {
	m := c.m
	switch stage := c.Closing.Stage(); {
	case stage == cid.StageOpen || c.Pending > 0 || m.isClosed:
		return
	case stage != cid.StageEnding: // A matched probe had started before, and its message is received now.
		for _, p := range c.peersByRank.All() {
			if p.messageTally.HasMessages() {
				p.reportLateMessage()
			}
		}
		return
	}
	m.comms.Table.Quarantine(c.Spec.Local)
	for rank, p := range c.peersByRank.All() {
		switch {
		case c.Spec.IsElsewhere(rank):
		case rank == c.Spec.Rank:
			p.messageTally.SetFinal(p.messageTally.Sent)
			c.Closing.NotifySelf(&p.closeState, p.messageTally.IsComplete())
		case p.proc.HasEnded():
			c.Closing.MemberEnded(&p.closeState)
		default:
			p.applyClosing(c.Closing.NotifyPeer(&p.closeState, p.hasSentID || p.messageTally.HasMessages(), p.messageTally.IsComplete()))
		}
	}
	c.applyCommClosing(c.Closing.FinishNotify())
}

// handleClosed handles the notification of a member that it has closed the communicator, or
// its acknowledgment of the close here. In both cases it neither sends nor receives any
// more. Lock held.
func (p *peer) handleClosed(f *control) {
	p.messageTally.SetFinal(f.sent)
	if f.typ == controlRefused {
		p.handleRefusal()
	}
	p.applyExchange(p.idExchange.RecvClosed())
	p.applyClosing(p.c.Closing.RecvClosed(&p.closeState, f.typ != controlClosed, p.messageTally.IsComplete()))
}

// handleRefusal handles the notification of a member that its part in the creation of the
// communicator has failed. Lock held.
func (p *peer) handleRefusal() {
	c := p.c
	if c.IsClosed() || p.hasRefused {
		return
	}
	p.hasRefused, c.hasRefusal, p.canSend = true, true, false
	err := c.m.procs.NotMemberError(p.proc.Incarnation)
	for e := p.heldSends.First(); e != nil; e = p.heldSends.First() {
		e.Owner.abort(err)
	}
	for _, r := range c.m.allRequests {
		if r.c == c && r.state == posted && (r.p == p || r.p == nil) {
			r.abort(err)
		}
		if r.c == c && r.state == awaitingCTS && r.p == p {
			r.abort(err)
		}
		if r.c == c && r.state == submitted && r.p == p {
			r.fail(err) // The network keeps the buffer of a message that is never received.
		}
	}
	c.restartSweeps()
	c.m.wakeProbes()
}

// refusedBy returns the error of a receive from src if that member has refused, or, for
// any source, if one has.
func (c *comm) refusedBy(src int) error {
	if !c.hasRefusal {
		return nil
	}
	for _, p := range c.peersByRank.All() {
		if p.hasRefused && (src == p.rank || src == pml.AnySource) {
			return c.m.procs.NotMemberError(p.proc.Incarnation)
		}
	}
	return nil
}

// Inquire implements pml.Module.
func (m *Module) Inquire(by framework.ProcID) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.mustCheckFailures = true // Later receives and probes inquire too.
	m.drainNetwork()
	m.inquiries.RecordProcess(by)
	m.inquire()
}

// inquire asks members that pending operations wait for, and from which nothing has come on
// the communicator, whether they are in it. A failure during the creation of a communicator
// may have excluded some of them. Lock held.
func (m *Module) inquire() {
	m.inquiries.RecordEvent()
	for _, r := range m.allRequests {
		switch {
		case r.c == nil:
		case r.state == posted:
			r.c.inquire(r.source())
		case r.state == submitted || r.state == awaitingCTS: // It may never be received.
			r.p.inquire()
		}
	}
	m.wakeProbes()
}

// inquire asks the member src, or for any source those of base.RanksToAsk. Lock held.
func (c *comm) inquire(src int) {
	if src != pml.AnySource {
		c.peer(src).inquire()
		return
	}
	if !c.inquiryMark.IsDue(&c.m.inquiries) {
		return
	}
	for rank := range base.RanksToAsk(&c.Comm, &c.peersByRank, &c.m.inquiries) {
		if !c.Spec.IsElsewhere(rank) {
			c.peer(rank).inquire()
		}
	}
}

func (p *peer) inquire() {
	if p.isInquired || p.messageTally.Consumed != (cid.Counts{}) || p.rank == p.c.Spec.Rank || p.proc.Err != nil {
		return
	}
	p.isInquired = true
	p.notify(controlRequest)
}

// Refuse implements pml.Module.
func (m *Module) Refuse(s cid.Span, endpoint int) {
	m.engine.Lock()
	defer m.engine.Unlock()
	covers := m.comms.Refuse(s, endpoint)
	for _, p := range m.procs.Incarnations {
		for key, f := range p.earlyArrivals.controlsByKey {
			if covers(key.receiverHandle) {
				delete(p.earlyArrivals.controlsByKey, key)
				m.handleControl(&f)
			}
		}
	}
}

// applyClosing performs the actions that cid.CommClose returns for a member. Lock held.
func (p *peer) applyClosing(act cid.Action) {
	if act&cid.SendClosed != 0 {
		p.notify(controlClosed)
	}
	if act&cid.SendClosedAck != 0 {
		p.notify(controlClosedAck)
	}
	p.c.applyCommClosing(act)
}

// maxQuiet bounds the communicators whose index only unknown senders keep from being free.
const maxQuiet = 256

// applyCommClosing performs the actions that concern the whole communicator. Lock held.
func (c *comm) applyCommClosing(act cid.Action) {
	if act&cid.FreeIndex != 0 {
		c.releaseIndex()
	}
	if act&cid.MarkQuiet == 0 {
		return
	}
	m := c.m
	m.quietComms = append(m.quietComms, c)
	if len(m.quietComms) > min(maxQuiet, 1<<m.idLayout.indexBits/4) {
		first := m.quietComms[0]
		m.quietComms = slices.Delete(m.quietComms, 0, 1)
		first.Closing.EndQuarantine()
		first.releaseIndex()
	}
}

// reportLateMessage handles a message of the member that came after the members were notified. Lock held.
func (p *peer) reportLateMessage() {
	p.applyClosing(p.c.Closing.RecvLate(&p.closeState, p.messageTally.IsComplete()))
}

// isDrained reports whether no message can come any more, and none is in the network. For
// failed members that is the case after one reaper probe that follows the failure.
func (c *comm) isDrained() bool {
	return c.Closing.Stage() == cid.StageFinished && slices.Min(c.reapedFailures[:]) >= c.lastFailureOrder()
}

// lastFailureOrder returns proc.failureOrder of the member that failed last, or 0.
func (c *comm) lastFailureOrder() (last uint32) {
	if c.m.failureCount > 0 {
		for p := range c.Failed() {
			if last < p.failureOrder && !c.Spec.IsElsewhere(c.Ranks(p)[0]) {
				last = p.failureOrder
			}
		}
	}
	return last
}

// releaseIndex removes a communicator to which no message can come, and frees its index. It
// waits for the last probe, which could find a message of the next communicator with this
// index. Lock held.
func (c *comm) releaseIndex() {
	if c.pendingProbes > 0 || !c.isDrained() {
		return
	}
	m := c.m
	for _, p := range c.peersByRank.All() {
		p.proc.sentOnClosed += p.sentAll()
	}
	if n := m.handleCounts[c.Spec.ID]; n > 1 {
		m.handleCounts[c.Spec.ID] = n - 1
	} else if n > 0 {
		delete(m.handleCounts, c.Spec.ID)
	}
	m.comms.Remove(&c.State)
	m.procs.Drop(&c.Comm)
	m.comms.Table.EndQuarantine(c.Spec.Local)
}

// countDropped counts a message that is dropped. Lock held.
func (c *comm) countDropped(msg *message) {
	p := msg.from
	if p == nil {
		return
	}
	p.proc.Stats.Dropped++
	p.messageTally.Consumed[msg.plane]++
	if c.Closing.Stage() >= cid.StageNotified {
		p.reportLateMessage()
	}
}

// reaperState is the state of the reaper, which probes for messages on Module.reapedComms,
// in rounds. The time between rounds grows while they find nothing.
type reaperState struct {
	// nextCommIndex and nextPlane are the position of the next probe. nextCommIndex is an index
	// in Module.reapedComms.
	nextCommIndex int
	nextPlane     pml.Plane
	// activeProbes counts the probes in progress.
	activeProbes int
	// hasFound is set if this round has found a message.
	hasFound bool
	// notBefore is the start of the next round.
	roundInterval time.Duration
	notBefore     time.Time

	// mustSettle is set after an event that held messages may wait for.
	mustSettle bool
}

const (
	firstReapGap = 200 * time.Microsecond
	lastReapGap  = 250 * time.Millisecond
	// maxReapProbes bounds the concurrent probes.
	maxReapProbes = 16
)

// reap starts probes of the current round, or the next round. Lock held.
func (m *Module) reap() {
	rp := &m.reaper
	if rp.mustSettle {
		m.settleAll()
	}
	if rp.nextCommIndex >= len(m.reapedComms) {
		if rp.activeProbes > 0 {
			return
		}
		m.settleAll()
		m.reapedComms = slices.DeleteFunc(m.reapedComms, (*comm).isDrained)
		rp.nextCommIndex, rp.nextPlane = 0, 0
		if rp.roundInterval = min(max(2*rp.roundInterval, firstReapGap), lastReapGap); rp.hasFound {
			rp.roundInterval = 0
		}
		rp.hasFound = false
		rp.notBefore = time.Now().Add(rp.roundInterval)
	}
	if !rp.notBefore.IsZero() {
		if time.Now().Before(rp.notBefore) {
			return
		}
		rp.notBefore = time.Time{}
	}
	for rp.activeProbes < maxReapProbes && rp.nextCommIndex < len(m.reapedComms) {
		c, plane := m.reapedComms[rp.nextCommIndex], rp.nextPlane
		isDrained := c.isDrained()
		if rp.nextPlane++; isDrained || int(rp.nextPlane) == pml.Planes {
			rp.nextCommIndex, rp.nextPlane = rp.nextCommIndex+1, 0
		}
		if isDrained || c.pullsByPlane[plane].remainingMessages > 0 || c.sweepersByPlane[plane] != nil || c.StartError(plane) == nil { // Deferred receives come first.
			continue
		}
		msg := m.newMessage(c, plane)
		msg.purpose, msg.failureCount = forReaper, m.failureCount
		if m.mtl.Probe(&msg.op, 0, c.from(nil, mtl.AnyTag, uint32(plane)), true) != nil {
			m.freeMessage(msg)
			continue
		}
		rp.activeProbes++
	}
}

// reapProbeDone handles the completion of a reaper's probe.
func (m *Module) reapProbeDone(msg *message) {
	m.reaper.activeProbes--
	if msg.op.Err != nil || !msg.op.Found {
		if msg.op.Err == nil {
			msg.c.reapedFailures[msg.plane] = msg.failureCount
		}
		m.freeMessage(msg)
		return
	}
	m.reaper.hasFound = true
	msg.from, _ = msg.c.countClaimed(&msg.op.Result) // A message with an invalid rank is dropped too.
	msg.reject()
}
