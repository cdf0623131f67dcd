package selector

// selectProbe returns the protocol that the next message probes, if one is due and the
// budget allows it. Better protocols are probed more often, and all of them soon after a
// possible change.
func (s *Selector) selectProbe(possible Set) (found Protocol, ok bool) {
	warmup := longProbeWarmup
	if s.isGrouped {
		warmup = 0
	}
	others := possible &^ Of(s.best)
	among, n := s.dueProbes&others, s.burst
	if s.dueProbes = among; among == 0 {
		among, n = s.dueLongProbes()&others, s.burst+warmup
	}
	kept, keptTime := 0., 0.
	if among == 0 {
		if s.selections-s.lastProbeAt < s.probeSpacing() {
			return 0, false
		}
		among, n = others, s.burst
		kept, keptTime = probeReserve, timeReserve
	}
	if s.probeBudget < kept+float64(n) {
		return 0, false
	}
	if found, ok = s.mostOverdue(among); !ok || keptTime+s.probePrice(found)*float64(n) > s.timeBudget {
		return 0, false
	}
	s.dueProbes &^= Of(found)
	s.longProbes &^= Of(found)
	s.lastProbeAt = s.selections
	s.probeBudget -= float64(n)
	s.probes++
	s.probing, s.probesLeft, s.probeWarmupLeft, s.bestWarmupLeft = found, n-1, n-s.burst, warmup
	s.estimates[found].partial, s.estimates[found].probesInFlight = partial{}, n
	return found, true
}

// mostOverdue returns the protocol of the highest age times speed.
func (s *Selector) mostOverdue(among Set) (found Protocol, ok bool) {
	highest := 0.
	for p := range Protocols {
		e := &s.estimates[p]
		if !among.Has(p) {
			continue
		}
		ratio := s.estimates[s.best].cost / e.cost
		if score := float64(s.selections-e.lastSampleAt) * ratio; score > highest {
			found, highest = p, score
		}
	}
	return found, highest > 0
}

// probePrice returns the expected cost of a message by p, in messages of the best protocol.
// It never exceeds the largest budget, since all samples may have been disturbed.
func (s *Selector) probePrice(p Protocol) float64 {
	e := &s.estimates[p]
	ratio := e.cost / s.estimates[s.best].cost
	if e.samples < 2 {
		return min(ratio, maxUnconfirmedRatio)
	}
	return min(ratio, (maxTimeBudget-timeReserve)/float64(s.burst))
}

// probeSpacing returns the number of messages between two probes. It varies, so that probes
// do not follow the rhythm of the program.
func (s *Selector) probeSpacing() int64 {
	mix := (s.seed + uint64(s.lastProbeAt)) * 0x9E3779B97F4A7C15
	return int64(s.burst)*MessagesPerProbe + int64(mix>>61) - 4
}
