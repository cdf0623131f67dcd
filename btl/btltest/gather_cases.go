package btltest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

// gatherCases are about btl.Gatherer and the placement of payloads. A module without them skips them.
func gatherCases() claims {
	return claims{
		kittest.New("GatheredPayloadCompletesOnce", 2, (*world).gather),
		kittest.New("ClosedPathReadsNoPayload", 2, (*world).gatherEnds),
		kittest.New("PlacedPayloadIsInTheGivenBuffer", 2, (*world).place),
		kittest.New("EndedReceiveStopsPlacement", 2, (*world).placeEnds),
	}
}

// lentPayload is a payload that a module reads from the sender's buffer.
type lentPayload struct {
	*path
	payload, original []byte
	completionCalls   int
}

// LocallyComplete implements btl.LocalCompletion. It overwrites the payload at once.
func (l *lentPayload) LocallyComplete() {
	if l.completionCalls++; l.completionCalls > 1 {
		l.world.Errorf("rank %d: a payload completed %d times", l.from.rank, l.completionCalls)
		return
	}
	if !bytes.Equal(l.payload, l.original) {
		l.world.Errorf("rank %d: the module modified a payload", l.from.rank)
	}
	l.path.lentCount--
	clear(l.payload)
}

// tryLend sends a frame with a lent payload if the path accepts it now. The sender's lock is held.
func (p *path) tryLend(frame []byte, header int) (sent bool) {
	g := ability[btl.Gatherer](p.world, p)
	head := bytes.Clone(frame[:header])
	defer clear(head) // The caller owns it again.
	l := &lentPayload{path: p, payload: bytes.Clone(frame[header:]), original: frame[header:]}
	p.lentCount++
	if sent = g.Gather(head, l.payload, l); !sent {
		p.lentCount--
	}
	return sent
}

// awaitCompletions waits until all lent payloads are complete.
func (p *path) awaitCompletions() {
	p.from.until("the completion of all payloads", func() bool { return p.lentCount == 0 })
}

// gather alternates Gather with Reserve and Commit, up to a full path.
func (w *world) gather() {
	p := w.path()
	for round := range 40 {
		p.awaitFrames(p.burst(200, func(k int) ([]byte, bool) {
			header := 1 + (round+k)%btl.GatherHeader
			frame := pattern(round+k, header+1+(round*k*911)%(p.frameLimit()-header))
			if k%3 == 2 {
				return frame, p.trySend(frame)
			}
			return frame, p.tryLend(frame, header)
		})...)
		p.awaitCompletions()
		p.from.until("Idle after the frames", p.Idle)
	}
}

// gatherEnds closes a path, or its receiver, while payloads are lent.
func (w *world) gatherEnds() {
	p := w.path()
	lend := func(frame []byte) bool { return p.tryLend(frame, 9) }
	p.fillPath(5000, lend)
	p.close()
	if p.lentCount != 0 {
		w.Fatalf("%d payloads are incomplete after Close", p.lentCount)
	}
	a, b := p.from, p.to
	if a == b {
		return
	}
	c := w.open(b.rank, progress.Options{})
	p = a.greet(c)
	p.fillPath(5000, lend)
	w.Check(c.close())
	a.awaitLoss(c.peer.Incarnation, func() { lend(pattern(1, min(400, p.frameLimit()))) })
}

// placements has the destinations of a path's payloads, with guards around them.
type placements struct {
	*path
	placeCalls   int
	placedHeader []byte
	// Destination with its guards, nil if there is none.
	guardedBuf []byte
}

// guard is the memory on each side of a destination.
var guard = bytes.Repeat([]byte{0xee}, 64)

// Place implements btl.Inbound.
func (p *inbound) Place(header []byte, size int) []byte {
	n := p.node
	if len(header) == 0 || len(header) > btl.GatherHeader || size < 1 || len(header)+size > n.module.Caps().FrameLimit {
		n.world.Errorf("rank %d: Place was called with a header of %d bytes and a payload of %d", n.rank, len(header), size)
	}
	if n.placePayload == nil {
		return nil
	}
	return n.placePayload(header, size)
}

