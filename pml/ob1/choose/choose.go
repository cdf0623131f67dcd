// Package choose decides by which way a large message travels, from what earlier
// messages of its kind took. It is pure: it measures nothing, knows no clock, and the
// same seed and the same times give the same choices.
//
// A Chooser stands for messages that are alike: from one peer, of one class of size, alone
// or in a window. It learns from messages that are sent anyway. At first each way is taken
// a few times. Then the best one is taken, and another one now and then, within limits
// that hold for any run of messages: TriesPer and TimeShare. Beyond them goes what confirms in use that a way
// is as good as tries have said, and the way that was best before a change of the machine: it is taken once more a while later.
package choose

import (
	"math"
	"math/bits"
)

// Way is how the bytes of a message get from one process to the other.
type Way uint8

// The ways.
const (
	Frames   Way = iota // two copies, through little of the path's memory, which caches hold
	Read                // the receiver copies out of the sender's memory
	Write               // the sender copies into the receiver's memory
	Both                // each of them copies a part, at the same time
	Wide                // frames through all of the path's memory by turns
	Streamed            // frames that the sender stores past its caches
	Ways                // how many there are
)

var names = [Ways]string{"frames", "read", "write", "both", "wide", "streamed"}

func (w Way) String() string { return names[w] }

// Framed are the ways on which a message comes in frames.
const Framed = Set(1<<Frames | 1<<Wide | 1<<Streamed)

// Set is a set of ways.
type Set uint8

// All are all ways.
const All = Set(1<<Ways - 1)

// Of returns a set.
func Of(all ...Way) (s Set) {
	for _, w := range all {
		s |= 1 << w
	}
	return s
}

// Has reports whether w is in the set.
func (s Set) Has(w Way) bool { return s&(1<<w) != 0 }

const (
	// TriesPer is how many messages there are for each one that tries another way than
	// the best, once all were tried.
	TriesPer = 64
	// TimeShare is how much of the time of all messages those may take.
	TimeShare = 0.02

	// saving is what is earned of that: what was saved up before is spent on top.
	saving = 0.95 * TimeShare

	// mostSaved is how many tries may be saved up: a change of the machine is followed
	// at once then, and costs no more than if they had been made before.
	mostSaved = 54
	// reserve is how many of those are for that only: a short and a long try of each way.
	reserve = 50
	// savedTime is how much of the time for tries may be saved up, and reservedTime how
	// much of that is for changes, in messages of the best way.
	savedTime, reservedTime = 40, 28
	// first is how many measurements there are of each good way at first.
	first = 3
	// worse is how much worse than the best a way is that is not looked at again at first.
	worse = 1.5
	// Ways that seem no worse than close times the best at first go over the course, but for windows: courses
	// messages one after the other, of which the last ones count. A message finds other
	// caches behind one that went another way than behind one that went its own.
	close, courses = 1.5, 8
	// warming is how many messages of a long try say nothing, for the same reason. After a
	// change those that seem no worse than close times the best are tried at length.
	warming = 4
	// better is how much better another way must be than the one in use.
	better = 0.97
	// shifted is by which factor the middle of the last messages has moved when the
	// machine has changed.
	shifted = 1.25
	// settles is after how many messages a change is taken to be over, or of groups of them settlesIn.
	// While processes move, two of them may have one processor, and what needs both takes ten times as long.
	settles, settlesIn = 32, 4
	// forgets is the number of messages after which a way's cost is what the latest say.
	forgets = 32
	// soon is the same for noticing that it has become another one.
	soon = 8
	// promising is how much worse than the best a way may seem that is looked at again at once.
	promising = 1.3
	// doubtful bounds what a way is expected to cost after one message.
	doubtful = 3
	// hopeless is how much worse than the best a way was with messages that are much alike
	// that is not tried at first.
	hopeless = 2
	// far is shifted for a way that is seldom taken.
	far = 1.6
	// forgives is after how many tries it is forgotten for the most part that a way was worse in use than tries had said.
	// Each time that this happens again they are twice as many, as long as that is less than mostLies times. worstLie
	// bounds by how much.
	forgives, mostLies, worstLie = 4, 5, 8
	// spike bounds what a single measurement says.
	spike = 2
	// mostGBs is faster than any copy: two messages were found complete at a time.
	mostGBs = 200
	// run is how many messages in a window are one measurement of the way in use. One of
	// them says little: those that are under way together end together, and the first ones
	// are slow because the sender is busy with starting the others.
	run = 64
	// outliers are as many messages of a run as may have taken long for another reason than their way: one has begun a
	// window, and waited for the answer to the one before, and one may have been interrupted.
	outliers = 2
	// beginning bounds what a run says of how long windows take to begin.
	beginning = 1.3
	// soonOfRuns is soon for these. One that was slow is not enough by itself: (spikeOfRuns-1)/soonOfRuns
	// is less than what shifted wants.
	soonOfRuns, spikeOfRuns = 3, 1.6
)

