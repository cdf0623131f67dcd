package ob1

import (
	"fmt"

	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// Protocol put. The receiver answers the RTS by a share of its buffer, and the sender writes all
// chunks. If it cannot write, the receiver reads the rest.

// putReceive is the receiver's side.
type putReceive struct{ *sharedReceive }

// start implements transfer.
func (p putReceive) start(r *request) { p.begin(r) }

// progress implements stepper. It takes no chunk from a sender that writes.
func (p putReceive) progress(r *request) (steps int, more bool) {
	if r.state == stateTransferring && p.chunkLeft == 0 {
		if left, writing, stopped := p.share.State(); (left || writing) && !stopped {
			// The sender notifies this process at the end.
			return 0, true
		}
	}
	return splitReceive(p).progress(r)
}

// describe implements transfer.
func (p putReceive) describe(r *request) string { return p.describeShare(r, selector.Put) }

// putSend is the sender's side of put and split. It writes into rendezvous.remote. A failed
// write shows in the share, so that the receiver continues with its own copies or the pipeline.
type putSend struct{}

// start implements transfer.
func (putSend) start(r *request) {
	r.state = statePutting
	r.m.addCopy(r)
}

// progress implements stepper. It writes a chunk. After the last one the send waits for the CTS.
func (putSend) progress(r *request) (steps int, more bool) {
	x, proc := r.rndv, r.p.proc
	if proc.outTransport != nil {
		more, _ = proc.outTransport.copier.Write(proc.Incarnation, x.remote, r.buf.Bytes[x.bytesMoved:x.bytesWanted])
	}
	if !more {
		r.state = statePutDone
	}
	return 1, more
}

// abort implements transfer.
func (putSend) abort(*request, error) (ended bool) { return true }

// describe implements transfer.
func (putSend) describe(r *request) string {
	return fmt.Sprintf("put, bytes %d to %d", r.rndv.bytesMoved, r.rndv.bytesWanted)
}

// isOffered reports whether a send waits for the answer to its RTS.
func (r *request) isOffered() bool { return r.state == stateOffered || r.state == stateWithdrawing }

// handleShare handles the answer that lets this process write into the receiver's buffer. Lock held.
func (p *proc) handleShare(s share) error {
	r := p.m.lookup(s.send)
	if r == nil || !r.isOffered() || r.p.proc != p {
		return fmt.Errorf("share for unknown rendezvous %#x", s.send)
	}
	x := r.rndv
	if !x.canPut || p.outTransport == nil || p.outTransport.copier == nil {
		return fmt.Errorf("share for rendezvous %#x without the put flag", s.send)
	}
	if s.offset != x.bytesMoved || s.limit <= s.offset || s.limit > r.buf.Len() {
		return fmt.Errorf("share for bytes %d to %d of a message of %d, of which %d were sent", s.offset, s.limit, r.buf.Len(), x.bytesMoved)
	}
	if r.p.hasRefused {
		r.fail(r.m.procs.NotMemberError(p.Incarnation))
		return nil
	}
	x.bytesWanted, x.remote = s.limit, s.remote
	r.startTransfer(putSend{})
	return nil
}
