package btltest

import (
	"errors"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// wire is a path of a Memory from one module to another one: the sender's endpoint, and
// what the receiver polls.
type wire struct {
	from, to *memory
	peer     framework.Life // to, as the sender names it
	sender   framework.Life // from, as the receiver names it

	// Guarded by the network's lock.
	state  wireState
	why    error // it has ended
	frames []*wireFrame
	bytes  int                   // of frames
	waits  bool                  // the sender, for room
	due    []btl.LocalCompletion // of which the sender is to be told

	// The sender's.
	reserved []byte
	lent     int  // payloads that the sender has not been told of
	closed   bool // nothing more is said of the path

	// The receiver's.
	up     btl.Inbound
	placer btl.Placer // nil: there is none to ask
	placed int        // bytes of the first frame's payload
}

type wireState uint8

const (
	asking wireState = iota // the receiver has not answered
	open
	left  // the sender has closed its end
	ended // the receiver has
)

var errHalf = errors.New("the sender has closed the path in the middle of a frame")

// wireFrame is a frame on its way: whole in data, or gathered.
type wireFrame struct {
	data    []byte
	payload []byte // of a gathered frame, the sender's
	done    btl.LocalCompletion
}

// framesOnTheWay is how many of the largest frames a path has room for.
const framesOnTheWay = 4

// room reports whether a frame of n bytes can be sent now. f.mu held.
func (w *wire) room(n int) bool {
	ok := w.state == open && w.bytes+n <= framesOnTheWay*w.from.f.opt.FrameLimit
	w.waits = w.waits || !ok
	return ok
}

// push sends a frame. f.mu held.
func (w *wire) push(frame *wireFrame) {
	w.frames = append(w.frames, frame)
	w.bytes += len(frame.data) + len(frame.payload)
	w.to.env.Bell().Ring()
}

// pop takes the first frame. f.mu held.
func (w *wire) pop() {
	w.free(w.frames[:1])
	w.frames = w.frames[1:]
	w.placed = 0
}

// free makes room of frames that are no longer read. f.mu held.
func (w *wire) free(frames []*wireFrame) {
	for _, frame := range frames {
		w.bytes -= len(frame.data) + len(frame.payload)
		if frame.done != nil {
			w.due = append(w.due, frame.done)
		}
	}
	if w.waits || len(w.due) > 0 {
		w.waits = false
		w.from.env.Bell().Ring()
	}
}

// end says that the receiver reads nothing more, and why. f.mu held.
func (w *wire) end(why error) {
	if w.state != left {
		w.state, w.why = ended, why
	}
	w.free(w.frames)
	w.frames = nil
	w.from.env.Bell().Ring()
}

// Reserve implements btl.Endpoint.
func (w *wire) Reserve(n int) []byte {
	w.from.f.mu.Lock()
	defer w.from.f.mu.Unlock()
	w.reserved = nil
	if w.room(n) {
		w.reserved = make([]byte, n)
	}
	return w.reserved
}

// Commit implements btl.Endpoint.
func (w *wire) Commit(n int) {
	w.from.f.mu.Lock()
	defer w.from.f.mu.Unlock()
	if w.state == open {
		w.push(&wireFrame{data: w.reserved[:n]})
	}
	w.reserved = nil
}

// Idle is false while a payload is read here, and on the way from a process to itself.
func (w *wire) Idle() bool {
	w.from.f.mu.Lock()
	defer w.from.f.mu.Unlock()
	return w.lent == 0 && (w.from != w.to || len(w.frames) == 0)
}

// Close leaves what has been copied to the receiver.
func (w *wire) Close() {
	if w.closed {
		return
	}
	w.closed = true
	w.from.f.mu.Lock()
	if w.state == asking || w.state == open {
		w.state = left
		if i := slices.IndexFunc(w.frames, func(f *wireFrame) bool { return f.done != nil }); i >= 0 {
			w.why = errHalf
			w.free(w.frames[i:])
			w.frames = w.frames[:i]
		}
	}
	w.to.env.Bell().Ring()
	w.from.f.mu.Unlock()
	w.tell()
	w.from.out = without(w.from.out, w)
}

// without returns a list, over which a Poll may range, without a wire.
func without(list []*wire, w *wire) []*wire {
	return slices.DeleteFunc(slices.Clone(list), func(x *wire) bool { return x == w })
}

// tell makes the calls that are due of the sender's completions.
func (w *wire) tell() int {
	w.from.f.mu.Lock()
	due := w.due
	w.due = nil
	w.from.f.mu.Unlock()
	w.lent -= len(due)
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
	w.from.f.mu.Lock()
	defer w.from.f.mu.Unlock()
	w.reserved = nil
	if len(header) > btl.GatherHeader || !w.room(len(header)+len(payload)) {
		return false
	}
	w.push(&wireFrame{data: slices.Clone(header), payload: payload, done: c})
	w.lent++
	w.from.f.gathered.Add(1)
	return true
}

// framesPerPoll bounds the time that a path takes in a Poll.
const framesPerPoll = 32

// Poll hands up what has come by the path.
func (w *wire) Poll() (n int) {
	for range framesPerPoll {
		came, more, err := w.next()
		if n += came; err != nil {
			w.from.f.mu.Lock()
			w.end(errors.New("the peer closed the path: it could not make sense of what it received"))
			w.from.f.mu.Unlock()
			w.to.in = without(w.to.in, w)
			w.to.env.Ended("btl memory", w.sender, "receive", err)
			return n + 1
		}
		if !more {
			break
		}
	}
	return n
}

// next hands up a frame, or a part of one, and reports whether there may be more in the
// same Poll.
func (w *wire) next() (came int, more bool, err error) {
	f := w.from.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(w.frames) == 0 {
		if w.state != open {
			w.to.in = without(w.to.in, w)
		}
		if w.placed > 0 && w.why == errHalf {
			w.placed = 0
			err = errHalf
		}
		return 0, false, err
	}
	frame := w.frames[0]
	var dst []byte
	if frame.done != nil && w.placer != nil {
		f.unlocked(func() { dst = w.placer.Place(frame.data, len(frame.payload)) })
		if len(w.frames) == 0 || w.frames[0] != frame { // the sender has taken it back
			return 0, true, nil
		}
	}
	switch {
	case dst != nil:
		k := f.step(len(dst) - w.placed)
		w.placed += copy(dst[w.placed:w.placed+k], frame.payload[w.placed:])
		if w.placed < len(frame.payload) {
			return 1, false, nil
		}
		w.pop()
		f.placed.Add(1)
		f.unlocked(func() { err = w.placer.Placed(frame.data, len(frame.payload)) })
	case w.placed > 0: // nobody wants the rest
		w.pop()
	default:
		whole := slices.Concat(frame.data, frame.payload)
		w.pop()
		f.unlocked(func() { err = w.up.Frame(whole) })
	}
	return 1, true, err
}

// unlocked calls upwards.
func (f *Memory) unlocked(call func()) {
	f.mu.Unlock()
	defer f.mu.Lock()
	call()
}

// step is how much of n bytes is copied at once.
func (f *Memory) step(n int) int {
	if f.opt.Step > 0 {
		return min(n, f.opt.Step)
	}
	return n
}