// Chooser chooses for messages that are alike. The zero value is not ready: see New.
type Chooser struct {
	arms    [Ways]arm
	best    Way
	before  Way  // the one that was taken for the best before
	forced  bool // that one was not possible when this one was taken
	rests   Set  // ways that were the best, of which messages may be under way
	guess   Way
	trying  Way
	left    int // messages that still try, of this burst
	silent  int // the first of them, which say nothing
	after   int // messages of the best way that say nothing, because others went before
	burst   int
	count   int64   // messages chosen for
	last    int64   // count at the last try
	tries   float64 // that may be made
	time    float64 // that tries may take, in ns
	pending Set     // ways to look at soon: the machine may have changed
	again   int64   // count at which what was known before a change is believed again; or 0
	long    Set     // ways to try at length then
	changed bool    // these are not known yet
	course  Set     // ways that are to go over the course
	on      Way     // the one that does
	learnt  bool    // all ways were tried at first
	begun   bool    // it is known how windows begin
	steady  bool    // chosen for in groups: a group is as good as a course
	random  uint64
	tried   uint64
}

// New returns a chooser. burst is how many messages in a row try a way, of which the first
// says nothing, and the others are one measurement: 1 for messages that travel alone. guess is the way that is taken first.
func New(seed uint64, burst int, guess Way) Chooser {
	return Chooser{best: guess, before: guess, guess: guess, on: Ways, burst: max(burst, 1), random: seed*2 + 1, tries: reserve, time: reservedTime}
}

// Expect takes over what another chooser has learnt of messages that are much alike: the way
// that is taken first, and which ways need not be tried at first. It is for a Chooser that has
// chosen nothing yet.
func (c *Chooser) Expect(like *Chooser) {
	best := &like.arms[like.best]
	if !like.learnt || best.n == 0 || c.count > 0 {
		return
	}
	c.best, c.guess = like.best, like.best
	for w := range Ways {
		if a := &like.arms[w]; a.n > 0 && a.total > 0 {
			c.arms[w].expected, c.arms[w].flatters, c.arms[w].lies = 0, a.flatters, a.lies
			if a.cost > hopeless*best.cost {
				c.arms[w].expected = min(a.cost/best.cost, doubtful)
			}
		}
	}
}

// Doubt says which ways need not be tried at first, as another one was better on most machines. In a window
// what their first tries say counts twice. It is for a Chooser that has chosen nothing yet.
func (c *Chooser) Doubt(ways Set) {
	for w := range Ways {
		if !ways.Has(w) {
			continue
		}
		a := &c.arms[w]
		if a.expected = hopeless; c.burst > 1 {
			a.flatters, a.lies = hopeless, 1
		}
	}
}

// Next returns the way of the next message, of those that are possible. trial says that it is not the one that seems best.
func (c *Chooser) Next(possible Set) (w Way, trial bool) {
	c.count++
	if c.left > 0 && possible.Has(c.trying) {
		c.left--
		return c.trying, true
	}
	c.left = 0
	if w, n := c.cold(possible); n > 0 {
		c.trying, c.left = w, n-1
		return w, w != c.best
	}
	c.settle()
	c.choose(possible)
	c.tries = min(c.tries+1./TriesPer, mostSaved)
	if w, ok := c.try(possible); ok {
		return w, true
	}
	return c.best, false
}

