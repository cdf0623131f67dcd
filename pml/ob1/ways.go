package ob1

import (
	"time"

	"github.com/ferrympi/ferry/pml/ob1/choose"
)

// By which way a large message comes, where the path's module knows more than one. The
// receiver decides, as it knows both ends once the message has matched, and learns how long
// each took: from the match, or from the end of the message before, to the end. Messages of
// one process take turns, so that a time is that of one way. The sender adds what it took to
// pack the part that came with the RTS, and is told whether to send such a part with the
// next message of that kind.

// incoming are the large messages from one process.
type incoming struct {
	learnt   *learntKinds // nil until the first message with a choice
	turns    requestList  // matched receives whose turn is to come
	n        int          // under way
	bytes    int64        // of these
	way      choose.Way   // of these
	windowed uint8        // depth of that which began last, but for those that were alone
	wide     int64        // bytes that have come by choose.Wide, until they have been round
	unmet    uint8        // messages that have met none of this process's, since the last one that has
	met      bool         // one of the last window has
	last     choose.Way   // of the message that ended last
	end      time.Duration
	inTurn   bool // nextTurns is going through them
	held     passed
}

// longestLap is as much of that memory as is not measured, at most.
const longestLap = 4 << 20

// ahead is how many bytes of messages that come as frames are accepted before the first of
// them is complete: a sender always has something to send then.
const ahead = 1 << 20

// mostUnmet is how many messages in a row are taken for a part of a window both ways that meet none of
// this process's.
const mostUnmet = 64

// now is the time, from when the module was opened.
func (m *Module) now() time.Duration { return time.Since(m.opened) }

// takesTurn reports whether a matched message is one for which there is a choice, and if so
// lets it wait for its turn. Lock held.
func (r *request) takesTurn(in *offer) bool {
	p := r.p.proc
	if p.inBy == nil || p.inBy.copier == nil || !in.whole || r.limit-int64(len(in.part)) < smallestPiece || p.connect() != nil {
		return false
	}
	r.state, r.remote, r.far, r.spoilt = matched, in.remote, in.handle, false
	r.part, r.moved, r.possible = in.part, int64(len(in.part)), 0
	r.base, r.depth = r.moved, in.depth
	r.follows = p.incoming.n > 0 || p.incoming.turns.head != nil
	if !p.offering() && !r.follows { // a window begins; it is taken for one both ways if the last one was
		if !p.incoming.met {
			p.incoming.windowed = window
		}
		p.incoming.met = false
	}
	switch {
	case !p.offering() && p.incoming.windowed == bothWays && p.incoming.unmet < mostUnmet:
		// The beginning or the rest of a window both ways: this process's messages are yet to go, or have
		// all gone.
		p.incoming.unmet++
		if r.depth == window {
			r.depth = bothWays
		}
	case !p.offering(): // it meets nothing, and stays what its sender says
	case r.depth == alone:
		r.depth, r.passes = passing, p.offered
	default:
		p.incoming.unmet, p.incoming.met = 0, true
		// What this process packs is not the work of any message that comes, and still
		// what the way costs: it is in the time between two of them.
		r.depth = bothWays
		r.follows = r.follows || !in.late && p.incoming.end > 0
	}
	r.start, r.stored = 0, 0
	if !in.late {
		r.start = -in.took
		if p.since > 0 && p.offering() && !r.follows {
			// It lay here while this process packed a window of its own.
			r.start = max(p.since, p.incoming.end)
		}
	}
	turn := r.turn
	p.incoming.turns.push(r)
	p.nextTurns()
	if r.turn == turn && r.state != complete {
		r.storePart()
	}
	return true
}

// storePart copies what came with the RTS to its place: after the answer, where the sender
// waits for one.
func (r *request) storePart() {
	r.store(r.part, 0)
	r.part = nil
}

// nextTurns begins as many messages as may be under way at a time. Lock held.
func (p *proc) nextTurns() {
	in := &p.incoming
	if in.inTurn {
		return
	}
	in.inTurn = true
	for in.turns.head != nil {
		r := in.turns.head
		if r.possible == 0 {
			if err := p.consider(r); err != nil {
				in.turns.pop()
				turn := r.turn
				p.control(ctsFrame(r.far, 0, 0))
				if r.turn == turn && r.state == matched { // or the answer found no way, and the process has failed
					r.cannotCome(err)
				}
				continue
			}
		}
		l, possible := r.learnt, r.possible
		l.choose(p.m, possible)
		r.way = l.ahead[0]
		if in.n > 0 && (r.way != in.way || !in.room(r)) {
			break
		}
		in.turns.pop()
		in.n++
		in.bytes += r.limit
		in.way = r.way
		if r.depth != alone && r.depth != passing {
			in.windowed = r.depth
		}
		r.counted, r.later = true, l.ahead[1]
		l.ahead[0], l.chosen = l.ahead[1], 1
		r.begin()
		l.choose(p.m, possible) // now: its sender need not wait for it
	}
	in.inTurn = false
}

