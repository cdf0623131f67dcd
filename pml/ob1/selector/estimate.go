package selector

// estimate is the measured cost of one protocol.
type estimate struct {
	samples int
	// isStale is set if the costs have changed since the last sample.
	isStale bool
	// cost is in ns per byte, and recentCost is that of the last few samples.
	cost, recentCost float64
	// costBeforeChange is the cost before a change that is not over yet, or 0.
	costBeforeChange float64
	// lastSamples is a ring, indexed by samples modulo its length.
	lastSamples [5]float64
	// messages counts all measured messages.
	messages uint64
	// lastSampleAt is the value of Selector.selections at the last sample.
	lastSampleAt int64

	// penalty is the ratio of the cost in use to that of probes, or 0. penaltyRaises counts its
	// raises, up to maxPenaltyRaises.
	penalty       float64
	penaltyRaises int
	// confirmationsLeft is the number of samples in use that must still confirm the cost, and
	// leastConfirmed is the lowest of those so far.
	confirmationsLeft int
	leastConfirmed    float64
	// comesFromProbes is set if the cost to confirm was measured by probes.
	comesFromProbes bool
	// isConfirmed is set if the cost was measured in use since the last change.
	isConfirmed bool
	// windowStart is the part of the cost that the starts of windows contribute.
	windowStart float64
	// expectedRatio is the cost of a protocol without samples in relation to the best one in a
	// neighboring size class, or 0.
	expectedRatio float64

	// probesInFlight counts probes without a recorded time.
	probesInFlight int
	partial        partial
}

// isSkipped reports whether the protocol skipped the warm-up because of its expected cost.
func (e *estimate) isSkipped() bool { return e.expectedRatio > 0 && e.samples == 0 }

// partial has the messages of an incomplete sample.
type partial struct {
	messages  int
	bytes, ns float64
	longest   [outliers]message // in descending order of ns
}

type message struct{ bytes, ns float64 }

func (p *partial) add(m message) {
	p.messages++
	p.bytes += m.bytes
	p.ns += m.ns
	for i, l := range p.longest {
		if m.ns > l.ns {
			p.longest[i], m = m, l
		}
	}
}

// withoutOutliers returns the sum of all messages but the longest.
func (p *partial) withoutOutliers() message {
	m := message{p.bytes, p.ns}
	for _, l := range p.longest {
		m.bytes -= l.bytes
		m.ns -= l.ns
	}
	return m
}

// addMessage returns the next sample of a protocol, in ns per byte, if the message completes one.
func (s *Selector) addMessage(p Protocol, bytes, ns float64) (x float64, ok bool) {
	e := &s.estimates[p]
	sum := &e.partial
	sum.add(message{bytes, ns})
	needed := max(s.burst-1, 1)
	isRun := s.burst > 1 && p == s.best && (e.samples >= warmupSamples || e.confirmationsLeft > 0)
	if isRun {
		needed = runMessages
	}
	if sum.messages < needed && !(isRun && e.confirmationsLeft > 0 && sum.messages > 2*outliers && s.failsConfirmation(sum.withoutOutliers().ns/bytes)) {
		return 0, false
	}
	if x = sum.ns / sum.bytes; isRun {
		x = s.runCost(e, sum)
	}
	*sum = partial{}
	return x, true
}

// runCost returns the average cost of a run. The excess of its longest messages is the cost
// of a window's start and of interruptions. It is averaged on its own, and moves slowly. In
// windows shorter than half a run, further starts count like other messages.
func (s *Selector) runCost(e *estimate, run *partial) (x float64) {
	rest, before := run.withoutOutliers(), e.windowStart
	pace := rest.ns / rest.bytes
	start := min(max(run.ns/run.bytes-pace, 0), maxUnconfirmedRatio*pace)
	if before > 0 {
		start = min(max(start, before/windowStartSpread), before*windowStartSpread)
	}
	if e.isConfirmed {
		start = before + (start-before)/4
	}
	e.windowStart = start
	return pace + start
}

// windowStartCost returns the cost of a window's start, which probes do not contain. It is
// that of the protocol in use, or the probed protocol's own cost from earlier use if that is
// not much higher.
func (s *Selector) windowStartCost(e *estimate) float64 {
	best := s.estimates[s.best].windowStart
	if e.isConfirmed {
		return min(e.windowStart, windowStartSpread*best)
	}
	return best
}

// addSample adds a sample, and reports whether the cost has changed. isRun is set for
// samples of a window.
func (e *estimate) addSample(x float64, inUse, isRun bool) (hasChanged bool) {
	if e.isStale {
		e.isStale, e.samples = false, 0
	}
	e.lastSamples[e.samples%len(e.lastSamples)] = x
	e.samples++
	if e.samples <= warmupSamples {
		e.cost = median(e.lastSamples[:e.samples])
		e.recentCost = e.cost
		return false
	}
	limit := float64(spikeLimit)
	if inUse && isRun {
		limit = runSpikeLimit
	}
	x = min(max(x, e.cost/limit), e.cost*limit)
	horizon := float64(costHorizon)
	if inUse {
		recent := float64(recentHorizon)
		if isRun {
			recent = recentRuns
		}
		e.recentCost += (x - e.recentCost) / recent
		hasChanged = e.recentCost > changeFactor*e.cost || e.recentCost < e.cost/changeFactor
	} else {
		// Probes are few, so two of the last three suffice.
		horizon = 4
		last := median([]float64{e.sampleBack(1), e.sampleBack(2), e.sampleBack(3)})
		hasChanged = last > probedChangeFactor*e.cost || last < e.cost/probedChangeFactor
	}
	if hasChanged {
		e.restart()
		return true
	}
	e.cost += (x - e.cost) / min(float64(e.samples), horizon)
	if !inUse {
		e.recentCost = e.cost
	}
	if e.samples >= 1<<30 {
		e.samples = costHorizon * len(e.lastSamples)
	}
	return false
}

// sampleBack returns the n-th sample from the end, from 1.
func (e *estimate) sampleBack(n int) float64 {
	return e.lastSamples[(e.samples-n)%len(e.lastSamples)]
}

// restart drops all but the last three samples.
func (e *estimate) restart() {
	var last [5]float64
	for i := range warmupSamples {
		last[i] = e.sampleBack(warmupSamples - i)
	}
	e.samples, e.lastSamples = warmupSamples, last
	e.cost = median(last[:warmupSamples])
	e.recentCost = e.cost
}

// median returns the median of up to five numbers. Of two it returns the lower one, since
// disturbances only add time.
func median(of []float64) float64 {
	var sorted [5]float64
	n := copy(sorted[:], of)
	for i := 1; i < n; i++ {
		for k := i; k > 0 && sorted[k] < sorted[k-1]; k-- {
			sorted[k], sorted[k-1] = sorted[k-1], sorted[k]
		}
	}
	return sorted[(n-1)/2]
}
