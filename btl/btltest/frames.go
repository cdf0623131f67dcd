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
		kittest.New("OnlyWhatIsCommittedIsSent", 2, (*world).reservations),
		kittest.New("WideReservationIsOneAsAnyOther", 2, (*world).wide),
		kittest.New("ShortSendIsTheWholeFrameOrNothing", 2, (*world).shortSend),
		kittest.New("NothingIsDeliveredBeforeCommit", 2, (*world).nothingBeforeCommit),
		kittest.New("PeerSourceDeliversWhatPollWould", 2, (*world).peerSource),
		kittest.New("PeekedFrameStaysTheNextUntilItIsTaken", 2, (*world).peek),
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
	claim(c.Device != "", "Device is empty: explain has nothing to show")
	claim(m.Blob() != nil, "Blob is nil: no peer can connect")
	info := w.subject.Component.Info()
	claim(info.Kind == framework.BTL && info.Name != "" && info.Version != "" && info.Summary != "", "Info is %+v", info)
	w.path().carry(pattern(1, c.FrameLimit))
	claim(m.Caps() == c, "Caps changed from %+v to %+v", c, m.Caps())
	claim(bytes.Equal(m.Blob(), blob), "Blob changed: it stands in the business card already")
}

// sizes are all small ones, all about a limit, and many between.
func sizes(c btl.Caps) (s []int) {
	upTo := func(from, to, step int) {
		for n := max(1, from); n <= min(to, c.FrameLimit); n += step {
			s = append(s, n)
		}
	}
	upTo(1, 1100, 1)
	upTo(1101, c.FrameLimit, 509) // a prime: every remainder of every alignment
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

// bothDirections has both fill their path before anybody reads.
func (w *world) bothDirections() {
	a, b := w.apart()
	paths := []*path{a.connect(b), b.connect(a)}
	var frames [][]byte
	for k := range 1000 {
		frames = append(frames, pattern(k, 1+k*37%min(2000, paths[0].limit())))
		for _, p := range paths {
			p.send(frames[k])
		}
	}
	for _, p := range paths {
		p.arrive(frames...)
	}
}

func (w *world) fullPathBlocks() {
	p := w.path()
	last := pattern(1, p.limit())
	for range 3 {
		frames := p.fill(5000, p.put)
		p.send(last)
		p.arrive(append(frames, last)...)
	}
}

// reservations are larger than what is committed of them, or dropped by another one.
func (w *world) reservations() {
	p := w.path()
	var frames [][]byte
	for k := range 400 {
		size := 1 + k*97%p.limit()
		frames = append(frames, pattern(k, 1+k*31%size))
		p.from.until("room", func() bool {
			if k%2 == 0 {
				ones(p.Reserve(min(1+k*29%900, p.limit())))
			}
			b := p.Reserve(size)
			if b != nil {
				ones(b)
				p.Commit(copy(b, frames[k]))
			}
			return b != nil
		})
	}
	p.arrive(frames...)
}

// ones fills what was reserved: it looks like a first lap, or a true flag.
func ones(b []byte) {
	for i := range b {
		b[i] = 1
	}
}

// wide mixes ReserveWide with Reserve, up to a full path and over the end of its memory.
func (w *world) wide() {
	p := w.path()
	wide := ability[btl.WideReserver](w, p).ReserveWide
	if ring := p.from.module.Caps().Ring; ring < p.limit() {
		w.Errorf("there is wide memory, and Caps say %d bytes of it, less than a frame of %d", ring, p.limit())
	}
	for round := range 20 {
		p.arrive(p.burst(200, func(k int) ([]byte, bool) {
			size := 1 + (round*911+k*5003)%p.limit()
			frame := pattern(round+k, 1+(round+k*31)%size)
			if k%5 == 4 { // two that are not used
				ones(p.Reserve(1 + k*29%p.limit()))
				ones(wide(1 + k*97%p.limit()))
			}
			reserve := p.Reserve
			if k%3 != 0 {
				reserve = wide
			}
			b := reserve(size)
			if b == nil {
				return frame, false
			}
			if len(b) != size {
				w.Errorf("a reservation of %d bytes has %d", size, len(b))
			}
			ones(b)
			p.Commit(copy(b, frame))
			return frame, true
		})...)
	}
}

// shortSend mixes SendShort with Reserve and Commit, up to a full path and over the end of
// a ring: frames arrive whole, in one order, and a SendShort that reports false has sent
// nothing.
func (w *world) shortSend() {
	p := w.path()
	sender, limit := btl.Short(p), p.limit()
	short := func(frame []byte) bool {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(frame[8*i:]) }
		payload := bytes.Clone(frame[btl.ShortHeaderSize:])
		defer clear(payload) // the caller's again
		return sender.SendShort(btl.ShortHeader{First: word(0), Second: word(1), Third: word(2)}, payload)
	}
	for round := range 60 {
		p.arrive(p.burst(300, func(k int) ([]byte, bool) {
			frame := pattern(round+k, btl.ShortHeaderSize+(round*k*37)%(limit-btl.ShortHeaderSize+1))
			if k%5 == 4 { // a reservation that is not used
				p.Reserve(1 + k%limit)
			}
			if k%3 == 0 {
				return frame, p.put(frame)
			}
			return frame, short(frame)
		})...)
		p.to.poll()
		p.to.take(p.from, nil) // nor has what was refused been sent
	}
}

