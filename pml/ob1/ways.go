package ob1

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/pml/ob1/choose"
)

// By which way a large message comes, where the path's module knows more than one. The
// receiver decides, as it knows both ends once the message has matched, and learns how long
// each took: from the match, or from the end of the message before, to the end. Messages of
// one process take turns, so that a time is that of one way. The sender adds what it took to
// pack the part that came with the RTS, and is told whether to send such a part with the
// next message of that kind.

// kind is what a message has in common with those from which its way is learnt.
type kind struct {
	memory btl.Memory
	depth  uint8 // alone or in a window, and whether others pass it
	class  uint8 // powers of two
}

const (
	alone = iota
	window
	depthsSent // what an RTS says

	passing  = depthsSent  // alone, while this process sends one, too
	bothWays = passing + 1 // a window, while this process sends one, too
	depths   = bothWays + 1

	// Smaller messages are not worth a choice; most of them are eager.
	leastClass = 14 // 2^14 < size
	classes    = 14
)

// classOf is the class of messages of that size.
func classOf(size int64) uint8 {
	return uint8(min(max(bits.Len64(uint64(size-1))-1-leastClass, 0), classes-1))
}

// learnt is what is known of one kind of message.
type learnt struct {
	choose.Grouped
	kind kind
	// Ways of the next messages: of the next one, and of the one behind it, about which the
	// answer to the next one says whether a part of it had better come at once.
	ahead  [2]choose.Way
	chosen int // of these
}

// incoming are the large messages from one process.
type incoming struct {
	learnt   [btl.Memories][depths][classes]*learnt
	turns    requestList // matched receives whose turn is to come
	n        int         // under way
	bytes    int64       // of these
	way      choose.Way  // of these
	windowed uint8       // depth of that which began last, but for those that were alone
	wide     int64       // bytes that have come by choose.Wide, until they have been round
	unmet    uint8       // messages that have met none of this process's, since the last one that has
	met      bool        // one of the last window has
	last     choose.Way  // of the message that ended last
	end      time.Duration
	inTurn   bool // nextTurns is going through them
	held     passed
}

// ahead is how many bytes of messages that come as frames are accepted before the first of
// them is complete: a sender always has something to send then.
const ahead = 1 << 20

// mostUnmet is how many messages in a row are taken for a part of a window both ways that meet none of
// this process's.
const mostUnmet = 64

// leastGroup is how many messages of windows that pass each other are measured together, at least.
// Each process packs a few, and unpacks a few: what one of them took says little.
const leastGroup = 8

// framed are the ways of coming in frames that differ here.
var framed = func() choose.Set {
	if cpu.Streams {
		return choose.Framed
	}
	return choose.Framed &^ choose.Of(choose.Streamed)
}()

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

// choose chooses the ways of the next messages, and those again that are not possible now.
func (l *learnt) choose(m *Module, possible choose.Set) {
	for i, w := range l.ahead {
		if i < l.chosen && possible.Has(w) {
			continue
		}
		w, _ = l.Next(possible)
		if m.way == randomWay {
			w = m.randomWay(possible)
		}
		l.ahead[i] = w
	}
	l.chosen = len(l.ahead)
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

// consider finds by which ways a message can come, and what is known of such messages. An
// error ends the message.
func (p *proc) consider(r *request) error {
	t := p.inBy
	forced := t.copier.Forced(r.remote, r.limit)
	var possible choose.Set
	if r.buf.Layout() == nil {
		if err := t.reader.CanRead(p.Life, r.remote, r.limit); err == nil {
			possible |= choose.Of(choose.Read)
		} else if forced != nil {
			return fmt.Errorf("%w; %w", err, forced)
		}
		if p.writes {
			possible |= choose.Of(choose.Write)
			if possible.Has(choose.Read) {
				possible |= choose.Of(choose.Both)
			}
		}
	}
	if possible == 0 || forced == nil {
		possible |= framed
	}
	k, reads := kind{t.copier.KindOf(r.remote), r.depth, classOf(r.limit)}, possible.Has(choose.Read)
	allowed := p.m.ways
	if r.depth >= depthsSent && allowed == choose.All && p.m.way != randomWay {
		// Both processors are at work: what one does for the other it does not do for itself, and
		// each would choose the other's help.
		allowed = choose.Framed | choose.Of(choose.Read)
		if k.memory == btl.Allocated && possible.Has(choose.Read) {
			// Frames are two copies. Each receiver would choose them, as its own is the shorter one.
			allowed = choose.Of(choose.Read)
		} else if w, ok := p.leads(k); ok && possible.Has(w) {
			allowed = choose.Of(w)
		}
	}
	if only := possible & allowed; only != 0 {
		possible = only
	}
	r.learnt, r.possible = p.learntOf(k, reads), possible
	return nil
}

// learntOf returns what is known of one kind of message; reads says whether those can be read.
func (p *proc) learntOf(k kind, reads bool) *learnt {
	at := &p.incoming.learnt[k.memory][k.depth][k.class]
	if *at == nil {
		*at = p.learnKind(k, reads)
	}
	return *at
}

// learnKind makes what will be learnt of one kind of message.
func (p *proc) learnKind(k kind, reads bool) *learnt {
	burst, guess := 1, choose.Wide
	if k.depth == window {
		burst = 3
	}
	if k.memory == btl.Allocated || p.m.crowded {
		guess = choose.Read
	}
	seed := uint64(p.Life.ID)<<16 | uint64(k.memory)<<12 | uint64(k.depth)<<8 | uint64(k.class)
	l := &learnt{kind: k}
	if k.depth == bothWays { // a change of the way shows behind those that are accepted ahead
		l.Grouped = choose.NewGrouped(seed, max(ahead>>(k.class+1+leastClass), leastGroup), guess)
		if reads {
			l.Doubt(choose.Of(choose.Frames, choose.Streamed))
		}
	} else {
		l.Chooser = choose.New(seed, burst, guess)
	}
	like := &p.incoming.learnt[k.memory][k.depth]
	switch {
	case k.class > 0 && like[k.class-1] != nil:
		l.Expect(&like[k.class-1].Chooser)
	case k.class < classes-1 && like[k.class+1] != nil:
		l.Expect(&like[k.class+1].Chooser)
	}
	return l
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
			r.fail(base.Explain(proc.Err, r.p.rank))
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
	if r.way == choose.Wide && in.firstLap(bytes, p.m.ring) {
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
