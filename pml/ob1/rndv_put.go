package ob1

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// Protocols put and split. The receiver answers the RTS by a share of its buffer, into which
// the sender writes chunks. With split, the receiver reads other chunks at the same time. The buffer
// stays in use until the share has ended, so a receive that fails ends its share first. A
// failed process does not write.

// stepShare copies a chunk, or checks whether the sender has finished.
func (r *request) stepShare() int {
	x := r.rndv
	if x.chunkLeft == 0 {
		left, writing, stopped := x.share.State()
		if !left && !writing {
			if x.share.End() {
				x.share = nil
				r.completeCopy()
				return 1
			}
			return 0
		}
		if x.protocol == selector.Put && !stopped { // the sender notifies this process at the end
			return 0
		}
		offset, n := x.share.Claim()
		if n == 0 {
			return 0
		}
		x.chunkOffset, x.chunkLeft = x.copyBase+offset, n
	}
	k, err := x.reader.Read(r.p.proc.Incarnation, x.remote, x.chunkOffset, r.buf.Bytes[x.chunkOffset:x.chunkOffset+int64(x.chunkLeft)])
	if err != nil {
		r.state, x.usePipelineNext = stateStopping, true
		return r.stepStopping() + 1
	}
	x.chunkOffset += int64(k)
	x.chunkLeft -= k
	return 1
}

// stepStopping fails a receive, or continues it by the pipeline, once its share has ended.
func (r *request) stepStopping() int {
	x := r.rndv
	if !x.share.End() {
		return 0
	}
	x.share = nil
	if x.usePipelineNext {
		r.fallBackToPipeline()
		return 1
	}
	r.endTransfer()
	r.finish()
	return 1
}

// stopShare reports whether a receive that fails with err may end now. Otherwise it ends when
// the sender has finished the chunk in progress.
func (r *request) stopShare(err error) bool {
	x := r.rndv
	if x.share.End() || errors.Is(err, framework.ErrProcFailed) {
		x.share = nil
		return true
	}
	r.state, x.usePipelineNext = stateStopping, false
	if !slices.Contains(r.m.copying, r) {
		r.m.copying = append(r.m.copying, r)
	}
	r.m.engine.Nudge()
	return false
}

// closeTimeout bounds how long Close waits for a sender that writes into this process's
// memory. A chunk takes less than a millisecond.
const closeTimeout = time.Second

// endPuts waits for the end of puts into this process's memory, as the module closes. Lock held.
func (m *Module) endPuts() {
	begin := m.now()
	for _, r := range m.requests {
		if r.state != stateStopping {
			continue
		}
		for !r.rndv.share.End() && m.now()-begin < closeTimeout {
			runtime.Gosched()
		}
		r.rndv.share = nil
		r.finish()
	}
}

// isOffered reports whether a send waits for the answer to its RTS.
func (r *request) isOffered() bool { return r.state == stateOffered || r.state == stateWithdrawing }

// handleShare handles the answer that lets this process write into the receiver's buffer. Lock held.
func (p *proc) handleShare(s share) error {
	r := p.m.lookup(s.send)
	if r == nil || !r.isOffered() || r.p.proc != p {
		return fmt.Errorf("share for unknown rendezvous %#x", s.send)
	}
	if !r.rndv.canPut || p.outTransport == nil || p.outTransport.copier == nil {
		return fmt.Errorf("share for rendezvous %#x without the put flag", s.send)
	}
	if s.offset != r.bytesMoved || s.limit <= s.offset || s.limit > r.buf.Len() {
		return fmt.Errorf("share for bytes %d to %d of a message of %d, of which %d were sent", s.offset, s.limit, r.buf.Len(), r.bytesMoved)
	}
	if r.p.hasRefused {
		r.fail(r.m.procs.NotMemberError(p.Incarnation))
		return nil
	}
	r.state, r.bytesWanted, r.rndv.remote = statePutting, s.limit, s.remote
	r.m.copying = append(r.m.copying, r)
	r.m.stepCopies()
	return nil
}

// stepPut writes a chunk. The receiver detects a failed write from the share, and continues
// with get or the pipeline.
func (r *request) stepPut() int {
	proc := r.p.proc
	more := false
	if proc.outTransport != nil {
		more, _ = proc.outTransport.copier.Write(proc.Incarnation, r.rndv.remote, r.buf.Bytes[r.bytesMoved:r.bytesWanted])
	}
	if !more {
		r.state = statePutDone
	}
	return 1
}
