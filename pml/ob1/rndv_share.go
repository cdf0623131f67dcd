package ob1

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// The share of put and split, a part of the receive buffer into which the sender may write
// chunks. The buffer stays in use until the share has ended, so a receive that fails ends its
// share first. A failed process does not write.

// sharedReceive is the receiver's side of a share.
type sharedReceive struct {
	// share has the bytes from copyBase on. It is nil after its end.
	share  btl.Share
	reader btl.RMA
	// chunkOffset and chunkLeft are the rest of the chunk that is being copied.
	chunkOffset int64
	chunkLeft   int
	// usePipelineNext is set if the pipeline continues the message after its share has ended.
	usePipelineNext bool
}

// begin opens the share and sends it to the sender. Without a share, the pipeline transfers the
// message.
func (s *sharedReceive) begin(r *request) {
	x, proc := r.rndv, r.p.proc
	r.beginCopy()
	*s = sharedReceive{reader: proc.inTransport.reader}
	s.share = proc.inTransport.copier.Share(proc.Incarnation, r.buf.Bytes[x.bytesMoved:x.bytesWanted])
	if s.share == nil {
		x.protocol = selector.Pipeline
		r.startTransfer(pipelineReceive{})
		return
	}
	r.state, x.copyBase = stateTransferring, x.bytesMoved
	proc.sendControl(newShare(share{x.peerHandle, x.bytesMoved, x.bytesWanted, s.share.Remote()}))
	r.m.addCopy(r)
}

// claim claims the next chunk from the front, and reports false if none is left.
func (s *sharedReceive) claim(r *request) bool {
	offset, n := s.share.Claim()
	s.chunkOffset, s.chunkLeft = r.rndv.copyBase+offset, n
	return n > 0
}

// read copies a part of the claimed chunk. If the system forbids that, the share ends and the
// pipeline continues.
func (s *sharedReceive) read(r *request) (steps int, more bool) {
	k, err := s.reader.Read(r.p.proc.Incarnation, r.rndv.remote, s.chunkOffset, r.buf.Bytes[s.chunkOffset:s.chunkOffset+int64(s.chunkLeft)])
	if err != nil {
		r.state, s.usePipelineNext = stateStopping, true
		steps, more = s.stop(r)
		return steps + 1, more
	}
	s.chunkOffset += int64(k)
	s.chunkLeft -= k
	return 1, true
}

// finish completes the receive once the sender has completed its last write. The share of a sender
// that has died in a write could end, too, with a hole in the buffer. The failure of the sender then
// ends the receive.
func (s *sharedReceive) finish(r *request) (steps int, more bool) {
	if _, writing, _ := s.share.State(); writing || !s.share.End() {
		return 0, true
	}
	s.share = nil
	r.completeCopy()
	return 1, false
}

// stop fails a receive, or continues it by the pipeline, once its share has ended.
func (s *sharedReceive) stop(r *request) (steps int, more bool) {
	if !s.share.End() {
		return 0, true
	}
	s.share = nil
	if s.usePipelineNext {
		r.fallBackToPipeline()
		return 1, false
	}
	r.endTransfer()
	r.finish()
	return 1, false
}

// abort implements transfer. The sender may still write a chunk, unless it has failed.
func (s *sharedReceive) abort(r *request, err error) (ended bool) {
	if s.share.End() || errors.Is(err, framework.ErrProcFailed) {
		s.share = nil
		return true
	}
	r.state, s.usePipelineNext = stateStopping, false
	r.m.engine.Nudge()
	return false
}

// describeShare describes a transfer by a share.
func (s *sharedReceive) describeShare(r *request, protocol selector.Protocol) string {
	text := fmt.Sprintf("%v, bytes %d to %d", protocol, r.rndv.copyBase, r.rndv.bytesWanted)
	switch left, writing, stopped := s.share.State(); {
	case stopped:
		text += ", the sender cannot write"
	case writing:
		text += ", the sender is writing"
	case left:
		text += ", chunks are left"
	}
	return text
}

// closeTimeout bounds how long Close waits for a sender that writes into this process's
// memory. A chunk takes less than a millisecond.
const closeTimeout = time.Second

// endShares waits for the end of writes into this process's memory, as the module closes. Lock held.
func (m *Module) endShares() {
	begin := m.now()
	for _, r := range m.requests {
		if r.state != stateStopping {
			continue
		}
		for s := &r.rndv.shared; !s.share.End() && m.now()-begin < closeTimeout; {
			runtime.Gosched()
		}
		r.setTransfer(nil)
		r.finish()
	}
}