// room reports whether one more message may begin.
func (in *incoming) room(r *request) bool {
	switch in.way {
	case choose.Frames, choose.Wide, choose.Streamed:
		return in.bytes < ahead || in.n < 2
	case choose.Read:
		return false
	default:
		return in.n < 2
	}
}

// begin begins a message whose turn it is. Lock held.
func (r *request) begin() {
	proc := r.p.proc
	if !choose.Framed.Has(r.way) {
		r.begins()
		if r.follows && len(r.part) > 0 {
			r.stored = -r.m.now()
		}
		r.storePart()
		if r.stored < 0 {
			r.stored += r.m.now()
		}
	}
	switch r.way {
	case choose.Read:
		r.state, r.reader = reading, proc.inBy.reader
		r.m.reading = append(r.m.reading, r)
		r.m.readSome()
		return
	case choose.Write, choose.Both:
		share := proc.inBy.copier.Share(proc.Life, r.buf.Bytes[r.moved:r.limit])
		if share == nil {
			break
		}
		r.state, r.reader, r.share, r.base, r.piece = reading, proc.inBy.reader, share, r.moved, 0
		proc.control(shareFrame(r.far, r.limit, r.moved, share.Remote()))
		if r.state == reading {
			r.m.reading = append(r.m.reading, r)
			r.m.readSome()
		}
		return
	}
	if !choose.Framed.Has(r.way) {
		r.way = choose.Frames
	}
	if r.accepts() {
		r.begins()
	}
}

// begins notes when. What a message costs that follows another one began with the end of that.
func (r *request) begins() {
	if !r.follows && r.start <= 0 {
		r.start += r.m.now()
	}
}

// accepts says that the message may come as frames, and reports whether it can.
func (r *request) accepts() bool {
	proc, turn := r.p.proc, r.turn
	r.state = copying
	cts := ctsFrame(r.far, r.handle(), r.limit)
	r.advise(&cts)
	proc.control(cts)
	if proc.Err != nil { // it died after the RTS, and the request may be in use again
		if r.turn == turn && r.state == copying {
			r.fail(r.c.Explain(proc.Err, r.p.rank))
		}
		return false
	}
	return true
}

// turnOver ends a message's turn, whatever became of it. Lock held.
func (r *request) turnOver() {
	if !r.counted {
		return
	}
	r.counted = false
	p := r.p.proc
	in := &p.incoming
	if in.n == 0 { // all has ended
		return
	}
	in.n--
	in.bytes -= r.limit
	now := r.m.now()
	from, bytes, clean := r.start, r.limit, true
	if r.follows {
		from, clean = in.end, in.last == r.way
		if !choose.Framed.Has(r.way) {
			bytes -= r.base // that came while the message before was under way
			from += r.stored
		}
	}
	in.end, in.last = now, r.way
	if r.way == choose.Wide && in.firstLap(bytes, min(p.inBy.Ring, longestLap)) {
		r.spoilt = true
	}
	if r.Status.Err == nil && !r.spoilt && r.learnt != nil {
		if (r.depth == alone || r.depth == passing) && in.n > 0 { // it was the first of a window
			r.learnt = p.learntOf(kind{r.learnt.kind.memory, in.windowed, r.learnt.kind.class}, r.possible.Has(choose.Read))
		}
		one := passed{r.learnt, r.passes, r.way, bytes, from, now, clean}
		if r.learnt.kind.depth == passing && p.isSending(r.passes) {
			in.held = one
		} else {
			one.took(now - from)
		}
	}
}

// firstLap takes in bytes that have come by choose.Wide, and reports whether that was through memory that no core knew
// yet: each page costs much when it is used first, and what such a message took says nothing of the next ones.
func (in *incoming) firstLap(bytes int64, ring int) bool {
	if in.wide >= int64(ring) {
		return false
	}
	in.wide += bytes
	return true
}

// received completes a receive that may have had a turn. Lock held.
func (r *request) received() {
	p := r.p.proc
	r.turnOver()
	r.finish()
	if p.incoming.turns.head != nil {
		p.nextTurns()
	}
}
