package ob1

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// Protocol get. Where the transport can read the peer's memory (btl.RemoteReader), the RTS
// describes the sender's buffer, and the receiver copies from it. A CTS of 0 bytes completes
// the send. If a copy fails, the receiver accepts the message by the pipeline.

// exposeBuffer returns the description of a contiguous buffer for the RTS, and reports
// whether the RTS should carry a fragment. The description is empty if peers cannot read the buffer.
func (r *request) exposeBuffer() (remote btl.Remote, part bool) {
	x := r.rndv
	x.isDescribed, x.canPut = false, false
	proc := r.p.proc
	if r.buf.Layout() != nil || len(r.buf.Bytes) == 0 || proc.outTransport.reader == nil {
		return remote, true
	}
	remote, readable := proc.outTransport.reader.Expose(r.buf.Bytes, r.buf.Kind() == pml.Registered)
	c := proc.outTransport.copier
	if c == nil {
		x.isDescribed = readable
		return remote, !readable
	}
	// A buffer that cannot be read still has a choice among pipelines.
	x.isDescribed = true
	x.memory = c.KindOf(remote)
	x.canPut = readable && c.CanWrite(proc.Incarnation) == nil
	x.packMode = proc.adviceFor(r).mode
	return remote, x.packMode != packNone
}

// startGet starts to copy a matched message out of the sender's memory, where the transport
// has no choice of protocols. It reports false if that is impossible. Lock held.
func (r *request) startGet(remote *btl.Remote, handle uint64) bool {
	x := r.rndv
	if *remote == (btl.Remote{}) || r.buf.Layout() != nil || r.bytesWanted == 0 {
		return false
	}
	// Only the transport of the incoming path can interpret the description.
	proc := r.p.proc
	if proc.inTransport == nil || proc.inTransport.reader == nil || proc.requirePath() != nil {
		return false
	}
	if proc.inTransport.reader.CanRead(proc.Incarnation, *remote, r.bytesWanted) != nil {
		return false
	}
	r.state, x.remote, x.reader, r.peerHandle = stateTransferring, *remote, proc.inTransport.reader, handle
	r.m.copying = append(r.m.copying, r)
	r.m.stepCopies()
	return true
}

// stepCopies takes one step of each copy between processes. The transport bounds the length
// of a step. A request that is started during the iteration is appended, and gets its step as
// well. It returns the number of steps that made progress. Lock held.
func (m *Module) stepCopies() (n int) {
	if m.inCopySteps {
		return 0
	}
	m.inCopySteps = true
	for i := 0; i < len(m.copying); i++ {
		r := m.copying[i]
		generation := r.generation
		if r.hasSteps() {
			n += r.step()
		}
		if !r.hasSteps() || r.generation != generation {
			m.copying = slices.Delete(m.copying, i, i+1)
			i--
		}
	}
	m.inCopySteps = false
	return n
}

// hasSteps reports whether stepCopies must step the request.
func (r *request) hasSteps() bool {
	return r.state == stateTransferring || r.state == statePutting || r.state == stateStopping
}

// step takes one step, and returns 0 if it made no progress.
func (r *request) step() int {
	switch {
	case r.state == statePutting:
		return r.stepPut()
	case r.state == stateStopping:
		return r.stepStopping()
	case r.rndv.share != nil:
		return r.stepShare()
	}
	return r.stepGet()
}

func (r *request) stepGet() int {
	k, err := r.rndv.reader.Read(r.p.proc.Incarnation, r.rndv.remote, r.bytesMoved, r.buf.Bytes[r.bytesMoved:r.bytesWanted])
	if err != nil {
		r.fallBackToPipeline()
		return 1
	}
	r.bytesMoved += int64(k)
	if r.bytesMoved == r.bytesWanted {
		r.completeCopy()
	}
	return 1
}

// fallBackToPipeline accepts the message by the pipeline, from copyBase on.
func (r *request) fallBackToPipeline() {
	x := r.rndv
	if x.isInFlight {
		x.isTimeInvalid = true
	} else {
		x.copyBase = 0
	}
	r.bytesMoved = x.copyBase
	r.sendCTS()
}

// completeCopy sends the CTS and completes a receive after its last byte.
func (r *request) completeCopy() {
	generation := r.generation
	cts := newCTS(r.peerHandle, 0, 0)
	r.addAdvice(&cts)
	r.p.proc.sendControl(cts)
	// If the CTS could not be sent, the request may have failed, and may be in use again.
	if r.generation == generation && r.state == stateTransferring {
		r.completeReceive()
	}
}

// Allocate implements pml.Allocator by the first transport with memory for peers.
func (m *Module) Allocate(bytes int) ([]byte, error) {
	for _, t := range m.transports {
		if t.reader != nil {
			return t.reader.Allocate(bytes)
		}
	}
	return nil, fmt.Errorf("%w: no open transport has memory that peers read directly", framework.ErrUnsupported)
}

// Free implements pml.Allocator.
func (m *Module) Free(memory []byte) error {
	if m.Uses(memory) {
		return fmt.Errorf("%w: an operation uses the memory", framework.ErrPending)
	}
	for _, t := range m.transports {
		if t.reader != nil {
			return t.reader.Free(memory)
		}
	}
	return framework.ErrUnsupported
}

// Uses implements pml.MemoryUser.
func (m *Module) Uses(memory []byte) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	return slices.ContainsFunc(m.requests, func(r *request) bool {
		return r.state != stateIdle && r.state != stateComplete && mem.Overlap(r.buf.Bytes, memory)
	})
}