// cold returns a way of which too little is known, the guess first, and how many messages
// are to go by it; 0 if enough is known of all. The first message of all may have met a
// process that was starting, and does not count for bad.
func (c *Chooser) cold(possible Set) (found Way, n int) {
	if c.on < Ways {
		if a := &c.arms[c.on]; a.n > 0 {
			a.cost = median(a.recent[:min(a.n, len(a.recent))])
			a.lately = a.cost
		}
		c.on = Ways
	}
	least := math.Inf(1)
	for w := range Ways {
		if a := &c.arms[w]; possible.Has(w) && a.n > 0 {
			least = min(least, a.cost)
		}
	}
	if !c.learnt {
		fewest := first
		for i := range Ways {
			w := (c.best + i) % Ways
			a := &c.arms[w]
			if !possible.Has(w) || a.unlikely() && !math.IsInf(least, 1) || a.total >= uint64(first*c.burst) || a.n >= fewest || a.n > 0 && a.cost > worse*least && (w != c.guess || a.n > 1) {
				continue
			}
			found, n, fewest = w, c.burst, a.n
		}
		if n > 0 {
			return found, n
		}
		c.learnt = true
		c.expect(least)
		for w := range Ways {
			if a := &c.arms[w]; possible.Has(w) && a.n > 0 && a.cost <= close*least {
				c.course |= Of(w)
			}
		}
		if c.steady || bits.OnesCount8(uint8(c.course)) == 1 {
			c.course = 0
		}
		if c.burst > 1 { // tries find the path drained: see inWindows. The guess is confirmed in use before it is left
			c.course = 0
			if a := &c.arms[c.best]; possible.Has(c.best) && a.n > 0 && a.cost <= hopeless*least {
				c.toProve(a, false)
			}
		}
	}
	// The best first: what it takes then may rule others out.
	found = Ways
	for w := range Ways {
		if c.course.Has(w) && possible.Has(w) && c.arms[w].cost <= close*least && (found == Ways || c.arms[w].cost < c.arms[found].cost) {
			found = w
		}
	}
	if found == Ways {
		c.course = 0
		return 0, 0
	}
	c.on = found
	c.course &^= Of(c.on)
	return c.on, courses
}

// expect has ways that were not tried at first take their turns with the others.
func (c *Chooser) expect(least float64) {
	if math.IsInf(least, 1) {
		return // of none that is possible is anything known
	}
	for w := range Ways {
		if a := &c.arms[w]; a.unlikely() {
			a.n, a.cost, a.stale, a.expected = 1, a.expected*least, true, 0
		}
	}
}

// choose finds the best way, among those that were measured if there are any. Another one than that in use must be
// better by some percent.
func (c *Chooser) choose(possible Set) {
	best, measured := Ways, false
	if a := &c.arms[c.best]; possible.Has(c.best) && a.n > 0 {
		best, measured = c.best, a.total > 0
		if c.burst > 1 && a.proofs > 0 && !a.tried {
			return
		}
	}
	for w := range Ways {
		a := &c.arms[w]
		if !possible.Has(w) || a.n == 0 || measured && a.total == 0 {
			continue
		}
		if best == Ways || !measured && a.total > 0 || a.cost < c.arms[best].cost {
			best, measured = w, a.total > 0
		}
	}
	if best == Ways { // nothing is known of any
		best = Way(bits.TrailingZeros8(uint8(possible)))
	}
	if best == c.best {
		return
	}
	if !possible.Has(c.best) || c.arms[c.best].n == 0 || c.arms[best].cost < better*c.arms[c.best].cost {
		c.change(best, possible)
	}
}

// change makes another way the best one.
func (c *Chooser) change(best Way, possible Set) {
	forced := !possible.Has(c.best)
	if !forced && !c.forced && c.burst > 1 {
		c.rests |= Of(c.best)
	}
	c.rests &^= Of(best)
	a := &c.arms[best]
	if c.burst > 1 && !a.proven {
		if begins := c.arms[c.best].begins; begins > 0 {
			a.begins = begins
		}
		if a.proofs == 0 { // what is known of it is older than a change
			a.partial = partial{}
			c.toProve(a, false)
		}
	}
	a.owed = 0
	c.before, c.best, c.forced = c.best, best, forced
}

