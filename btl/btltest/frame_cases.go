package btltest

import (
	"bytes"
	"encoding/binary"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

func frameCases() claims {
	return claims{
		kittest.New("CapsArePlausibleAndFixed", 2, (*world).capsArePlausible),
		kittest.New("FramesOfEverySizeArriveWholeAndInOrder", 2, (*world).everySize),
		kittest.New("BothDirectionsAtOnceDoNotBlockEachOther", 2, (*world).bothDirections),
		kittest.New("FullPathBlocksInsteadOfGrowing", 2, (*world).fullPathBlocks),
		kittest.New("OnlyCommittedBytesAreSent", 2, (*world).reservations),
		kittest.New("EachPlacementCarriesFrames", 2, (*world).eachPlacement),
		kittest.New("ShortSendIsAtomic", 2, (*world).shortSend),
		kittest.New("NothingIsDeliveredBeforeCommit", 2, (*world).nothingBeforeCommit),
		kittest.New("PeerSourceDeliversFrames", 2, (*world).peerSource),
		kittest.New("PeekedFrameStaysFirst", 2, (*world).peekFrames),
	}
}

func (w *world) capsArePlausible() {
	claim := func(ok bool, format string, args ...any) {
		if !ok {
			w.Errorf(format, args...)
		}
	}
	m := w.nodes[0].module
	c, blob := m.Caps(), bytes.Clone(m.Blob())
	claim(c.LatencyNS > 0 && c.LatencyNS < 1e9, "LatencyNS %v", c.LatencyNS)
	claim(c.Device != "", "Device is empty, which ferry explain prints")
	claim(m.Blob() != nil, "Blob is nil: no peer can connect")
	info := w.subject.Component.Info()
	claim(info.Kind == framework.BTL && info.Name != "" && info.Version != "" && info.Summary != "", "Info is %+v", info)
	w.path().carry(pattern(1, c.FrameLimit))
	claim(m.Caps() == c, "Caps changed from %+v to %+v", c, m.Caps())
	claim(bytes.Equal(m.Blob(), blob), "Blob changed after it was published in the business card")
}

// sizes returns all small sizes, those around each limit, and many between.
func sizes(c btl.Caps) (s []int) {
	upTo := func(from, to, step int) {
		for n := max(1, from); n <= min(to, c.FrameLimit); n += step {
			s = append(s, n)
		}
	}
	upTo(1, 1100, 1)
	upTo(1101, c.FrameLimit, 509) // A prime step covers every remainder of every alignment.
	upTo(c.EagerLimit-70, c.EagerLimit+70, 1)
	upTo(c.FrameLimit-70, c.FrameLimit, 1)
	return s
}

func (w *world) everySize() {
	p := w.path()
	const batch = 16
	all := sizes(p.from.module.Caps())
	for k := 0; k < len(all); k += batch {
		var frames [][]byte
		for i, n := range all[k:min(k+batch, len(all))] {
			frames = append(frames, pattern(k+i, n))
		}
		p.carry(frames...)
	}
}

// bothDirections fills the paths of both sides before any receiver polls.
func (w *world) bothDirections() {
	a, b := w.twoProcesses()
	paths := []*path{a.connect(b), b.connect(a)}
	var frames [][]byte
	for k := range 1000 {
		frames = append(frames, pattern(k, 1+k*37%min(2000, paths[0].frameLimit())))
		for _, p := range paths {
			p.send(frames[k])
		}
	}
	for _, p := range paths {
		p.awaitFrames(frames...)
	}
}

func (w *world) fullPathBlocks() {
	p := w.path()
	last := pattern(1, p.frameLimit())
	for range 3 {
		frames := p.fillPath(5000, p.trySend)
		p.send(last)
		p.awaitFrames(append(frames, last)...)
	}
}

// reservations are larger than their commits, or replaced by another one.
func (w *world) reservations() {
	p := w.path()
	var frames [][]byte
	for k := range 400 {
		size := 1 + k*97%p.frameLimit()
		frames = append(frames, pattern(k, 1+k*31%size))
		p.from.until("room", func() bool {
			if k%2 == 0 {
				fillOnes(p.Reserve(min(1+k*29%900, p.frameLimit()), btl.RingStart))
			}
			b := p.Reserve(size, btl.RingStart)
			if b != nil {
				fillOnes(b)
				p.Commit(copy(b, frames[k]))
			}
			return b != nil
		})
	}
	p.awaitFrames(frames...)
}

// fillOnes fills a reservation with bytes that look like the first lap of a ring or a set flag.
func fillOnes(b []byte) {
	for i := range b {
		b[i] = 1
	}
}

// eachPlacement alternates the placements of Reserve, up to a full path and across the end of its memory.
func (w *world) eachPlacement() {
	p := w.path()
	if ring := p.from.module.Caps().Ring; ring != 0 && ring < p.frameLimit() {
		w.Errorf("Caps.Ring is %d, less than a frame of %d bytes", ring, p.frameLimit())
	}
	for round := range 20 {
		p.awaitFrames(p.burst(200, func(k int) ([]byte, bool) {
			size := 1 + (round*911+k*5003)%p.frameLimit()
			frame := pattern(round+k, 1+(round+k*31)%size)
			if k%5 == 4 { // Two unused reservations.
				fillOnes(p.Reserve(1+k*29%p.frameLimit(), btl.RingStart))
				fillOnes(p.Reserve(1+k*97%p.frameLimit(), btl.FullRing))
			}
			placement := btl.RingStart
			if k%3 != 0 {
				placement = btl.FullRing
			}
			b := p.Reserve(size, placement)
			if b == nil {
				return frame, false
			}
			if len(b) != size {
				w.Errorf("a reservation of %d bytes has %d", size, len(b))
			}
			fillOnes(b)
			p.Commit(copy(b, frame))
			return frame, true
		})...)
	}
}

// shortSend alternates SendShort with Reserve and Commit, up to a full path and across the end of a
// ring. Frames arrive complete and in order, and a SendShort that returns false sends nothing.
func (w *world) shortSend() {
	p := w.path()
	sender, limit := btl.Short(p), p.frameLimit()
	short := func(frame []byte) bool {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(frame[8*i:]) }
		payload := bytes.Clone(frame[btl.ShortHeaderSize:])
		defer clear(payload) // The caller owns it again.
		return sender.SendShort(btl.ShortHeader{First: word(0), Second: word(1), Third: word(2)}, payload)
	}
	for round := range 60 {
		p.awaitFrames(p.burst(300, func(k int) ([]byte, bool) {
			frame := pattern(round+k, btl.ShortHeaderSize+(round*k*37)%(limit-btl.ShortHeaderSize+1))
			if k%5 == 4 { // An unused reservation.
				p.Reserve(1+k%limit, btl.RingStart)
			}
			if k%3 == 0 {
				return frame, p.trySend(frame)
			}
			return frame, short(frame)
		})...)
		p.to.poll()
		p.to.takeFrames(p.from, nil) // No refused frame was sent.
	}
}

