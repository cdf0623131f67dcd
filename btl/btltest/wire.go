package btltest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// wire is a path of a Memory from one module to another one.
type wire struct {
	from, to *memory
	peer     framework.Life // to, as the sender names it
	sender   framework.Life // from, as the receiver names it

	// Guarded by the network's lock.
	state     wireState
	why       error
	frames    []*wireFrame
	bytes     int                   // of frames
	blocked   bool                  // the sender waits for room
	completed []btl.LocalCompletion // of which the sender is to be told

	reserved []byte // the sender's
	closed   bool   // the sender's: nothing more is said of the path

	// The receiver's.
	up     btl.Inbound
	placer btl.Placer // nil: it is not asked
	placed int        // bytes of the first frame's payload
}

type wireState uint8

const (
	asking wireState = iota // the receiver has not answered
	open
	left // the sender has closed its end
	down // the receiver has
	gone // with its module
)

var (
	errForgotten = errors.New("the process is known to be dead")
	errHalf      = errors.New("the sender has closed the path in the middle of a frame")
)

// wireFrame is a frame on its way: whole in data, or gathered.
type wireFrame struct {
	data    []byte
	payload []byte // of a gathered frame, the sender's
	done    btl.LocalCompletion
}

func (f *wireFrame) size() int { return len(f.data) + len(f.payload) }

// room reports whether a frame of n bytes can be sent now. f.mu held.
func (w *wire) room(n int) bool {
	ok := w.state == open && w.bytes+n <= max(w.from.f.opt.Room, w.from.f.opt.FrameLimit)
	w.blocked = w.blocked || !ok
	return ok
}

// push sends a frame. f.mu held.
func (w *wire) push(frame *wireFrame) {
	w.frames = append(w.frames, frame)
	w.bytes += frame.size()
	w.to.env.Bell().Ring()
}

// pop takes the first frame. f.mu held.
func (w *wire) pop() {
	frame := w.frames[0]
	w.frames = w.frames[1:]
	w.bytes -= frame.size()
	w.placed = 0
	if frame.done != nil {
		w.completed = append(w.completed, frame.done)
	}
	if frame.done != nil || w.blocked {
		w.blocked = false
		w.from.env.Bell().Ring()
	}
}

// end says that the receiver reads nothing more, and why.
func (w *wire) end(state wireState, why error) {
	w.from.f.mu.Lock()
	defer w.from.f.mu.Unlock()
	if w.state != left {
		w.state, w.why = state, why
	}
	w.dropFrom(0)
	w.from.env.Bell().Ring()
}

// dropFrom drops frames. f.mu held.
func (w *wire) dropFrom(i int) {
	for _, frame := range w.frames[i:] {
		w.bytes -= frame.size()
		if frame.done != nil {
			w.completed = append(w.completed, frame.done)
		}
	}
	w.frames = w.frames[:i]
}

// plainEnd is the sender's end with the mandatory methods.
type plainEnd struct{ w *wire }

func (e plainEnd) Reserve(n int) []byte {
	w := e.w
	w.from.f.mu.Lock()
	defer w.from.f.mu.Unlock()
	w.reserved = nil
	if w.room(n) {
		w.reserved = make([]byte, n)
	}
	return w.reserved
}

func (e plainEnd) Commit(n int) {
	w := e.w
	w.from.f.mu.Lock()
	defer w.from.f.mu.Unlock()
	if w.state == open {
		w.push(&wireFrame{data: w.reserved[:n]})
	}
	w.reserved = nil
}

// Idle is false while a payload is read here, and on the way from a process to itself.
func (e plainEnd) Idle() bool {
	w := e.w
	w.from.f.mu.Lock()
	defer w.from.f.mu.Unlock()
	lent := slices.ContainsFunc(w.frames, func(f *wireFrame) bool { return f.done != nil })
	return !lent && len(w.completed) == 0 && (w.from != w.to || len(w.frames) == 0)
}

// Close leaves what has been copied to the receiver.
func (e plainEnd) Close() {
	w := e.w
	if w.closed {
		return
	}
	w.closed = true
	f := w.from.f
	f.mu.Lock()
	if w.state == asking || w.state == open {
		w.state = left
		if i := slices.IndexFunc(w.frames, func(f *wireFrame) bool { return f.done != nil }); i >= 0 {
			w.why = errHalf
			w.dropFrom(i)
		}
	}
	w.to.env.Bell().Ring()
	f.mu.Unlock()
	w.tell()
	w.from.out = slices.DeleteFunc(slices.Clone(w.from.out), func(x *wire) bool { return x == w })
}

// tell makes the calls that are due of the sender's completions.
func (w *wire) tell() int {
	w.from.f.mu.Lock()
	due := w.completed
	w.completed = nil
	w.from.f.mu.Unlock()
	for _, c := range due {
		c.LocallyComplete()
	}
	return len(due)
}

// wireEnd is the sender's end with all abilities.
type wireEnd struct{ plainEnd }

