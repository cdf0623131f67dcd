package learner

import "math"

// Record adds the measured time of a message, during which the path was busy with it. isClean
// is false if the time includes messages by other options. Records have the order of the
// selections, and may be late or missing.
func (s *Selector[O]) Record(o O, bytes int64, ns int64, isClean bool) {
	if bytes <= 0 {
		return
	}
	e := &s.estimates[o]
	e.messages++
	if o != s.recorded {
		s.recorded, s.stretch, e.probe = o, 0, sum{}
	}
	s.stretch++
	if isClean && s.stretch > s.shape.Skip && bytes < maxGBs*ns {
		t, b := float64(ns), float64(bytes)
		if e.cost > 0 && !e.isStale && s.stretch > s.shape.Probe {
			t = min(t, max(outlierShare*float64(s.shape.Run), 2)*e.cost*b)
		}
		e.probe.add(1, b, t)
	}
	if s.stretch < s.shape.Probe || e.probe.bytes == 0 {
		return
	}
	if s.stretch == s.shape.Probe {
		s.addProbe(o, e.probe.cost())
		e.probe = sum{}
		return
	}
	if o == s.best || e.failures == 0 { // otherwise messages of a failed trial that are still in flight
		e.run.add(e.probe.messages, e.probe.bytes, e.probe.ns)
		e.runAt = s.selections
	}
	e.probe = sum{}
	switch {
	case o == s.best && s.isTrial && s.hasLost(&e.run):
		s.endTrial(true)
	case e.run.messages >= s.shape.Run:
		s.addRun(o)
	}
}

// addProbe adds a probe, or the first messages in use. A much better one is repeated soon, and a
// changed cost lets all options be probed.
func (s *Selector[O]) addProbe(o O, x float64) {
	s.idleUntil = 0
	e := &s.estimates[o]
	if o == s.best && e.cost > 0 && (s.isTrial || e.isConfirmed && s.selections-e.runAt < int64(4*s.shape.Run)) {
		return // runs are better
	}
	x *= e.ratio
	before := e.cost
	if e.isStale {
		e.isStale, e.samples, before = false, 0, 0
	}
	e.push(x)
	e.cost, e.isProbed = e.median(), true
	if o == s.best || before == 0 {
		return
	}
	if e.cost < before/optimism {
		for q := range s.options() {
			if other := &s.estimates[q]; q != o && other.probes > 0 && s.selections-other.probedAt > int64(settleRuns*s.shape.Run) {
				other.dueAt = s.selections
			}
		}
	}
	if x < switchFactor*s.estimates[s.best].cost && x < min(before, e.cost)/changeFactor {
		e.dueAt = s.selections + int64(s.shape.Probe) + 1
	}
}

// beginTrial begins the trial of the best option. The rival is the best of the others, and gets
// the benefit of the doubt.
func (s *Selector[O]) beginTrial(possible Set[O]) {
	e := &s.estimates[s.best]
	s.isTrial, s.newUntil = true, s.selections+int64(2*settleRuns*s.shape.Run)
	e.isConfirmed, e.samples, e.reference, e.probedCost = false, 0, 0, e.cost
	if s.selections-e.runAt > int64(4*s.shape.Run) {
		e.run = sum{}
	}
	s.rival = math.Inf(1)
	for o := range s.options() {
		r := &s.estimates[o]
		if o == s.best || !possible.Has(o) || r.cost == 0 || r.isStale {
			continue
		}
		cost := r.cost
		if !r.isConfirmed {
			cost *= optimism
		}
		s.rival = min(s.rival, cost)
	}
}

// hasLost reports whether a trial has lost a quarter of a run against the rival.
func (s *Selector[O]) hasLost(run *sum) bool {
	n := float64(run.messages)
	return run.ns > (1+(changeFactor-1)*float64(s.shape.Run)/n)*run.bytes*s.rival
}

// endTrial ends the trial of the best option. If that has lost, only its last run counts.
func (s *Selector[O]) endTrial(hasLost bool) {
	e := &s.estimates[s.best]
	s.isTrial = false
	if hasLost {
		e.samples = 0
		e.addRun(s.selections)
	}
	if s.shape.Run > s.shape.Probe {
		e.ratio *= e.cost / e.probedCost
	}
	if e.cost > s.rival {
		s.fail(e)
	}
}

// fail excludes an option from trials for a time that doubles with each failure.
func (s *Selector[O]) fail(e *estimate) {
	e.retryAt = s.selections + int64(retryRuns*s.shape.Run)<<min(e.failures, 20)
	e.failures++
}

// addRun takes the complete run as a sample in use. The lowest of the last ones counts, since
// disturbances only add time.
func (e *estimate) addRun(selections int64) {
	e.push(e.run.cost())
	e.cost = e.least()
	e.isConfirmed, e.isProbed, e.run = true, false, sum{}
}

// addRun adds a run, and reacts to a change of the best option's cost.
func (s *Selector[O]) addRun(o O) {
	e := &s.estimates[o]
	e.addRun(s.selections)
	s.idleUntil = 0
	if o != s.best || e.samples < len(e.last) {
		return
	}
	isNew, hasRisen := s.selections < s.newUntil, e.cost > changeFactor*e.reference
	switch {
	case s.isTrial:
		s.endTrial(false)
	case e.reference == 0:
		e.reference = e.cost
	case hasRisen && isNew: // its first messages were faster than later ones
		e.ratio *= e.cost / e.reference
		e.reference = 0
		s.fail(e)
	case hasRisen || e.median() < e.reference/changeFactor:
		e.reference = e.cost
		s.handleChange()
	default:
		e.reference += (e.cost - e.reference) / settleRuns
	}
	if !isNew {
		e.failures = 0
	}
}

// handleChange lets all options but the best be probed, since their costs may have changed as
// well.
func (s *Selector[O]) handleChange() {
	for o := range s.options() {
		e := &s.estimates[o]
		if o == s.best { // its cost may rise during the transition only
			e.dueAt = s.selections + int64(settleRuns*s.shape.Run)
		} else if e.samples > 0 {
			e.isStale, e.isConfirmed, e.ratio, e.failures, e.dueAt, e.run = true, false, 1, 0, s.selections, sum{}
		}
	}
}
