package selector

import (
	"math"
	"math/bits"
)

// warmUp returns the next protocol to sample, beginning with the guess, and the number of
// consecutive messages; 0 after the warm-up. The guess is sampled at least twice, since the
// very first message may have met a process that was still starting.
func (s *Selector) warmUp(possible Set) (found Protocol, n int) {
	s.endSustained()
	least := math.Inf(1)
	for p := range Protocols {
		if e := &s.estimates[p]; possible.Has(p) && e.samples > 0 {
			least = min(least, e.cost)
		}
	}
	if !s.isWarm {
		if found, n = s.leastSampled(possible, least); n > 0 {
			return found, n
		}
		s.isWarm = true
		s.estimateSkipped(least)
		s.planSustained(possible, least)
	}
	return s.nextSustained(possible, least)
}

// leastSampled returns the protocol with the fewest samples among those that need more.
func (s *Selector) leastSampled(possible Set, least float64) (found Protocol, n int) {
	fewest := warmupSamples
	for i := range Protocols {
		p := (s.best + i) % Protocols
		e := &s.estimates[p]
		switch {
		case !possible.Has(p):
		case e.isSkipped() && !math.IsInf(least, 1):
		case e.messages >= uint64(warmupSamples*s.burst) || e.samples >= fewest:
		case e.samples > 0 && e.cost > warmupCutoff*least && (p != s.guess || e.samples > 1):
		default:
			found, n, fewest = p, s.burst, e.samples
		}
	}
	return found, n
}

// estimateSkipped gives an assumed cost to protocols that skipped the warm-up. They are
// probed later like the others.
func (s *Selector) estimateSkipped(least float64) {
	if math.IsInf(least, 1) {
		return
	}
	for p := range Protocols {
		if e := &s.estimates[p]; e.isSkipped() {
			e.samples, e.cost, e.isStale, e.expectedRatio = 1, e.expectedRatio*least, true, 0
		}
	}
}

// planSustained selects protocols for sustained trials, if at least two of them are close.
// There are none for groups, which are as long as such a trial. In windows the guess is
// confirmed in use instead, since probes find the path drained.
func (s *Selector) planSustained(possible Set, least float64) {
	if s.burst > 1 {
		if e := &s.estimates[s.best]; possible.Has(s.best) && e.samples > 0 && e.cost <= hopelessFactor*least {
			s.requireConfirmation(e, false)
		}
		return
	}
	if s.isGrouped {
		return
	}
	var trials Set
	for p := range Protocols {
		if e := &s.estimates[p]; possible.Has(p) && e.samples > 0 && e.cost <= closeFactor*least {
			trials |= Of(p)
		}
	}
	if bits.OnesCount8(uint8(trials)) > 1 {
		s.sustainedTrials = trials
	}
}

// nextSustained starts the sustained trial of the cheapest protocol that needs one. Its
// result may exclude others.
func (s *Selector) nextSustained(possible Set, least float64) (found Protocol, n int) {
	found = Protocols
	for p := range Protocols {
		if s.sustainedTrials.Has(p) && possible.Has(p) && s.estimates[p].cost <= closeFactor*least && (found == Protocols || s.estimates[p].cost < s.estimates[found].cost) {
			found = p
		}
	}
	if found == Protocols {
		s.sustainedTrials = 0
		return 0, 0
	}
	s.sustaining = found
	s.sustainedTrials &^= Of(found)
	return found, sustainedMessages
}

// endSustained takes the median of the last samples of a sustained trial as the cost.
func (s *Selector) endSustained() {
	if s.sustaining == Protocols {
		return
	}
	if e := &s.estimates[s.sustaining]; e.samples > 0 {
		e.cost = median(e.lastSamples[:min(e.samples, len(e.lastSamples))])
		e.recentCost = e.cost
	}
	s.sustaining = Protocols
}