// Placed implements btl.Inbound.
func (p *inbound) Placed(header []byte, size int) error {
	defer p.node.notify()
	return p.node.payloadPlaced(header, size)
}

// placePayloads sets the function that returns the destinations of payloads. It may
// call at.destination.
func (p *path) placePayloads(place func(at *placements, header []byte, size int) []byte) *placements {
	at := &placements{path: p}
	p.to.placePayload = func(header []byte, size int) []byte {
		at.placeCalls++
		return place(at, header, size)
	}
	p.to.payloadPlaced = at.recordPlaced
	return at
}

// destination returns the destination of a payload, which is the same until the payload is complete.
func (s *placements) destination(header []byte, size int) []byte {
	if s.guardedBuf == nil || !bytes.Equal(header, s.placedHeader) {
		s.placedHeader, s.guardedBuf = bytes.Clone(header), bytes.Join([][]byte{guard, guard}, make([]byte, size))
	}
	return s.guardedBuf[len(guard) : len(guard)+size : len(guard)+size]
}

// recordPlaced records a placed payload as a received frame.
func (s *placements) recordPlaced(header []byte, size int) error {
	g, end := s.guardedBuf, len(guard)+size
	if len(g) != end+len(guard) || !bytes.Equal(header, s.placedHeader) {
		return fmt.Errorf("a payload of %d bytes was placed without a destination", size)
	}
	if !bytes.Equal(g[:len(guard)], guard) || !bytes.Equal(g[end:], guard) {
		return errors.New("memory beside the destination was modified")
	}
	s.to.receivedFrames = append(s.to.receivedFrames, receivedFrame{s.from.peer.Incarnation, append(bytes.Clone(header), g[len(guard):end]...)})
	s.guardedBuf = nil
	return nil
}

// finish ends a case. It waits for all lent payloads.
func (s *placements) finish() {
	if s.placeCalls == 0 {
		s.world.Skipf("the module delivers payloads as frames only")
	}
	s.awaitCompletions()
}

// place receives some payloads at a destination and others as frames.
func (w *world) place() {
	p := w.path()
	s := p.placePayloads(func(s *placements, header []byte, size int) []byte {
		if header[0]%4 == 1 { // There is no destination.
			return nil
		}
		return s.destination(header, size)
	})
	for round := range 200 {
		header := 8 + round%(btl.GatherHeader-7)
		frame := pattern(round, header+1+round*7919%(p.frameLimit()-header))
		frame[0], frame[1] = byte(round), byte(round>>8) // Headers differ.
		p.from.until("room", func() bool { return p.tryLend(frame, header) })
		p.awaitFrames(frame)
	}
	s.finish()
}

// placeEnds ends receives in the middle of a placement, if a module needs more than one Poll for
// it.
func (w *world) placeEnds() {
	p := w.path()
	var ended []byte // Contents of the destination at the end of the receive.
	s := p.placePayloads(func(s *placements, header []byte, size int) []byte {
		if s.guardedBuf == nil {
			return s.destination(header, size)
		}
		if ended == nil {
			ended = bytes.Clone(s.guardedBuf)
		}
		return nil
	})
	halves := 0
	for round := range 50 {
		frame, next := pattern(round, p.frameLimit()), pattern(round+1, 30)
		frame[0] = byte(round)
		p.from.until("room", func() bool { return p.tryLend(frame, 8) })
		p.from.until("room for the next frame", func() bool { return p.tryLend(next, 20) })
		p.to.until("the payload or the end of its receive", func() bool { return len(p.to.receivedFrames) > 0 || ended != nil })
		if ended == nil {
			p.awaitFrames(frame, next)
			continue
		}
		p.awaitFrames(next)
		w.Same("the destination of an ended receive", s.guardedBuf, ended)
		s.guardedBuf, ended = nil, nil
		halves++
	}
	if s.finish(); halves == 0 {
		w.Skipf("a payload is complete in one Poll")
	}
}
