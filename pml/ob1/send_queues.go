package ob1

import (
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/pml"
)

// sendQueues are the frames to a process that wait for room on its path.
type sendQueues struct {
	pendingControls []controlFrame
	// sendQueue are sends before their first frame.
	sendQueue requestList
	// pipelineQueue are accepted sends with fragments to send.
	pipelineQueue requestList
	// isBusy is set while the process is in Module.busyProcs.
	isBusy bool
}

// isIdle reports whether no frame is queued.
func (q *sendQueues) isIdle() bool {
	return len(q.pendingControls) == 0 && q.sendQueue.head == nil && q.pipelineQueue.head == nil
}

// drop drops all queued frames. The requests end separately.
func (q *sendQueues) drop() {
	q.pendingControls, q.sendQueue, q.pipelineQueue = nil, requestList{}, requestList{}
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
	b := p.endpoint.Reserve(c.size, btl.RingStart)
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
