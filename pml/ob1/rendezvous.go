package ob1

import (
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// A transfer is one side of a rendezvous protocol for one request, between the answer to the RTS
// and the last byte. Each protocol has its own file, such as rndv_get.go, and rndv_select.go
// chooses for the receiver. Methods never block, and are called with the lock held.
type transfer interface {
	// start begins the transfer of r. It may complete or fail r, so that r may be in use again
	// when it returns.
	start(r *request)
	// abort reports whether r, which fails with err, may end now and return its buffer.
	// Otherwise the transfer ends r when the peer has left the buffer.
	abort(r *request, err error) (ended bool)
	// describe returns the protocol and the progress of r for users.
	describe(r *request) string
}

// A stepper is a transfer that advances in steps of this process. Others advance with the
// frames of the peer.
type stepper interface {
	transfer
	// progress takes one step, which the transport bounds. It returns the number of steps that
	// have moved something, and whether to call it again. It may complete or fail r if more is
	// false.
	progress(r *request) (steps int, more bool)
}

// rendezvous is the state of a request between its RTS and its end.
type rendezvous struct {
	// transfer is nil before its start and after its end (setTransfer).
	transfer transfer
	// bytesMoved is the payload copied so far, of bytesWanted.
	bytesMoved, bytesWanted int64
	// peerHandle is the handle of the peer's request, once that is known.
	peerHandle uint64
	// remote describes the peer's buffer. A receive reads from it, and a send writes to it.
	remote btl.Remote

	pattern pattern
	// receivePlan belongs to receives, and sendOffer to sends.
	receivePlan
	sendOffer

	// The transfers with state. At most one of them is transfer.

	get          getReceive
	shared       sharedReceive
	pipelineSend pipelineSend
}

// beginRendezvous clears the state for a new RTS.
func (r *request) beginRendezvous() {
	if r.rndv == nil {
		r.rndv = new(rendezvous)
		return
	}
	*r.rndv = rendezvous{}
}

// setTransfer replaces the transfer of a request, which ends the former one. t is nil at the end
// of the rendezvous.
func (r *request) setTransfer(t transfer) {
	r.m.copies.remove(r)
	r.rndv.transfer = t
}

// startTransfer replaces the transfer of a request, and starts it.
func (r *request) startTransfer(t transfer) {
	r.setTransfer(t)
	t.start(r)
}

// acceptCTS continues a send whose receiver accepts limit bytes. peerHandle is the receiver's.
func (r *request) acceptCTS(peerHandle uint64, limit int64) {
	if r.p.hasRefused {
		r.fail(r.m.procs.NotMemberError(r.p.proc.Incarnation))
		return
	}
	x := r.rndv
	// The receiver needs no more.
	if limit <= x.bytesMoved {
		r.completeRendezvous()
		return
	}
	x.peerHandle, x.bytesWanted = peerHandle, limit
	r.startTransfer(&x.pipelineSend)
}

// completeRendezvous completes a send after its RTS was accepted. Lock held.
func (r *request) completeRendezvous() {
	p, handle := r.p.proc, r.handle()
	r.setTransfer(nil)
	r.finish()
	if in := &p.incoming; in.heldCrossing.selection != nil && in.heldCrossing.crossedSend == handle {
		p.recordCrossing(p.m.now())
	}
}

// completeReceive completes a receive and starts the next scheduled one. Lock held.
func (r *request) completeReceive() {
	p := r.p.proc
	r.endTransfer()
	r.finish()
	if p.incoming.scheduled.head != nil {
		p.startScheduled()
	}
}

// sendCTS accepts the message by the pipeline. It reports false if the process has ended, which
// fails the receive.
func (r *request) sendCTS() bool {
	proc := r.p.proc
	if proc.Err != nil {
		r.fail(r.c.MemberError(proc.Err, r.p.rank))
		return false
	}
	r.state = statePipelining
	cts := newCTS(r.rndv.peerHandle, r.handle(), r.rndv.bytesWanted)
	r.addAdvice(&cts)
	proc.sendControl(cts)
	return true
}

// completeCopy sends the CTS and completes a receive after its last byte.
func (r *request) completeCopy() {
	cts := newCTS(r.rndv.peerHandle, 0, 0)
	r.addAdvice(&cts)
	r.p.proc.sendControl(cts)
	r.completeReceive()
}

// fallBackToPipeline accepts the message by the pipeline, from copyBase on.
func (r *request) fallBackToPipeline() {
	x := r.rndv
	if x.isInFlight {
		x.isTimeInvalid = true
	} else {
		x.copyBase = 0
	}
	x.bytesMoved = x.copyBase
	r.startTransfer(pipelineReceive{})
}

// describeTransfer returns the protocol of a large message and its progress, or "".
func (r *request) describeTransfer() string {
	if r.rndv == nil || r.rndv.transfer == nil {
		return ""
	}
	return r.rndv.transfer.describe(r)
}

// describeBytes describes a transfer that moves the bytes of a message in order.
func (r *request) describeBytes(protocol selector.Protocol) string {
	return fmt.Sprintf("%v, %d of %d bytes", protocol, r.rndv.bytesMoved, r.rndv.bytesWanted)
}