func (w *world) nothingBeforeCommit() {
	p := w.path()
	frame := pattern(1, min(300, p.frameLimit()))
	for range 100 {
		p.from.until("room", func() bool {
			b := p.Reserve(len(frame), btl.RingStart)
			copy(b, frame)
			return b != nil
		})
		for range 10 {
			w.pollAll()
		}
		p.to.takeFrames(p.from, nil)
		// Poll has run in between without any other use of the endpoint.
		p.from.locked(func() { p.Commit(len(frame)) })
		p.awaitFrames(frame)
	}
}

// peerSource returns the receiver's source that polls only this path.
func (p *path) peerSource(peer framework.Incarnation) (source progress.Source) {
	poller := ability[btl.PeerPoller](p.world, p.to.module)
	p.to.locked(func() { source = poller.PeerSource(peer) })
	return source
}

func (w *world) peerSource() {
	p := w.path()
	if p.peerSource(framework.Incarnation{ID: framework.MakeProcID(0, 77), Nonce: 1}) != nil {
		w.Fatalf("PeerSource of an unconnected process is not nil")
	}
	source := p.peerSource(p.from.peer.Incarnation)
	if source == nil {
		w.Fatalf("PeerSource is nil after a frame of that peer")
	}
	for round := range 50 {
		var frames [][]byte
		for k := range 5 {
			frames = append(frames, pattern(k, 1+round*k))
		}
		p.send(frames...)
		p.to.until("a poll of the peer's source", func() bool {
			source.Poll()
			return len(p.to.receivedFrames) == len(frames)
		}, p.to)
		p.to.takeFrames(p.from, frames)
	}
}

// peekFrames receives frames alternately by Drop and by Poll. Their sizes wrap around the end of a ring
// several times. Each one arrives once and in order. Data that only a Poll can process may precede
// a frame. Poll then also delivers the frame if it is there, but not each time.
func (w *world) peekFrames() {
	const rounds, patient = 400, 64
	p := w.path()
	peeker := ability[btl.Peeker](w, p.peerSource(p.from.peer.Incarnation))
	none := func(what string) {
		p.to.locked(func() {
			if b := peeker.Peek(3); b != nil {
				w.Fatalf("Peek returned %d bytes %s", len(b), what)
			}
		})
	}
	none("before a send")
	handed := 0
	for round := range rounds {
		frame := pattern(round, 1+round*97%p.frameLimit())
		p.send(frame)
		peeked, vain := false, 0
		p.to.until("a peek", func() bool {
			got := bytes.Clone(peeker.Peek(2))
			if peeked = got != nil; peeked {
				w.Same("a peeked frame", got, frame)
				w.Same("a frame of a second Peek", peeker.Peek(1), frame)
			} else if vain++; vain%patient == 0 {
				p.to.module.Poll()
			}
			return peeked || len(p.to.receivedFrames) > 0
		}, p.to)
		if !peeked {
			handed++
		}
		if peeked && round%2 == 0 {
			p.to.locked(peeker.Drop)
		} else {
			p.awaitFrames(frame)
		}
		none("of a received frame")
		p.to.takeFrames(p.from, nil)
	}
	if handed > rounds/2 {
		w.Errorf("%d of %d frames were delivered by Poll without a Peek", handed, rounds)
	}
}