// try returns a way that the next message tries, if it is time for one: any in its turn,
// the better ones more often, and at once where the machine may have changed.
func (c *Chooser) try(possible Set) (found Way, ok bool) {
	warming := warming
	if c.steady {
		warming = 0
	}
	among, n := c.pending&possible&^Of(c.best), c.burst
	if c.pending = among; among == 0 {
		among, n = c.atLength()&possible&^Of(c.best), c.burst+warming
	}
	spare, spareTime := 0., 0.
	if among == 0 {
		if c.count-c.last < c.spacing() {
			return 0, false
		}
		among, n = possible&^Of(c.best), c.burst
		spare, spareTime = reserve, reservedTime
	}
	if c.tries < spare+float64(n) {
		return 0, false
	}
	most := 0.
	for w := range Ways {
		a := &c.arms[w]
		if !among.Has(w) {
			continue
		}
		ratio := c.arms[c.best].cost / a.cost
		if score := float64(c.count-a.at) * ratio; score > most {
			found, most = w, score
		}
	}
	if most == 0 {
		return 0, false
	}
	if spareTime+c.price(found)*float64(n) > c.time {
		return 0, false
	}
	c.pending &^= Of(found)
	c.long &^= Of(found)
	c.last = c.count
	c.tries -= float64(n)
	c.tried++
	c.trying, c.left, c.silent, c.after = found, n-1, n-c.burst, warming
	c.arms[found].partial, c.arms[found].owed = partial{}, n
	return found, true
}

// price returns what a message that goes by w is expected to take, in messages of the
// best way. A single measurement may have been disturbed, and so may all that were made
// while the program began: no price is beyond what can be saved up.
func (c *Chooser) price(w Way) float64 {
	a := &c.arms[w]
	ratio := a.cost / c.arms[c.best].cost
	if a.n < 2 {
		return min(ratio, doubtful)
	}
	return min(ratio, (savedTime-reservedTime)/float64(c.burst))
}

// spacing is after how many messages it is time for a try: not always the same, since
// programs have rhythms too.
func (c *Chooser) spacing() int64 {
	mix := (c.random + uint64(c.last)) * 0x9E3779B97F4A7C15
	return int64(c.burst)*TriesPer + int64(mix>>61) - 4
}

// Took says how long a message took that went by w: the time in which the path was busy
// with it. clean is false if the time is also that of others, which went by another way.
func (c *Chooser) Took(w Way, bytes int64, ns int64, clean bool) {
	if bytes <= 0 {
		return
	}
	ns = max(ns, 1)
	a := &c.arms[w]
	a.total++
	tried := a.owed > 0
	if x := float64(ns) / float64(bytes); w == c.best {
		c.time = min(c.time+saving, savedTime)
	} else if best := c.arms[c.best].cost; tried && best > 0 && c.learnt && c.on == Ways {
		c.time -= min(x/best, spike*max(a.cost/best, 1))
	}
	a.owed = max(a.owed-1, 0)
	switch {
	case w == c.best && c.after > 0:
		c.after--
		return
	case w == c.trying && w != c.best && c.silent > 0:
		if c.silent--; c.silent == 0 {
			a.n = 0 // what the short try said is worth less
		}
		return
	}
	if !clean || bytes >= mostGBs*ns || w != c.best && !tried && c.rests.Has(w) {
		return
	}
	a.at = c.count
	x, ok := c.measured(w, float64(bytes), float64(ns))
	if !ok {
		return
	}
	switch {
	case w == c.best && a.proofs > 0:
		c.prove(x)
		return
	case w != c.best:
		if x += c.begins(a); tried || !c.learnt {
			x = c.doubted(w, x)
		}
	}
	before := a.cost
	changed := a.add(x, w == c.best, c.burst > 1)
	a.proven = a.proven || w == c.best && a.n > first
	switch best := c.arms[c.best].cost; {
	case w == c.best && changed: // others may have changed, too
		c.hasChanged(before)
	case w == c.best:
	case changed && x < before:
		c.pending = All
	case !c.changed && x < promising*best && (a.n < first || x < before/shifted):
		c.pending |= Of(w) // once more, before it is believed
	}
}
