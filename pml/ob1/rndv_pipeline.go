package ob1

import "fmt"

// Protocol pipeline. The payload of an accepted message is sent in fragments. Where
// possible, a fragment is gathered from the sender's buffer (btl.Gatherer) and placed in the
// receiver's buffer (btl.Placer) without copies in between.

// pushFragments sends fragments of the first send in its process's pipelineQueue until the
// path blocks or all are sent. It returns the number of fragments. Lock held.
func (r *request) pushFragments() (n int) {
	proc := r.p.proc
	for r.bytesMoved < r.bytesWanted {
		k := min(r.bytesWanted-r.bytesMoved, int64(proc.frameLimit-dataSize))
		if !r.isGathered() {
			k = min(k, r.m.pipelineFragment(r.bytesWanted))
		}
		if !r.pushFragment(k) {
			return n
		}
		r.bytesMoved += k
		n++
	}
	proc.pipelineQueue.pop()
	if r.framesLent == 0 {
		r.completeRendezvous()
	}
	return n
}

// isGathered reports whether the path reads the payload from the user's buffer. Then the path
// decides the size of a fragment.
func (r *request) isGathered() bool { return r.p.proc.gatherer != nil && r.buf.Layout() == nil }

// pushFragment sends the next k bytes, and reports false if the path is blocked.
func (r *request) pushFragment(k int64) bool {
	proc := r.p.proc
	if r.isGathered() {
		header := r.m.gatherHeader[:]
		putData(header, r.peerHandle, r.bytesMoved)
		r.framesLent++
		if !proc.gatherer.Gather(header, r.buf.Bytes[r.bytesMoved:r.bytesMoved+k], r) {
			r.framesLent--
			return false
		}
		return true
	}
	b := proc.reserve(dataSize+int(k), r.rndv.packMode)
	if b == nil {
		return false
	}
	putData(b, r.peerHandle, r.bytesMoved)
	r.pack(b[dataSize:], r.bytesMoved, r.rndv.packMode)
	proc.endpoint.Commit(dataSize + int(k))
	return true
}

// LocallyComplete implements btl.LocalCompletion. A gathered fragment no longer reads the
// buffer, and the last one completes the send. Lock held.
func (r *request) LocallyComplete() {
	if r.framesLent == 0 { // the send has already failed
		return
	}
	if r.framesLent--; r.framesLent == 0 && r.state == stateCopying && r.bytesMoved == r.bytesWanted {
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
	if r = p.m.lookup(handle); r == nil || r.isSend || r.state != stateCopying || r.p.proc != p {
		return nil, 0, fmt.Errorf("data for unknown receive %#x", handle)
	}
	if offset != r.bytesMoved || int64(size) > r.bytesWanted-r.bytesMoved || size == 0 {
		return nil, 0, fmt.Errorf("data of %d bytes at offset %d, for a receive with %d of %d bytes", size, offset, r.bytesMoved, r.bytesWanted)
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

// Place implements btl.Placer. For an invalid header it returns nil, so that Frame reports
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

// Placed implements btl.Placer. Lock held.
func (p *proc) Placed(header []byte, size int) error {
	r, _, err := p.receiveOfData(header, size)
	if err == nil {
		r.addReceived(size)
	}
	return err
}

// addReceived counts received payload, and completes the receive after the last byte.
func (r *request) addReceived(size int) {
	if r.bytesMoved += int64(size); r.bytesMoved == r.bytesWanted {
		r.completeReceive()
	}
}
