package learner

// reserve is the part of the budget for due probes, and hopeless the ratio to the lowest cost
// that excludes an option from the warm-up.
const reserve, hopeless, warmupProbes = savedProbes * 3 / 4, optimism * optimism, 2

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

// isFree reports whether a probe belongs to the warm-up. The first message by an option finds
// cold memory, so that promising ones get a second one.
func (s *Selector[O]) isFree(e *estimate) bool {
	return e.probes == 0 || e.probes < warmupProbes && !s.isWarm && s.price(e) < hopeless
}

// price returns the expected cost of a probe in relation to the best option. It never exceeds
// the budget, since all samples may have been disturbed.
func (s *Selector[O]) price(e *estimate) float64 {
	ratio := optimism
	switch best := s.estimates[s.best].cost; {
	case best == 0 || e.cost == 0:
		ratio = min(e.expected, hopeless)
	case !e.isStale:
		ratio = e.cost / best
	}
	return max(min(ratio, savedProbes-reserve), 1)
}

// nextEvent returns the number of selections until which no probe or trial begins without a
// further sample.
func (s *Selector[O]) nextEvent(possible Set[O]) int64 {
	next := s.nextProbe
	for o := range s.options() {
		if e := &s.estimates[o]; possible.Has(o) && o != s.best {
			for _, at := range [...]int64{e.dueAt, e.retryAt} {
				if at > s.selections {
					next = min(next, at)
				}
			}
		}
	}
	return next
}
