package selector

import "math"

// Probes underestimate some protocols. The pipeline is fast for a few messages, as long as
// the cache lines of its ring have rested, and no probe contains the first message of a
// window, which waits for the answer to the window before. So the first samples in use
// confirm the cost from probes. If they are worse, the protocol gets a penalty that applies
// to its next probes, and the difference does not count as a change of the costs.

// applyPenalty returns the sample x of a probe with the protocol's penalty, which decays.
func (s *Selector) applyPenalty(p Protocol, x float64) float64 {
	e := &s.estimates[p]
	s.requireConfirmation(e, true)
	if e.penalty <= 1 {
		return x
	}
	x *= e.penalty
	e.penalty += (1 - e.penalty) / float64(int(penaltyDecay)<<(e.penaltyRaises-1))
	return x
}

// requireConfirmation lets the next samples in use confirm an estimate. They are one run, one
// group, or a few single messages.
func (s *Selector) requireConfirmation(e *estimate, comesFromProbes bool) {
	e.comesFromProbes, e.leastConfirmed, e.confirmationsLeft = comesFromProbes, math.Inf(1), 1
	if s.burst == 1 && !s.isGrouped {
		e.confirmationsLeft = warmupSamples
	}
}

// failsConfirmation reports whether a few messages by the best protocol have already
// consumed more time than a whole run by the one before. elapsed is in ns, divided by the
// bytes of one message.
func (s *Selector) failsConfirmation(elapsed float64) bool {
	before := &s.estimates[s.previousBest]
	return s.previousBest != s.best && before.isConfirmed && elapsed > runMessages*before.cost
}

// confirm adds one of the first samples of the best protocol in use. The lowest counts.
func (s *Selector) confirm(x float64) {
	e := &s.estimates[s.best]
	e.leastConfirmed = min(e.leastConfirmed, x)
	if e.confirmationsLeft--; e.confirmationsLeft > 0 {
		return
	}
	e.isConfirmed = true
	if !s.knowsWindowStart {
		s.knowsWindowStart = true
		for p := range Protocols { // samples of the warm-up contain no start of a window
			s.estimates[p].cost += e.windowStart
		}
	}
	ratio := e.leastConfirmed / e.cost
	if e.comesFromProbes {
		e.leastConfirmed = min(e.leastConfirmed, maxPenalty*e.cost) // one run may have been disturbed
		e.raisePenalty(ratio)
	}
	if ratio <= changeFactor && s.burst == 1 {
		e.addSample(e.leastConfirmed, true, false)
		return
	}
	x = e.leastConfirmed
	e.isStale, e.cost, e.recentCost, e.lastSamples = false, x, x, [5]float64{x, x, x}
	if e.samples = 1; s.burst > 1 {
		e.samples = warmupSamples
	}
}

// raisePenalty adapts the penalty to the ratio of the cost in use to that of probes.
func (e *estimate) raisePenalty(ratio float64) {
	switch f := max(e.penalty, 1) * ratio; {
	case f <= 1:
		e.penalty, e.penaltyRaises = 0, 0
	case ratio > changeFactor:
		e.penalty = min(f, maxPenalty)
		e.penaltyRaises = min(e.penaltyRaises+1, maxPenaltyRaises)
	}
}