func (w *world) nothingBeforeCommit() {
	p := w.path()
	frame := pattern(1, min(300, p.limit()))
	for range 100 {
		p.from.until("room", func() bool {
			b := p.Reserve(len(frame))
			copy(b, frame)
			return b != nil
		})
		for range 10 {
			w.pollAll()
		}
		p.to.take(p.from, nil)
		// Poll has run in between, but nothing else was done with the endpoint.
		p.from.do(func() { p.Commit(len(frame)) })
		p.arrive(frame)
	}
}

// source is the one of a path's receiver that polls only this path.
func (p *path) source(peer framework.Life) (source progress.Source) {
	poller := ability[btl.PeerPoller](p.w, p.to.module)
	p.to.do(func() { source = poller.PeerSource(peer) })
	return source
}

func (w *world) peerSource() {
	p := w.path()
	if p.source(framework.Life{ID: framework.MakeProcID(0, 77), Nonce: 1}) != nil {
		w.Fatalf("PeerSource of a process that never connected is not nil")
	}
	source := p.source(p.from.peer.Life)
	if source == nil {
		w.Fatalf("PeerSource is nil although a frame has come that way")
	}
	for round := range 50 {
		var frames [][]byte
		for k := range 5 {
			frames = append(frames, pattern(k, 1+round*k))
		}
		p.send(frames...)
		p.to.until("a poll of the peer's source", func() bool {
			source.Poll()
			return len(p.to.got) == len(frames)
		}, p.to)
		p.to.take(p.from, frames)
	}
}

// peek takes frames in turn by Drop and by Poll, of sizes that go round the end of
// a ring several times: each comes once, in its place. Before a frame may lie what only a Poll
// can take. It hands up the frame as well then, if that is there, but not each time.
func (w *world) peek() {
	const rounds, patient = 400, 64
	p := w.path()
	peeker := ability[btl.Peeker](w, p.source(p.from.peer.Life))
	none := func(what string) {
		p.to.do(func() {
			if b := peeker.Peek(3); b != nil {
				w.Fatalf("a peek returns %d bytes %s", len(b), what)
			}
		})
	}
	none("that nobody has sent")
	handed := 0
	for round := range rounds {
		frame := pattern(round, 1+round*97%p.limit())
		p.send(frame)
		peeked, vain := false, 0
		p.to.until("a peek", func() bool {
			got := bytes.Clone(peeker.Peek(2))
			if peeked = got != nil; peeked {
				w.Same("a peeked frame", got, frame)
				w.Same("a frame that is peeked again", peeker.Peek(1), frame)
			} else if vain++; vain%patient == 0 {
				p.to.module.Poll()
			}
			return peeked || len(p.to.got) > 0
		}, p.to)
		if !peeked {
			handed++
		}
		if peeked && round%2 == 0 {
			p.to.do(peeker.Drop)
		} else {
			p.arrive(frame)
		}
		none("of a frame that was taken")
		p.to.take(p.from, nil)
	}
	if handed > rounds/2 {
		w.Errorf("%d of %d frames were never seen by a peek, and handed up by a poll", handed, rounds)
	}
}
