package btltest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

// gatherCases are about btl.Gatherer and btl.Placer; a module without them skips them.
func gatherCases() claims {
	return claims{
		kittest.New("GatheredPayloadIsFreeOnceItIsSaid", 2, (*world).gather),
		kittest.New("NoPayloadIsReadAfterThePathHasEnded", 2, (*world).gatherEnds),
		kittest.New("PayloadLandsWhereTheProtocolSays", 2, (*world).place),
		kittest.New("NothingIsPlacedWhenTheReceiveHasEnded", 2, (*world).placeEnds),
	}
}

// lent is a payload that a module reads where it lies.
type lent struct {
	*path
	payload, was []byte
	calls        int
}

// LocallyComplete implements btl.LocalCompletion. What is free is changed at once.
func (l *lent) LocallyComplete() {
	if l.calls++; l.calls > 1 {
		l.w.Errorf("rank %d: a payload was reported free %d times", l.from.rank, l.calls)
		return
	}
	if !bytes.Equal(l.payload, l.was) {
		l.w.Errorf("rank %d: the module has changed the payload that it was lent", l.from.rank)
	}
	l.path.lent--
	clear(l.payload)
}

// lend sends a frame with a payload that is lent if the path takes it now. The sender's
// lock is held.
func (p *path) lend(frame []byte, header int) (sent bool) {
	g := ability[btl.Gatherer](p.w, p)
	head := bytes.Clone(frame[:header])
	defer clear(head) // the caller's again
	l := &lent{path: p, payload: bytes.Clone(frame[header:]), was: frame[header:]}
	p.lent++
	if sent = g.Gather(head, l.payload, l); !sent {
		p.lent--
	}
	return sent
}

// returned waits until all payloads that were lent are free.
func (p *path) returned() {
	p.from.until("all payloads are reported free", func() bool { return p.lent == 0 })
}

// gather mixes Gather with Reserve and Commit, up to a full path.
func (w *world) gather() {
	p := w.path()
	for round := range 40 {
		p.arrive(p.burst(200, func(k int) ([]byte, bool) {
			header := 1 + (round+k)%btl.GatherHeader
			frame := pattern(round+k, header+1+(round*k*911)%(p.limit()-header))
			if k%3 == 2 {
				return frame, p.put(frame)
			}
			return frame, p.lend(frame, header)
		})...)
		p.returned()
		p.from.until("the frames after it no longer need the sender", p.Idle)
	}
}

// gatherEnds closes a path, or its reader, while payloads are lent.
func (w *world) gatherEnds() {
	p := w.path()
	lend := func(frame []byte) bool { return p.lend(frame, 9) }
	p.fill(5000, lend)
	p.close()
	if p.lent != 0 {
		w.Fatalf("%d payloads are not free when Close returns", p.lent)
	}
	a, b := p.from, p.to
	if a == b {
		return
	}
	c := w.open(b.rank, progress.Options{})
	p = a.greet(c)
	p.fill(5000, lend)
	w.Check(c.close())
	a.loses(c.peer.Life, func() { lend(pattern(1, min(400, p.limit()))) })
}

// places are where the payloads of a path are placed: between guards.
type places struct {
	*path
	asked   int
	header  []byte // of the payload that is under way
	guarded []byte // nil: there is none
}

// guard is what lies on each side of a place.
var guard = bytes.Repeat([]byte{0xee}, 64)

// Place implements btl.Placer.
func (p *inbound) Place(header []byte, size int) []byte {
	n := p.n
	if len(header) == 0 || len(header) > btl.GatherHeader || size < 1 || len(header)+size > n.module.Caps().FrameLimit {
		n.w.Errorf("rank %d: a place was asked for with a header of %d bytes and a payload of %d", n.rank, len(header), size)
	}
	if n.place == nil {
		return nil
	}
	return n.place(header, size)
}

// Placed implements btl.Placer.
func (p *inbound) Placed(header []byte, size int) error {
	defer p.n.notify()
	return p.n.placed(header, size)
}

// places has payloads placed where place says, which may ask at.
func (p *path) places(place func(at *places, header []byte, size int) []byte) *places {
	at := &places{path: p}
	p.to.place = func(header []byte, size int) []byte {
		at.asked++
		return place(at, header, size)
	}
	p.to.placed = at.placed
	return at
}

// at returns the place of a payload, the same until it is there.
func (s *places) at(header []byte, size int) []byte {
	if s.guarded == nil || !bytes.Equal(header, s.header) {
		s.header, s.guarded = bytes.Clone(header), bytes.Join([][]byte{guard, guard}, make([]byte, size))
	}
	return s.guarded[len(guard) : len(guard)+size : len(guard)+size]
}

// placed takes a payload that is in its place as a frame that has come.
func (s *places) placed(header []byte, size int) error {
	g, end := s.guarded, len(guard)+size
	if len(g) != end+len(guard) || !bytes.Equal(header, s.header) {
		return fmt.Errorf("a payload of %d bytes is reported to be where no place was asked for", size)
	}
	if !bytes.Equal(g[:len(guard)], guard) || !bytes.Equal(g[end:], guard) {
		return errors.New("something was written beside the place")
	}
	s.to.got = append(s.to.got, received{s.from.peer.Life, append(bytes.Clone(header), g[len(guard):end]...)})
	s.guarded = nil
	return nil
}

// over ends a case in which all that was lent comes back.
func (s *places) over() {
	if s.asked == 0 {
		s.w.Skipf("it hands up payloads as frames only")
	}
	s.returned()
}

// place has some payloads placed and others handed up.
func (w *world) place() {
	p := w.path()
	s := p.places(func(s *places, header []byte, size int) []byte {
		if header[0]%4 == 1 { // nobody knows where it belongs
			return nil
		}
		return s.at(header, size)
	})
	for round := range 200 {
		header := 8 + round%(btl.GatherHeader-7)
		frame := pattern(round, header+1+round*7919%(p.limit()-header))
		frame[0], frame[1] = byte(round), byte(round>>8) // one header is not like the next
		p.from.until("room", func() bool { return p.lend(frame, header) })
		p.arrive(frame)
	}
	s.over()
}

// placeEnds has receives end while their payload comes, wherever that takes more than
// one Poll.
func (w *world) placeEnds() {
	p := w.path()
	var ended []byte // what the place held when the receive ended
	s := p.places(func(s *places, header []byte, size int) []byte {
		if s.guarded == nil {
			return s.at(header, size)
		}
		if ended == nil {
			ended = bytes.Clone(s.guarded)
		}
		return nil
	})
	halves := 0
	for round := range 50 {
		frame, next := pattern(round, p.limit()), pattern(round+1, 30)
		frame[0] = byte(round)
		p.from.until("room", func() bool { return p.lend(frame, 8) })
		p.from.until("room for the next frame", func() bool { return p.lend(next, 20) })
		p.to.until("the payload, or the end of its receive", func() bool { return len(p.to.got) > 0 || ended != nil })
		if ended == nil {
			p.arrive(frame, next)
			continue
		}
		p.arrive(next)
		w.Same("the place of a receive that had ended", s.guarded, ended)
		s.guarded, ended = nil, nil
		halves++
	}
	if s.over(); halves == 0 {
		w.Skipf("a payload is complete in one Poll")
	}
}
