package ob1

import (
	"fmt"

	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// Protocol pipeline. The payload of an accepted message is sent in fragments. Where
// possible, a fragment is gathered from the sender's buffer (btl.Gatherer) and placed in the
// receiver's buffer (btl.Inbound) without copies in between.

// pipelineReceive is the receiver's side. It advances with the frames of the sender.
type pipelineReceive struct{}

// start implements transfer. The CTS leaves before the fragment of the RTS is stored, so that
// the answer travels meanwhile.
func (pipelineReceive) start(r *request) {
	if !r.sendCTS() {
		return
	}
	r.noteStart()
	r.storeFragment()
	if r.rndv.bytesMoved == r.rndv.bytesWanted {
		r.completeReceive()
	}
}

// abort implements transfer.
func (pipelineReceive) abort(*request, error) (ended bool) { return true }

// describe implements transfer.
func (pipelineReceive) describe(r *request) string { return r.describeBytes(r.rndv.protocol) }

// pipelineSend is the sender's side.
type pipelineSend struct {
	// framesLent counts gathered frames that still read the buffer.
	framesLent int
}

// start implements transfer. The fragments leave as far as the path has room.
func (s *pipelineSend) start(r *request) {
	r.state = statePipelining
	proc := r.p.proc
	proc.pipelineQueue.push(r)
	proc.sendPending()
	if !proc.isIdle() {
		proc.markBusy()
	}
}

// progress sends fragments of the first send in its process's pipelineQueue until the path
// blocks or all are sent. It returns the number of fragments, and reports true if the path is
// blocked.
func (s *pipelineSend) progress(r *request) (steps int, more bool) {
	x, proc := r.rndv, r.p.proc
	for x.bytesMoved < x.bytesWanted {
		k := min(x.bytesWanted-x.bytesMoved, int64(proc.frameLimit-dataSize))
		if !r.isGathered() {
			k = min(k, r.m.pipelineFragment(x.bytesWanted))
		}
		if !s.push(r, k) {
			return steps, true
		}
		x.bytesMoved += k
		steps++
	}
	proc.pipelineQueue.pop()
	if s.framesLent == 0 {
		r.completeRendezvous()
	}
	return steps, false
}

// abort implements transfer. The queue has ended with the process or the module.
func (s *pipelineSend) abort(*request, error) (ended bool) { return true }

// describe implements transfer.
func (s *pipelineSend) describe(r *request) string { return r.describeBytes(selector.Pipeline) }

// isGathered reports whether the path reads the payload from the user's buffer. Then the path
// decides the size of a fragment.
func (r *request) isGathered() bool { return r.p.proc.gatherer != nil && r.buf.Layout() == nil }

// push sends the next k bytes, and reports false if the path is blocked.
func (s *pipelineSend) push(r *request, k int64) bool {
	x, proc := r.rndv, r.p.proc
	if r.isGathered() {
		header := r.m.gatherHeader[:]
		putData(header, x.peerHandle, x.bytesMoved)
		s.framesLent++
		if !proc.gatherer.Gather(header, r.buf.Bytes[x.bytesMoved:x.bytesMoved+k], r) {
			s.framesLent--
			return false
		}
		return true
	}
	b := proc.reserve(dataSize+int(k), x.packMode)
	if b == nil {
		return false
	}
	putData(b, x.peerHandle, x.bytesMoved)
	r.pack(b[dataSize:], x.bytesMoved, x.packMode)
	proc.endpoint.Commit(dataSize + int(k))
	return true
}

// LocallyComplete implements btl.LocalCompletion. A gathered fragment no longer reads the
// buffer, and the last one completes the send. Lock held.
func (r *request) LocallyComplete() {
	x := r.rndv
	s := &x.pipelineSend
	// Otherwise the send has already failed.
	if s.framesLent == 0 {
		return
	}
	if s.framesLent--; s.framesLent == 0 && r.state == statePipelining && x.bytesMoved == x.bytesWanted {
		r.completeRendezvous()
	}
}

// receiveOfData returns the receive of a fragment of size bytes, and the fragment's offset in
// the message.
func (p *proc) receiveOfData(header []byte, size int) (r *request, offset int64, err error) {
	if len(header) < dataSize {
		return nil, 0, shortFrameError(header)
	}
	handle, offset := parseData(header)
	if r = p.m.lookup(handle); r == nil || r.isSend || r.state != statePipelining || r.p.proc != p {
		return nil, 0, fmt.Errorf("data for unknown receive %#x", handle)
	}
	if x := r.rndv; offset != x.bytesMoved || int64(size) > x.bytesWanted-x.bytesMoved || size == 0 {
		return nil, 0, fmt.Errorf("data of %d bytes at offset %d, for a receive with %d of %d bytes", size, offset, x.bytesMoved, x.bytesWanted)
	}
	return r, offset, nil
}

// handleData handles a data frame. Lock held.
func (p *proc) handleData(f []byte) error {
	size := max(len(f)-dataSize, 0)
	r, offset, err := p.receiveOfData(f, size)
	if err != nil {
		return err
	}
	r.store(f[dataSize:], offset)
	r.addReceived(size)
	return nil
}

// Place implements btl.Inbound. For an invalid header it returns nil, so that Frame reports
// the error. Lock held.
func (p *proc) Place(header []byte, size int) []byte {
	if len(header) != dataSize || header[0] != frameData {
		return nil
	}
	r, offset, err := p.receiveOfData(header, size)
	if err != nil || r.buf.Layout() != nil {
		return nil
	}
	return r.buf.Bytes[offset : offset+int64(size) : offset+int64(size)]
}

// Placed implements btl.Inbound. Lock held.
func (p *proc) Placed(header []byte, size int) error {
	r, _, err := p.receiveOfData(header, size)
	if err == nil {
		r.addReceived(size)
	}
	return err
}

// addReceived counts received payload, and completes the receive after the last byte.
func (r *request) addReceived(size int) {
	x := r.rndv
	if x.bytesMoved += int64(size); x.bytesMoved == x.bytesWanted {
		r.completeReceive()
	}
}
