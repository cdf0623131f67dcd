package ob1

import (
	"errors"
	"fmt"
)

// The payload of a large message, once it is accepted. Where the path can, a frame
// takes it from the sender's buffer as it lies there (btl.Gatherer), and puts it
// straight into the receiver's (btl.Placer). Eager messages are copied: their senders
// go on at once.

// push sends payload of an accepted send, which is the head of its process's
// list, until the path is blocked or all is sent. It returns the number of
// frames. Lock held.
func (r *request) push() (n int) {
	proc := r.p.proc
	for r.moved < r.limit {
		k := min(r.limit-r.moved, int64(proc.frame-dataSize))
		if !r.gathered() {
			k = min(k, r.m.piece(r.limit))
		}
		if !r.pushFrame(k) {
			return n
		}
		r.moved += k
		n++
	}
	proc.pushing.pop()
	if r.lent == 0 {
		r.sent()
	}
	return n
}

// gathered reports whether the path takes payload from where it lies. Nothing is copied
// here then, and a frame is as large as the path wants it.
func (r *request) gathered() bool { return r.p.proc.gather != nil && r.buf.Layout() == nil }

// pushFrame sends the next k bytes, and reports whether the path took them.
func (r *request) pushFrame(k int64) bool {
	proc := r.p.proc
	if r.gathered() {
		header := r.m.header[:]
		putData(header, r.far, r.moved)
		r.lent++
		if !proc.gather.Gather(header, r.buf.Bytes[r.moved:r.moved+k], r) {
			r.lent--
			return false
		}
		return true
	}
	b := proc.reserve(dataSize+int(k), r.lines)
	if b == nil {
		return false
	}
	putData(b, r.far, r.moved)
	r.pack(b[dataSize:], r.moved)
	proc.endpoint.Commit(dataSize + int(k))
	return true
}

// LocallyComplete implements btl.LocalCompletion: the payload of a frame is not read any
// more. The last one completes the send. Lock held.
func (r *request) LocallyComplete() {
	if r.lent == 0 {
		return // the send has ended, and the module is late to say so
	}
	if r.lent--; r.lent == 0 && r.state == copying && r.moved == r.limit {
		r.sent()
	}
}

// receiving returns the receive for which a frame of payload comes, and where in the
// message the payload begins.
func (p *proc) receiving(header []byte, size int) (r *request, offset int64, err error) {
	if len(header) < dataSize {
		return nil, 0, errShort(header)
	}
	if r = p.m.lookup(le.Uint64(header[8:])); r == nil || r.send || r.state != copying || r.p.proc != p {
		return nil, 0, errors.New("payload for no receive")
	}
	if offset = int64(le.Uint64(header[16:])); offset != r.moved || int64(size) > r.limit-r.moved || size == 0 {
		return nil, 0, fmt.Errorf("payload of %d bytes at %d for a receive of %d at %d", size, offset, r.limit, r.moved)
	}
	return r, offset, nil
}

// data takes a frame of payload.
func (p *proc) data(f []byte) error {
	size := max(len(f)-dataSize, 0)
	r, offset, err := p.receiving(f, size)
	if err != nil {
		return err
	}
	r.store(f[dataSize:], offset)
	r.arrived(size)
	return nil
}

// Place implements btl.Placer. What makes no sense comes again, by Frame. Lock held.
func (p *proc) Place(header []byte, size int) []byte {
	if len(header) != dataSize || header[0] != frameData {
		return nil
	}
	r, offset, err := p.receiving(header, size)
	if err != nil || r.buf.Layout() != nil {
		return nil
	}
	return r.buf.Bytes[offset : offset+int64(size) : offset+int64(size)]
}

// Placed implements btl.Placer. Lock held.
func (p *proc) Placed(header []byte, size int) error {
	r, _, err := p.receiving(header, size)
	if err == nil {
		r.arrived(size)
	}
	return err
}

// arrived counts payload that is in its place.
func (r *request) arrived(size int) {
	if r.moved += int64(size); r.moved == r.limit {
		r.received()
	}
}
