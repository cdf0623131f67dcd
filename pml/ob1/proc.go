package ob1

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// proc is one incarnation of a process, or of this process itself, with its card, paths,
// credit and queued frames. Communicators keep the incarnations that they were created with.
type proc struct {
	// The fields that every message reads come first, since small offsets shorten instructions.

	// canSendEager is set if a path is open and no message is queued.
	canSendEager bool
	shortSender  btl.ShortSender
	// eagerLimit is the size of the largest eager frame in bytes.
	eagerLimit int
	// getFrom is the smallest size of messages in memory from AllocMem that are not sent eagerly.
	getFrom int
	// credit is the number of bytes that this process may still send as unexpected messages, of
	// creditGranted from the card. creditOwed is consumed credit of the peer that was not returned yet.
	credit, creditOwed, creditGranted int64
	recvPath                          recvPath
	// lastPeer is the sender of the last message, if its communicator still exists.
	lastPeer *peer
	m        *Module

	base.Proc
	card     framework.Card
	endpoint btl.Endpoint
	// gatherer and fullRing are optional abilities of endpoint, or nil.
	gatherer btl.Gatherer
	fullRing btl.WideReserver
	// outTransport is the transport of endpoint, also after that is closed.
	outTransport *transport
	// frameLimit is the size of the largest frame in bytes.
	frameLimit int
	// inTransport is the transport of the path from the process, or nil.
	inTransport *transport
	refusals    []refusal
	// lastDescription describes the path as it was closed, if pml.Env.LateRoutes is set.
	lastDescription *btl.Description

	pendingControls []controlFrame
	// sendQueue are sends before their first frame.
	sendQueue requestList
	// pipelineQueue are accepted sends with fragments to send.
	pipelineQueue requestList
	// lastRTS is the handle of the last RTS, and isLastRTSWindowed is set if other large messages
	// were in flight with it. windowStart is the start of its window, or 0 for a single message.
	lastRTS           uint64
	windowStart       time.Duration
	isLastRTSWindowed bool
	// isBusy is set while the process is in Module.busyProcs.
	isBusy bool
	// suspectedFor is the error that made the process suspect, or nil, and suspicionSteps the
	// remaining time in steps of base.DoubtStep.
	suspectedFor error
	// hasNoRoute is set if messages needed a path, and none could be opened.
	hasNoRoute     bool
	suspicionSteps int

	// unmatchedRTS are unexpected RTSs of the process by handle.
	unmatchedRTS map[uint64]*unexpectedMessage

	// packTimes is nil until the first fragment that may be timed. singlesPacked counts first
	// fragments of single messages.
	packTimes     *[packModes][classes]packTime
	singlesPacked uint64
	incoming      largeReceives
	// canPut is set if the last RTS of the process announced that it can write into this process's memory.
	canPut bool
	// packAdvice is the peer's advice for messages to it.
	packAdvice [btl.Memories][sentPatterns][classes]advice
}

// learn adds the card of an incarnation, which becomes the current one of its process. The
// former one fails. Lock held.
func (m *Module) learn(incarnation framework.Incarnation, card framework.Card) error {
	granted, err := parseAddress(card.Find(framework.PML, name))
	if err != nil {
		return err
	}
	p := m.procs.Get(incarnation)
	if !p.HasCard {
		p.creditGranted, p.credit = granted, granted
	}
	// A newer card may announce a transport that has restarted, so refusals no longer apply.
	p.card, p.refusals = card, nil
	if old := m.procs.SetPresent(p); old != nil {
		m.procs.Forget(old)
		old.drainPath()
		old.Fail(m.procs.ReplacedError(old.Incarnation))
	}
	// Answers have waited for the card.
	if len(p.pendingControls) > 0 {
		p.reopenPath()
		m.engine.Nudge()
	}
	return nil
}

// Over implements pml.Reconnector.
func (m *Module) Over() []framework.Incarnation {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.procs.EndedIncarnations()
}

// Reconnect implements pml.Reconnector. Existing communicators keep the failed process.
func (m *Module) Reconnect(incarnation framework.Incarnation) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.drainTransports()
	p := m.procs.Find(incarnation)
	if !m.procs.Reconnect(incarnation, p) {
		return
	}
	for _, t := range m.transports {
		if t.reconnector != nil {
			t.reconnector.Reconnect(incarnation)
		}
	}
	if p != nil {
		m.procs.Get(incarnation).Stats = p.Stats
	}
}

// DropPeer implements pml.PeerDropper.
func (m *Module) DropPeer(incarnation framework.Incarnation) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	p, ok := m.procs.Remove(incarnation)
	if !ok {
		return false
	}
	if p != nil {
		m.early.drop(p)
		p.lastPeer = nil
	}
	m.forgetPeer(incarnation)
	return true
}

// drainPath polls the frames that the process has already sent.
func (p *proc) drainPath() {
	// The source may find frames of other processes as well.
	s := p.receivePath().source
	for i := 0; i < maxDrainPolls && s != nil && s.Poll() > 0; i++ {
	}
}

// messageCost is the memory of an unexpected message besides its payload, in bytes. It covers
// the queue node and the rounding of the buffer.
const messageCost = 128

