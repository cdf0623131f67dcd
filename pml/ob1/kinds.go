package ob1

import (
	"fmt"
	"math/bits"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml/ob1/choose"
)

// What is learnt, and of which messages: those that are alike are of one kind.

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

// learntKinds has an entry for each kind of message that has come.
type learntKinds [btl.Memories][depths][classes]*learnt

// kinds returns in.learnt, and allocates it at the first use.
func (in *incoming) kinds() *learntKinds {
	if in.learnt == nil {
		in.learnt = new(learntKinds)
	}
	return in.learnt
}

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
	at := &p.incoming.kinds()[k.memory][k.depth][k.class]
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
	if k.memory == btl.Allocated || p.m.engine.IsOversubscribed() {
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
		if k.depth == window {
			l.Doubt(choose.Of(choose.Frames))
		}
	}
	like := &p.incoming.kinds()[k.memory][k.depth]
	switch {
	case k.class > 0 && like[k.class-1] != nil:
		l.Expect(&like[k.class-1].Chooser)
	case k.class < classes-1 && like[k.class+1] != nil:
		l.Expect(&like[k.class+1].Chooser)
	}
	return l
}