// SendShort implements btl.ShortSender.
func (e wireEnd) SendShort(h btl.ShortHeader, payload []byte) bool {
	return btl.SendShort(e.plainEnd, h, payload)
}

// Gather implements btl.Gatherer.
func (e wireEnd) Gather(header, payload []byte, c btl.LocalCompletion) bool {
	w := e.w
	w.from.f.mu.Lock()
	defer w.from.f.mu.Unlock()
	w.reserved = nil
	if len(header) > btl.GatherHeader || !w.room(len(header)+len(payload)) {
		return false
	}
	w.push(&wireFrame{data: slices.Clone(header), payload: payload, done: c})
	w.from.f.gathered.Add(1)
	return true
}

// Poll implements progress.Source.
func (m *memory) Poll() (n int) {
	m.f.mu.Lock()
	asked := m.asked
	m.asked = nil
	m.f.mu.Unlock()
	for _, w := range asked {
		m.answer(w)
		n++
	}
	for _, w := range m.in {
		n += w.Poll()
	}
	for _, w := range m.out {
		n += w.tell() + m.look(w)
	}
	return n
}

// answer opens a path from a peer, or refuses it.
func (m *memory) answer(w *wire) {
	from := w.from.env
	w.sender = framework.Life{ID: m.env.Worlds.ID(from.Identity.Proc), Nonce: from.Self.Nonce}
	if refuse := m.f.opt.Refuse; refuse != nil {
		if err := refuse(from.Identity.Proc, m.env.Identity.Proc); err != nil {
			w.end(down, fmt.Errorf("%w: the peer refused: %w", btl.ErrNeverOpened, err))
			return
		}
	}
	w.up = m.env.Upcall.Accept(w.sender)
	if !m.f.opt.NoPlace {
		w.placer, _ = framework.As[btl.Placer](w.up)
	}
	m.in = append(slices.Clone(m.in), w)
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if w.state == asking {
		w.state = open
	}
	from.Bell().Ring()
}

// look tells of a path to a peer that has ended.
func (m *memory) look(w *wire) int {
	m.f.mu.Lock()
	state, why := w.state, w.why
	m.f.mu.Unlock()
	if w.closed || state != down && state != gone {
		return 0
	}
	if state == gone { // what it has sent before is here
		for _, x := range m.in {
			for x.from == w.to && x.Poll() > 0 {
			}
		}
	}
	plainEnd{w}.Close()
	m.env.Ended("btl memory", w.peer, "send", why)
	return 1
}

// PeerSource implements btl.PeerPoller.
func (m *memory) PeerSource(peer framework.Life) progress.Source {
	for _, w := range slices.Backward(m.in) {
		if w.sender == peer {
			return w
		}
	}
	return nil
}

// framesPerPoll bounds the time that a path takes in a Poll.
const framesPerPoll = 32

// Poll hands up what has come by the path.
func (w *wire) Poll() int {
	for n := range framesPerPoll {
		came, err := w.next()
		if err != nil {
			w.end(down, errors.New("the peer has ended the path: it made no sense of what came"))
			w.drop()
			w.to.env.Ended("btl memory", w.sender, "receive", err)
			return n + 1
		}
		switch came {
		case nothing:
			return n
		case part:
			return n + 1
		}
	}
	return framesPerPoll
}

// What next has handed up.
const (
	nothing = iota
	part    // of a frame; the rest is for the next Poll
	whole   // frame
)

// drop forgets a path from a peer.
func (w *wire) drop() {
	w.to.in = slices.DeleteFunc(slices.Clone(w.to.in), func(x *wire) bool { return x == w })
}

// next hands up a frame, or a part of one.
func (w *wire) next() (came int, err error) {
	f := w.from.f
	f.mu.Lock()
	if len(w.frames) == 0 {
		state, why := w.state, w.why
		f.mu.Unlock()
		if state != open {
			w.drop()
		}
		if w.placed > 0 && why == errHalf {
			w.placed = 0
			return nothing, errHalf
		}
		return nothing, nil
	}
	frame := w.frames[0]
	f.mu.Unlock()

	var dst []byte
	if frame.done != nil && w.placer != nil {
		dst = w.placer.Place(frame.data, len(frame.payload))
	}
	f.mu.Lock()
	if len(w.frames) == 0 || w.frames[0] != frame { // the sender has taken it back
		f.mu.Unlock()
		return whole, nil
	}
	switch {
	case dst != nil:
		k := len(dst)
		if f.opt.Step > 0 {
			k = min(k, w.placed+f.opt.Step)
		}
		w.placed += copy(dst[w.placed:k], frame.payload[w.placed:])
		if w.placed < len(frame.payload) {
			f.mu.Unlock()
			return part, nil
		}
		w.pop()
		f.mu.Unlock()
		f.placed.Add(1)
		return whole, w.placer.Placed(frame.data, len(frame.payload))
	case w.placed > 0: // nobody wants the rest
		w.pop()
		f.mu.Unlock()
		return whole, nil
	}
	data := slices.Concat(frame.data, frame.payload)
	w.pop()
	f.mu.Unlock()
	return whole, w.up.Frame(data)
}