// oweCredit records that a message was consumed, and returns accumulated credit to the
// sender in few frames. Lock held.
func (p *proc) oweCredit(bytes int64) {
	if p.creditOwed += bytes + messageCost; p.creditOwed >= p.m.unexpectedLimit/4 {
		p.returnCredit()
	}
}

// releaseCredit owes the credit of a consumed message with that payload. An RTS without a
// fragment has cost none. Lock held.
func (p *proc) releaseCredit(rts bool, payload []byte) {
	if !rts || len(payload) > 0 {
		p.oweCredit(int64(len(payload)))
	}
}

func (p *proc) returnCredit() {
	p.sendControl(newCredit(p.creditOwed))
	p.creditOwed = 0
}

// sendControl sends a control frame, or queues it while the path is blocked or the card of the
// process has not arrived. It drops the frame if the process has ended or has no path.
//
// It never completes or fails an operation, so that callers need not check their requests
// again. Transports make no upcalls from Connect, Reserve and Commit. A process without a path
// becomes suspect, and its operations end in a later Poll. The card of a process may show that
// it has ended, so only Poll takes it. Lock held.
func (p *proc) sendControl(c controlFrame) {
	if !p.HasCard && p.Err == nil {
		// The process has created a communicator that is not complete here, so its frames have
		// arrived before its card.
		p.queueControl(c)
		p.m.engine.Nudge()
		return
	}
	open := p.openPath
	if c.needsReceiver() {
		open = p.requirePath
	}
	if open() != nil || p.endpoint == nil {
		return
	}
	p.m.env.Event(pml.Event{Kind: pml.EventControl, Peer: p.Incarnation, Note: frameNames[c.bytes[0]]})
	if len(p.pendingControls) > 0 || !p.trySendControl(&c) {
		p.queueControl(c)
	}
}

// queueControl queues a control frame for the next Poll.
func (p *proc) queueControl(c controlFrame) {
	p.pendingControls = append(p.pendingControls, c)
	p.markBusy()
}

// needsReceiver reports whether the frame answers an RTS, so that its receiver still waits.
// Other frames may be for a process that has left.
func (c *controlFrame) needsReceiver() bool {
	return c.bytes[0] == frameCTS || c.bytes[0] == frameShare
}

// trySendControl sends a control frame if the path has room.
func (p *proc) trySendControl(c *controlFrame) bool {
	b := p.endpoint.Reserve(c.size)
	if b == nil {
		return false
	}
	copy(b, c.bytes[:c.size])
	p.endpoint.Commit(c.size)
	return true
}

// markBusy schedules the process for the next Poll.
func (p *proc) markBusy() {
	if !p.isBusy {
		p.isBusy = true
		p.m.busyProcs = append(p.m.busyProcs, p)
	}
}

// updateCanSendEager recomputes canSendEager.
func (p *proc) updateCanSendEager() {
	p.canSendEager = p.Err == nil && p.endpoint != nil && p.sendQueue.head == nil
}

// sendPending sends queued frames until the path blocks. Control frames come first, then new
// messages in order, then pipeline fragments. It returns the number of frames. Lock held.
func (p *proc) sendPending() (n int) {
	if p.Err != nil || p.endpoint == nil {
		return 0
	}
	for n < len(p.pendingControls) && p.trySendControl(&p.pendingControls[n]) {
		n++
	}
	if p.pendingControls = slices.Delete(p.pendingControls, 0, n); len(p.pendingControls) > 0 {
		return n
	}
	for p.sendQueue.head != nil && p.sendQueue.head.sendFirst() {
		n++
	}
	if p.sendQueue.head == nil {
		p.updateCanSendEager()
	}
	for isBlocked := false; p.pipelineQueue.head != nil && !isBlocked; {
		r := p.pipelineQueue.head
		var fragments int
		fragments, isBlocked = r.rndv.pipelineSend.progress(r)
		n += fragments
	}
	return n
}

// isIdle reports whether no frame is queued.
func (p *proc) isIdle() bool {
	return len(p.pendingControls) == 0 && p.sendQueue.head == nil && p.pipelineQueue.head == nil
}

// Fail implements base.Process. All operations with the process end with err. Lock held.
func (p *proc) Fail(err error) {
	if !p.MarkEnded(err) {
		return
	}
	p.m.failures++
	p.suspectedFor = nil
	p.closePath(err)
	p.pendingControls = nil
	p.sendQueue, p.pipelineQueue = requestList{}, requestList{}
	p.incoming.scheduled, p.incoming.inFlight, p.incoming.bytesInFlight = requestList{}, 0, 0
	for _, r := range p.m.requests {
		if r.state == stateIdle || r.state == stateComplete || r.p == nil && r.state != statePosted {
			continue
		}
		if err := r.c.EndError(r.source(), r.plane, p); err != nil {
			if r.state == statePosted {
				r.c.queues[r.plane].Cancel(&r.node)
			}
			r.fail(err)
		}
	}
	for _, c := range p.m.comms.ByID {
		c.recheckWaiters()
	}
	for _, c := range p.m.quarantined {
		for _, rank := range c.Ranks(p) {
			if q := c.peers.Get(rank); q != nil {
				c.releaseIndex(c.Closing.MemberEnded(&q.closing))
			}
		}
	}
}
