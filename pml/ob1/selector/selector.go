package selector

import (
	"math/bits"
)

// Selector selects protocols for messages of one kind. Use [New]; the zero value is not ready.
type Selector struct {
	estimates [Protocols]estimate

	best         Protocol
	previousBest Protocol
	// isFallback is set if previousBest was impossible when best replaced it.
	isFallback bool
	// formerBests are former best protocols. Messages that were selected as the best one may still
	// be in flight, and do not count as probes.
	formerBests Set
	// guess is the protocol that the warm-up starts with.
	guess Protocol
	// burst is the number of consecutive messages of a probe.
	burst int
	// isGrouped is set if each message stands for a group (GroupSelector).
	isGrouped bool

	// selections counts calls of Select.
	selections int64
	seed       uint64

	// isWarm is set after the first samples of all protocols.
	isWarm bool
	// sustainedTrials are protocols that still need a sustained trial, and sustaining is the one
	// in progress, or Protocols.
	sustainedTrials Set
	sustaining      Protocol

	probing    Protocol
	probesLeft int
	// probeWarmupLeft is the number of messages of the current probe that are not measured, and
	// bestWarmupLeft that of the best protocol's messages behind a probe.
	probeWarmupLeft, bestWarmupLeft int
	lastProbeAt                     int64
	probes                          uint64
	// probeBudget is the number of probes that may be made, and timeBudget the time that they may
	// consume, in messages of the best protocol.
	probeBudget, timeBudget float64
	// dueProbes are protocols to probe as soon as the budget allows, since costs may have changed.
	dueProbes Set
	// longProbes are protocols to probe at length behind dueProbes. They are computed when
	// needsLongProbes is set.
	longProbes      Set
	needsLongProbes bool
	// restoreAt is the value of selections for the second trial of the former best protocol, or 0.
	restoreAt int64

	// knowsWindowStart is set once a confirmed run has measured the start of windows.
	knowsWindowStart bool
}

// New returns a selector. A probe takes burst consecutive messages: 1 for single messages.
// Of a longer burst, the first message is not measured and the others are one sample. The
// warm-up starts with guess.
func New(seed uint64, burst int, guess Protocol) Selector {
	return Selector{best: guess, previousBest: guess, guess: guess, sustaining: Protocols, burst: max(burst, 1), seed: seed*2 + 1, probeBudget: probeReserve, timeBudget: timeReserve}
}

// Inherit starts the selector with the costs and penalties of a neighboring kind of message.
// It has no effect while that one is not warm, nor after the first Select.
func (s *Selector) Inherit(like *Selector) {
	c, isWarm := like.Costs()
	if !isWarm || s.selections > 0 {
		return
	}
	s.Start(c)
	for p := range Protocols {
		if theirs, e := &like.estimates[p], &s.estimates[p]; c[p] > 0 {
			e.penalty, e.penaltyRaises = theirs.penalty, theirs.penaltyRaises
		}
	}
}

// Start starts the selector with costs that were measured elsewhere. The protocol of the
// lowest cost is the first guess, and hopeless ones skip the warm-up. Start has no effect
// without a known cost, nor after the first Select.
func (s *Selector) Start(c Costs) {
	best := c.best()
	if best == Protocols || s.selections > 0 {
		return
	}
	s.best, s.guess = best, best
	for p, cost := range c {
		if cost <= 0 {
			continue
		}
		e := &s.estimates[p]
		if e.expectedRatio = 0; cost > hopelessFactor*c[best] {
			e.expectedRatio = min(float64(cost/c[best]), maxUnconfirmedRatio)
		}
	}
}

// Penalize lets protocols skip the warm-up that are rarely the best. For windows it also
// doubles the cost of their first probes. Call it before the first Select.
func (s *Selector) Penalize(protocols Set) {
	for p := range Protocols {
		if !protocols.Has(p) {
			continue
		}
		e := &s.estimates[p]
		if e.expectedRatio = hopelessFactor; s.burst > 1 {
			e.penalty, e.penaltyRaises = hopelessFactor, 1
		}
	}
}

// Select returns the protocol of the next message, one of those that are possible. isProbe
// is set if it is not the best one.
func (s *Selector) Select(possible Set) (p Protocol, isProbe bool) {
	s.selections++
	if s.probesLeft > 0 && possible.Has(s.probing) {
		s.probesLeft--
		return s.probing, true
	}
	s.probesLeft = 0
	if p, n := s.warmUp(possible); n > 0 {
		s.probing, s.probesLeft = p, n-1
		return p, p != s.best
	}
	s.restoreFormerBest()
	s.updateBest(possible)
	s.probeBudget = min(s.probeBudget+1./MessagesPerProbe, maxProbeBudget)
	if p, ok := s.selectProbe(possible); ok {
		return p, true
	}
	return s.best, false
}

