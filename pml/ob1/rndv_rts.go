package ob1

import (
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/pml"
)

// sendOffer is the sender's part of a rendezvous, as its RTS describes it.
type sendOffer struct {
	// packMode applies to the fragments.
	packMode packMode
	// memory is the kind of memory of the buffer.
	memory btl.Memory
	// isDescribed is set if the RTS has a description of the buffer.
	isDescribed bool
	// canPut is set if the RTS announces that this process can write into the receiver's memory.
	canPut bool
}

// largeSends are the large messages to one process.
type largeSends struct {
	// lastRTS is the handle of the last RTS, and isLastRTSWindowed is set if other large messages
	// were in flight with it. windowStart is the start of its window, or 0 for a single message.
	lastRTS           uint64
	windowStart       time.Duration
	isLastRTSWindowed bool
	// packAdvice is the peer's advice for messages to it.
	packAdvice [btl.Memories][sentPatterns][classes]advice
}

// sendRTS sends an RTS with a header of size bytes, and a fragment if the receiver wants one.
func (r *request) sendRTS(flags byte, size int) bool {
	r.beginRendezvous()
	p := r.p
	n := size + rtsSize
	isWindow := r.next != nil || p.proc.isSendingLarge()
	// The RTS of the first message of a window cannot know the others. If it counted as
	// single, it might use another protocol than those behind it and delay them, and its time,
	// with the packing at the receiver before, would spoil the estimates of single messages.
	// So a message behind a window counts as the first one of the next window.
	r.rndv.pattern = single
	if isWindow || p.proc.outgoing.isLastRTSWindowed {
		r.rndv.pattern = windowed
		flags |= flagWindow
	}
	remote, wantsFragment := r.exposeBuffer()
	if r.rndv.isDescribed {
		flags |= flagRemote
		n += remoteSize
		if r.rndv.canPut {
			flags |= flagPut
		}
	}
	var fragment int64
	if wantsFragment {
		fragment = r.fragmentLength(p.proc.frameLimit - n)
		n += int(fragment)
	}
	b := p.proc.reserve(n, r.rndv.packMode)
	if b == nil {
		return false
	}
	r.putHeader(b, frameRTS, flags)
	packTime := r.packFragment(b[n-int(fragment) : n])
	putRTS(b[size:], r.buf.Len(), r.handle(), fragment, packTime)
	if r.rndv.isDescribed {
		copy(b[size+rtsSize:], remote[:])
	}
	r.commitFirst(n)
	r.state, r.rndv.bytesMoved = stateOffered, fragment
	p.proc.outgoing.lastRTS = r.handle()
	p.proc.noteRTS(r.rndv.pattern, isWindow)
	if fragment > 0 {
		p.proc.credit -= fragment + messageCost
	}
	if r.m.failures != 0 { // the peer may not be a member
		p.inquire()
	}
	return true
}

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

// isSendingLarge reports whether the message of the last RTS to the process is in flight.
func (p *proc) isSendingLarge() bool { return p.isSending(p.outgoing.lastRTS) }

// isSending reports whether the send with that handle is in flight.
func (p *proc) isSending(handle uint64) bool {
	r := p.m.lookup(handle)
	return r != nil && r.isSend && r.state != stateComplete && r.p.proc == p
}

// noteRTS updates the state of windows to the process after an RTS. isWindow is set if other
// large messages are in flight.
func (p *proc) noteRTS(pattern pattern, isWindow bool) {
	p.outgoing.isLastRTSWindowed = isWindow
	if pattern == single {
		p.outgoing.windowStart = 0
	} else if !isWindow || p.outgoing.windowStart == 0 {
		p.outgoing.windowStart = p.m.now()
	}
}

// fragmentLength returns how much of a message travels with its RTS, at most room bytes. The
// receiver copies the fragment while its answer travels. It is 0 without credit, and for a
// synchronous send, which waits for the answer.
func (r *request) fragmentLength(room int) int64 {
	part := min(r.m.pipelineFragment(r.buf.Len()), r.buf.Len(), int64(room))
	if r.mode == pml.Synchronous || part+messageCost > r.p.proc.credit || part < 0 {
		return 0
	}
	return part
}

// packFragment packs the fragment of an RTS, and returns the elapsed time. The RTS carries it,
// because the receiver of a single message cannot measure it. In a window the receiver measures
// the time between messages, and packFragment returns 0.
func (r *request) packFragment(dst []byte) time.Duration {
	if len(dst) == 0 || r.rndv.pattern != single || !r.rndv.isDescribed {
		r.pack(dst, 0, r.rndv.packMode)
		return 0
	}
	began := r.m.now()
	r.pack(dst, 0, r.rndv.packMode)
	return r.m.now() - began
}
