package btltest

import (
	"errors"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// wire is a path of a Memory from one module to another. It is the sender's endpoint and the
// receiver's source.
type wire struct {
	from, to *memoryModule
	// The receiver, as the sender identifies it.
	receiverIncarnation framework.Incarnation
	// The sender, as the receiver identifies it.
	senderIncarnation framework.Incarnation

	// The following fields are guarded by the network's lock.
	state wireState
	// Reason of the end.
	endReason     error
	pendingFrames []*wireFrame
	// Size of the pending frames.
	pendingBytes int
	// Whether the sender waits for space.
	senderWaits bool
	// Completions to report to the sender.
	dueCompletions []btl.LocalCompletion

	// The following fields belong to the sender.
	reservedFrame []byte
	// Number of payloads without a reported completion.
	lentCount int
	// No event of the path is reported any more.
	isClosed bool

	// The following fields belong to the receiver.
	receiver btl.Inbound
	// Bytes of the first frame's payload that have been placed.
	placedBytes int
}

type wireState uint8

const (
	wireRequested wireState = iota // The receiver has not answered.
	wireOpen
	wireLeft  // The sender has closed its end.
	wireEnded // The receiver has ended the path.
)

var errPartialFrame = errors.New("the sender closed the path in the middle of a frame")

// wireFrame is a pending frame. It is complete in data, or gathered.
type wireFrame struct {
	data []byte
	// Payload of a gathered frame in the sender's buffer.
	gatheredPayload []byte
	done            btl.LocalCompletion
}

// pathCapacity is the capacity of a path in frames of the largest size.
const pathCapacity = 4

// hasSpace reports whether a frame of n bytes can be sent now. The network's mu is held.
func (w *wire) hasSpace(n int) bool {
	ok := w.state == wireOpen && w.pendingBytes+n <= pathCapacity*w.from.network.options.FrameLimit
	w.senderWaits = w.senderWaits || !ok
	return ok
}

// push sends a frame. The network's mu is held.
func (w *wire) push(frame *wireFrame) {
	w.pendingFrames = append(w.pendingFrames, frame)
	w.pendingBytes += len(frame.data) + len(frame.gatheredPayload)
	w.to.env.Bell().Ring()
}

// pop removes the first frame. The network's mu is held.
func (w *wire) pop() {
	w.release(w.pendingFrames[:1])
	w.pendingFrames = w.pendingFrames[1:]
	w.placedBytes = 0
}

// release releases the space of frames that are no longer read. The network's mu is held.
func (w *wire) release(frames []*wireFrame) {
	for _, frame := range frames {
		w.pendingBytes -= len(frame.data) + len(frame.gatheredPayload)
		if frame.done != nil {
			w.dueCompletions = append(w.dueCompletions, frame.done)
		}
	}
	if w.senderWaits || len(w.dueCompletions) > 0 {
		w.senderWaits = false
		w.from.env.Bell().Ring()
	}
}

// end ends the path from the receiver's side for a reason. The network's mu is held.
func (w *wire) end(why error) {
	if w.state != wireLeft {
		w.state, w.endReason = wireEnded, why
	}
	w.release(w.pendingFrames)
	w.pendingFrames = nil
	w.from.env.Bell().Ring()
}

// Reserve implements btl.Endpoint.
func (w *wire) Reserve(n int, _ btl.Placement) []byte {
	w.from.network.mu.Lock()
	defer w.from.network.mu.Unlock()
	w.reservedFrame = nil
	if w.hasSpace(n) {
		w.reservedFrame = make([]byte, n)
	}
	return w.reservedFrame
}

// Commit implements btl.Endpoint.
func (w *wire) Commit(n int) {
	w.from.network.mu.Lock()
	defer w.from.network.mu.Unlock()
	if w.state == wireOpen {
		w.push(&wireFrame{data: w.reservedFrame[:n]})
	}
	w.reservedFrame = nil
}

// Idle reports false while the receiver may read a payload, and for pending frames to the process
// itself.
func (w *wire) Idle() bool {
	w.from.network.mu.Lock()
	defer w.from.network.mu.Unlock()
	return w.lentCount == 0 && (w.from != w.to || len(w.pendingFrames) == 0)
}

// Close leaves copied frames to the receiver.
func (w *wire) Close() {
	if w.isClosed {
		return
	}
	w.isClosed = true
	w.from.network.mu.Lock()
	if w.state == wireRequested || w.state == wireOpen {
		w.state = wireLeft
		if i := slices.IndexFunc(w.pendingFrames, func(f *wireFrame) bool { return f.done != nil }); i >= 0 {
			w.endReason = errPartialFrame
			w.release(w.pendingFrames[i:])
			w.pendingFrames = w.pendingFrames[:i]
		}
	}
	w.to.env.Bell().Ring()
	w.from.network.mu.Unlock()
	w.reportCompletions()
	w.from.outboundWires = without(w.from.outboundWires, w)
}

// without returns a copy of a list without a wire. A Poll may be iterating over the list.
func without(list []*wire, w *wire) []*wire {
	return slices.DeleteFunc(slices.Clone(list), func(x *wire) bool { return x == w })
}

// reportCompletions reports pending completions to the sender.
func (w *wire) reportCompletions() int {
	w.from.network.mu.Lock()
	due := w.dueCompletions
	w.dueCompletions = nil
	w.from.network.mu.Unlock()
	w.lentCount -= len(due)
	for _, c := range due {
		c.LocallyComplete()
	}
	return len(due)
}

// SendShort implements btl.ShortSender.
func (w *wire) SendShort(h btl.ShortHeader, payload []byte) bool {
	return btl.SendShort(w, h, payload)
}

// Gather implements btl.Gatherer.
func (w *wire) Gather(header, payload []byte, c btl.LocalCompletion) bool {
	w.from.network.mu.Lock()
	defer w.from.network.mu.Unlock()
	w.reservedFrame = nil
	if len(header) > btl.GatherHeader || !w.hasSpace(len(header)+len(payload)) {
		return false
	}
	w.push(&wireFrame{data: slices.Clone(header), gatheredPayload: payload, done: c})
	w.lentCount++
	w.from.network.gatheredFrames.Add(1)
	return true
}

// framesPerPoll limits the frames that one path delivers in a Poll.
const framesPerPoll = 32

// Poll delivers arrived frames.
func (w *wire) Poll() (n int) {
	for range framesPerPoll {
		came, more, err := w.deliverNext()
		if n += came; err != nil {
			w.from.network.mu.Lock()
			w.end(errors.New("the peer closed the path after a malformed frame"))
			w.from.network.mu.Unlock()
			w.to.inboundWires = without(w.to.inboundWires, w)
			w.to.env.Ended("btl memory", w.senderIncarnation, "receive", err)
			return n + 1
		}
		if !more {
			break
		}
	}
	return n
}

// deliverNext delivers a frame or a part of one, and reports whether the same Poll may deliver more.
func (w *wire) deliverNext() (came int, more bool, err error) {
	f := w.from.network
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(w.pendingFrames) == 0 {
		if w.state != wireOpen {
			w.to.inboundWires = without(w.to.inboundWires, w)
		}
		if w.placedBytes > 0 && w.endReason == errPartialFrame {
			w.placedBytes = 0
			err = errPartialFrame
		}
		return 0, false, err
	}
	frame := w.pendingFrames[0]
	var dst []byte
	if frame.done != nil {
		f.upcall(func() { dst = w.receiver.Place(frame.data, len(frame.gatheredPayload)) })
		if len(w.pendingFrames) == 0 || w.pendingFrames[0] != frame { // The sender has withdrawn it.
			return 0, true, nil
		}
	}
	switch {
	case dst != nil:
		k := f.step(len(dst) - w.placedBytes)
		w.placedBytes += copy(dst[w.placedBytes:w.placedBytes+k], frame.gatheredPayload[w.placedBytes:])
		if w.placedBytes < len(frame.gatheredPayload) {
			return 1, false, nil
		}
		w.pop()
		f.placedPayloads.Add(1)
		f.upcall(func() { err = w.receiver.Placed(frame.data, len(frame.gatheredPayload)) })
	case w.placedBytes > 0: // The receive has ended.
		w.pop()
	default:
		whole := slices.Concat(frame.data, frame.gatheredPayload)
		w.pop()
		f.upcall(func() { err = w.receiver.Frame(whole) })
	}
	return 1, true, err
}

// upcall runs an upcall without the lock.
func (f *Memory) upcall(call func()) {
	f.mu.Unlock()
	defer f.mu.Lock()
	call()
}

// step returns the number of bytes to copy at once.
func (f *Memory) step(n int) int {
	if f.options.Step > 0 {
		return min(n, f.options.Step)
	}
	return n
}