// updateBest selects the possible protocol of the lowest cost, measured ones first. It keeps
// the present one unless the other is cheaper by switchFactor.
func (s *Selector) updateBest(possible Set) {
	best, isMeasured := Protocols, false
	if e := &s.estimates[s.best]; possible.Has(s.best) && e.samples > 0 {
		best, isMeasured = s.best, e.messages > 0
		if s.burst > 1 && e.confirmationsLeft > 0 && !e.comesFromProbes {
			return
		}
	}
	for p := range Protocols {
		e := &s.estimates[p]
		if !possible.Has(p) || e.samples == 0 || isMeasured && e.messages == 0 {
			continue
		}
		if best == Protocols || !isMeasured && e.messages > 0 || e.cost < s.estimates[best].cost {
			best, isMeasured = p, e.messages > 0
		}
	}
	if best == Protocols { // no possible protocol has an estimate
		best = Protocol(bits.TrailingZeros8(uint8(possible)))
	}
	if best == s.best {
		return
	}
	if !possible.Has(s.best) || s.estimates[s.best].samples == 0 || s.estimates[best].cost < switchFactor*s.estimates[s.best].cost {
		s.setBest(best, possible)
	}
}

// setBest replaces the best protocol. In windows the new one needs confirmation.
func (s *Selector) setBest(best Protocol, possible Set) {
	isFallback := !possible.Has(s.best)
	if !isFallback && !s.isFallback && s.burst > 1 {
		s.formerBests |= Of(s.best)
	}
	s.formerBests &^= Of(best)
	e := &s.estimates[best]
	if s.burst > 1 && !e.isConfirmed {
		if start := s.estimates[s.best].windowStart; start > 0 {
			e.windowStart = start
		}
		if e.confirmationsLeft == 0 { // its samples are older than a change
			e.partial = partial{}
			s.requireConfirmation(e, false)
		}
	}
	e.probesInFlight = 0
	s.previousBest, s.best, s.isFallback = s.best, best, isFallback
}

// Record adds the measured time of a message, during which the path was busy with it. isClean
// is false if the time includes messages by other protocols.
func (s *Selector) Record(p Protocol, bytes int64, ns int64, isClean bool) {
	if bytes <= 0 {
		return
	}
	ns = max(ns, 1)
	e := &s.estimates[p]
	e.messages++
	isProbe := e.probesInFlight > 0
	if x := float64(ns) / float64(bytes); p == s.best {
		s.timeBudget = min(s.timeBudget+earnedTime, maxTimeBudget)
	} else if best := s.estimates[s.best].cost; isProbe && best > 0 && s.isWarm && s.sustaining == Protocols {
		s.timeBudget -= min(x/best, spikeLimit*max(e.cost/best, 1))
	}
	e.probesInFlight = max(e.probesInFlight-1, 0)
	switch {
	case p == s.best && s.bestWarmupLeft > 0:
		s.bestWarmupLeft--
		return
	case p == s.probing && p != s.best && s.probeWarmupLeft > 0:
		if s.probeWarmupLeft--; s.probeWarmupLeft == 0 {
			e.samples = 0 // the long probe replaces samples of short ones
		}
		return
	}
	if !isClean || bytes >= maxGBs*ns || p != s.best && !isProbe && s.formerBests.Has(p) {
		return
	}
	e.lastSampleAt = s.selections
	x, ok := s.addMessage(p, float64(bytes), float64(ns))
	if !ok {
		return
	}
	switch {
	case p == s.best && e.confirmationsLeft > 0:
		s.confirm(x)
		return
	case p != s.best:
		if x += s.windowStartCost(e); isProbe || !s.isWarm {
			x = s.applyPenalty(p, x)
		}
	}
	s.addSample(p, x)
}

// addSample adds a sample to an estimate, and reacts to a change that it shows.
func (s *Selector) addSample(p Protocol, x float64) {
	e := &s.estimates[p]
	before := e.cost
	hasChanged := e.addSample(x, p == s.best, s.burst > 1)
	e.isConfirmed = e.isConfirmed || p == s.best && e.samples > warmupSamples
	switch best := s.estimates[s.best].cost; {
	case p == s.best && hasChanged: // other protocols may have changed as well
		s.handleChange(before)
	case p == s.best:
	case hasChanged && x < before:
		s.dueProbes = All
	case !s.needsLongProbes && x < promisingFactor*best && (e.samples < warmupSamples || x < before/changeFactor):
		s.dueProbes |= Of(p) // a second probe before the result counts
	}
}
