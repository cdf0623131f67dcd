// Package learner selects one of a few options for each message from the measured times of
// earlier messages of the same kind. It does not read the clock, and equal times lead to equal
// selections.
//
// A [Selector] serves messages of one kind, in general of one peer, size class and pattern of
// traffic. It measures only messages that the program sends anyway. The warm-up probes each
// option once or twice. Later, Select returns the option of the lowest cost, and sometimes probes
// another one. [ProbeShare] bounds probes for any sequence of messages.
//
// A probe is short, and the first messages by an option may be faster or slower than later ones.
// So a better option is on trial until runs of messages confirm its cost. The ratio of both
// costs corrects later probes of it. A trial ends as soon as it has lost a quarter of a run, and
// the next one of that option follows after a time that doubles with each failure. Trials do not
// count as probes.
//
// When the cost of the best option has changed, all other costs are stale and are probed again.
//
// A selector is not safe for concurrent use. Select and Record do not allocate.
package learner

import (
	"math"
	"math/bits"
)

// MaxOptions is the largest number of options of a selector.
const MaxOptions = 6

const (
	// ProbeShare bounds the share of probes behind the warm-up, of the messages and of their
	// expected time.
	ProbeShare = 0.018
	// savedProbes is the number of probes that the budget accumulates. A probe at the cost of the
	// best option takes 1. Three quarters are kept for changes of the costs.
	savedProbes = 48
	// switchFactor is the ratio of costs below which another option replaces the best one.
	switchFactor = 0.95
	// optimism divides the cost of an option without a run. Probes may overestimate it.
	optimism = 1.4
	// changeFactor is the ratio of a cost to the former one that counts as a change.
	changeFactor = 1.25
	// settleRuns is the number of runs between a change and a probe of the former best option.
	// While the scheduler moves processes, two of them may share one processor, and options that
	// need both take ten times as long.
	settleRuns = 8
	// retryRuns is the number of runs until the first retry of an option that failed.
	retryRuns = 64
	// outlierShare bounds the effect of one message, to this part of a run at the present cost.
	outlierShare = 1. / 8
	// maxGBs is faster than any copy. Such a message was complete together with another one.
	maxGBs = 200
	// warmupProbes is the number of probes of a promising option in the warm-up. The first message
	// finds cold memory.
	warmupProbes = 2

	reserve = savedProbes * 3 / 4
	// maxLate is the number of selections after which the record of a probe counts as missing.
	maxLate = retryRuns
	// hopeless is the ratio to the lowest cost that excludes an option from the warm-up.
	hopeless = optimism * optimism
)

// Set is a set of options.
type Set[O ~uint8] uint8

// Of returns the set of the given options.
func Of[O ~uint8](all ...O) (s Set[O]) {
	for _, o := range all {
		s |= 1 << o
	}
	return s
}

// Has reports whether o is in the set.
func (s Set[O]) Has(o O) bool { return s&(1<<o) != 0 }

// Shape describes the options of a selector and the messages that measure them.
type Shape struct {
	// Options is the number of options.
	Options int
	// Probe is the number of consecutive messages of a probe, and Skip the number of messages that
	// are not measured behind a change of the option.
	Probe, Skip int
	// Run is the number of messages of a sample in use.
	Run int
}

// Selector selects options for messages of one kind. Use [New]; the zero value is not ready.
type Selector[O ~uint8] struct {
	shape     Shape
	estimates [MaxOptions]estimate
	best      O
	isWarm    bool
	// selections counts calls of Select, and probes those that began a probe behind the warm-up.
	selections int64
	probes     uint64

	// isTrial is set until runs have confirmed the cost of the best option, which is compared with
	// rival. It counts as new until newUntil, in selections.
	isTrial  bool
	rival    float64
	newUntil int64

	probing    O
	probesLeft int
	// budget is the number of probes that may be made, at the cost of the best option. It suffices
	// for the next one from nextProbe on, in selections.
	budget    float64
	nextProbe int64

	// recorded is the option of the last record, and stretch the number of records since another
	// option.
	recorded O
	stretch  int

	// Until this number of selections, or the next sample, the best option remains the best for
	// the same possible options.
	idleUntil    int64
	idlePossible Set[O]
}

// New returns a selector. The warm-up starts with guess.
func New[O ~uint8](shape Shape, guess O) Selector[O] {
	s := Selector[O]{shape: shape, best: guess, budget: reserve, recorded: O(shape.Options)}
	for o := range s.estimates {
		s.estimates[o].ratio = 1
	}
	return s
}

// Penalize lets options skip the warm-up that are rarely the best. If runs are longer than
// probes, it also doubles the cost of their first probes. Call it before the first Select.
func (s *Selector[O]) Penalize(options Set[O]) {
	for o := range s.options() {
		if e := &s.estimates[o]; options.Has(o) {
			e.skipWarmup()
			if s.shape.Skip > 0 {
				e.ratio, e.isConfirmed = hopeless, true
				s.fail(e)
			}
		}
	}
}

