package selector

// Costs change when the scheduler moves processes, or when other load starts or ends. The
// transition itself is slower than the state before and behind it.

// handleChange reacts to a change of the best protocol's cost. All other estimates become
// stale, and are probed soon. before is the cost before the change.
func (s *Selector) handleChange(before float64) {
	isNew := s.restoreAt == 0 // otherwise the last change continues
	for p := range Protocols {
		e := &s.estimates[p]
		if isNew {
			e.costBeforeChange = 0
			if p == s.best {
				e.costBeforeChange = before
			}
		}
		e.isStale = p != s.best
		e.penalty, e.penaltyRaises, e.confirmationsLeft, e.isConfirmed = 0, 0, 0, p == s.best
	}
	s.restoreAt = s.selections + s.settleTime()
	s.dueProbes, s.needsLongProbes = All, true
}

// settleTime returns the assumed length of a transition, in selections. In windows the next
// sample of the protocol in use takes longer.
func (s *Selector) settleTime() int64 {
	switch {
	case s.isGrouped:
		return settleGroups
	case s.burst > 1:
		return 3 * runMessages
	}
	return settleMessages
}

// restoreFormerBest selects the protocol again that was the best before a change, after the
// transition, if its former cost is below the best one now. Its second message, or its first
// sample in a window, measures it again.
func (s *Selector) restoreFormerBest() {
	if s.restoreAt == 0 || s.selections < s.restoreAt {
		return
	}
	s.restoreAt = 0
	least, former := switchFactor*s.estimates[s.best].cost, Protocols
	for p := range Protocols {
		e := &s.estimates[p]
		if p != s.best && e.costBeforeChange > 0 && e.costBeforeChange < least {
			least, former = e.costBeforeChange, p
		}
		e.costBeforeChange = 0
	}
	if former == Protocols {
		return
	}
	e := &s.estimates[former]
	e.cost, e.isStale, e.samples, e.partial, e.confirmationsLeft = least, true, 1, partial{}, 0
	if s.burst > 1 {
		s.requireConfirmation(e, false)
	}
	if !s.isGrouped {
		s.bestWarmupLeft = 1 // the first message finds another protocol's data in the caches
	}
}

// dueLongProbes returns the protocols to probe at length, those close to the best in the
// short probes after a change.
func (s *Selector) dueLongProbes() Set {
	if s.needsLongProbes {
		s.needsLongProbes = false
		for p := range Protocols {
			if e := &s.estimates[p]; e.samples > 0 && !e.isStale && e.cost <= closeFactor*s.estimates[s.best].cost {
				s.longProbes |= Of(p)
			}
		}
	}
	return s.longProbes
}