// Select returns the option of the next message, one of those that are possible. isProbe is set
// if it is not the best one.
func (s *Selector[O]) Select(possible Set[O]) (o O, isProbe bool) {
	s.selections++
	s.budget = min(s.budget+ProbeShare/float64(s.shape.Probe), savedProbes)
	if s.selections < s.idleUntil && possible == s.idlePossible {
		return s.best, false
	}
	s.idleUntil, s.idlePossible = 0, possible
	if s.probesLeft > 0 && possible.Has(s.probing) {
		s.probesLeft--
		return s.probing, s.probing != s.best
	}
	s.probesLeft = 0
	if !possible.Has(s.best) {
		s.best, s.isTrial = s.leastCost(possible), false
	}
	if s.isTrial && s.selections < s.newUntil {
		return s.best, false
	}
	s.isTrial = false
	if o, ok := s.selectProbe(possible); ok {
		return o, true
	}
	s.updateBest(possible)
	return s.best, false
}

// leastCost returns the possible option of the lowest cost.
func (s *Selector[O]) leastCost(possible Set[O]) O {
	found, least := O(bits.TrailingZeros8(uint8(possible))), math.Inf(1)
	for o := range s.options() {
		if e := &s.estimates[o]; possible.Has(o) && e.cost > 0 && e.cost < least {
			found, least = o, e.cost
		}
	}
	return found
}

// selectProbe begins a probe if one is due and the budget allows it. Better options are probed
// more often. The first probe of each option is free.
func (s *Selector[O]) selectProbe(possible Set[O]) (found O, ok bool) {
	most, kept := 0., float64(reserve)
	for o := range s.options() {
		e := &s.estimates[o]
		if o == s.best || !possible.Has(o) {
			continue
		}
		switch isDue := s.isFree(e) || e.dueAt > 0 && s.selections >= e.dueAt; {
		case isDue && kept > 0:
			most, kept = 0, 0
		case !isDue && kept == 0:
			continue
		}
		if overdue := float64(s.selections-e.probedAt) / s.price(e); overdue > most {
			found, most = o, overdue
		}
	}
	if most == 0 || s.selections <= int64(2*s.shape.Probe) {
		return found, false
	}
	e := &s.estimates[found]
	if !s.isFree(e) {
		cost := s.price(e)
		if cost+kept > s.budget {
			s.nextProbe = s.selections + int64((cost+kept-s.budget)*float64(s.shape.Probe)/ProbeShare)
			return found, false
		}
		s.budget -= cost
		s.probes++
	}
	e.probes++
	e.probedAt, e.dueAt = s.selections, 0
	s.probing, s.probesLeft = found, s.shape.Probe-1
	return found, true
}

// isFree reports whether a probe belongs to the warm-up.
func (s *Selector[O]) isFree(e *estimate) bool {
	return e.probes == 0 || e.probes < warmupProbes && !s.isWarm && s.price(e) < hopeless
}

// price returns the expected cost of a probe in relation to the best option. It never exceeds
// the budget, since all samples may have been disturbed.
func (s *Selector[O]) price(e *estimate) float64 {
	best := s.estimates[s.best].cost
	if best == 0 || e.cost == 0 || e.isStale && e.samples > 0 {
		return optimism
	}
	return max(min(e.cost/best, savedProbes-reserve), 1)
}

// updateBest replaces the best option if another one is cheaper by switchFactor. A
// cost from probes begins a trial, but not before the warm-up has measured all options.
func (s *Selector[O]) updateBest(possible Set[O]) {
	b := &s.estimates[s.best]
	if b.cost == 0 {
		return
	}
	found, least, isWaiting := s.best, switchFactor*b.cost, s.selections < int64(s.shape.Run)
	if !b.isConfirmed {
		least /= optimism
	}
	for o := range s.options() {
		e := &s.estimates[o]
		if !possible.Has(o) || o == s.best {
			continue
		}
		isWaiting = isWaiting || e.samples == 0 && s.selections-e.probedAt < maxLate
		if e.cost > 0 && !e.isStale && s.optimisticCost(e, least) < least {
			found, least = o, s.optimisticCost(e, least)
		}
	}
	isOther := found != s.best
	if isOther {
		s.best = found
	} else if !isWaiting && b.isConfirmed {
		s.idleUntil = s.nextProbe
	}
	if isWaiting {
		return
	}
	s.isWarm = true
	if e := &s.estimates[found]; isOther && e.isProbed || !e.isConfirmed && e.samples > 0 {
		s.beginTrial(possible)
	}
}

// optimisticCost returns the lowest cost that e may have in use, given the least cost of others.
func (s *Selector[O]) optimisticCost(e *estimate, least float64) float64 {
	switch {
	case !e.isConfirmed:
		return e.cost / optimism
	case e.failures == 0 || !e.isProbed:
		return e.cost
	case s.selections >= e.retryAt || e.cost <= least/changeFactor:
		return e.cost / e.ratio
	}
	return math.Inf(1)
}

// options returns the number of options as a range.
func (s *Selector[O]) options() O { return O(s.shape.Options) }
