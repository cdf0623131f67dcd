package learner

// estimate is the measured cost of one option.
type estimate struct {
	// cost is the expected cost in use in ns per byte, or 0.
	cost float64
	// last are the last samples, indexed by samples modulo their number.
	last    [3]float64
	samples int
	// reference follows the cost in use slowly, and shows its changes.
	reference float64
	// ratio is the cost in use to that of probes, and probedCost the cost before a trial.
	ratio, probedCost float64
	// messages counts all records.
	messages uint64

	// isConfirmed is set if runs have measured the cost since the last change, and isProbed if
	// the last sample is a probe.
	isConfirmed, isProbed bool
	// isStale is set if the costs have changed since the last sample, or come from elsewhere.
	isStale bool

	// failures counts failed trials. The next one begins at retryAt, in selections.
	failures int
	retryAt  int64
	// probes counts probes. The last one began at probedAt and the next one is due at dueAt, or
	// never if that is 0, in selections.
	probes          int
	probedAt, dueAt int64

	// probe and run have the messages of incomplete samples. runAt is the number of selections at
	// the last message of run.
	probe, run sum
	runAt      int64
}

// sum has the messages of one sample.
type sum struct {
	messages  int
	bytes, ns float64
}

func (t *sum) add(messages int, bytes, ns float64) {
	t.messages += messages
	t.bytes += bytes
	t.ns += ns
}

func (t *sum) cost() float64 { return t.ns / t.bytes }

// push adds a sample in ns per byte.
func (e *estimate) push(x float64) {
	e.last[e.samples%len(e.last)] = x
	e.samples++
}

// median returns the median of the last samples, and the lower one of two, since disturbances
// only add time.
func (e *estimate) median() float64 {
	a, b, c := e.last[0], e.last[1], e.last[2]
	switch e.samples {
	case 1:
		return a
	case 2:
		return min(a, b)
	}
	return max(min(a, b), min(max(a, b), c))
}

// least returns the lowest of the last samples.
func (e *estimate) least() float64 {
	x := e.last[0]
	for _, y := range e.last[1:min(e.samples, len(e.last))] {
		x = min(x, y)
	}
	return x
}

// Estimate is the measured speed of one option.
type Estimate[O ~uint8] struct {
	Option O
	// Messages is the number of measured messages.
	Messages uint64
	GBs      float64
	IsBest   bool
}

// Best returns the option of the lowest cost.
func (s *Selector[O]) Best() O { return s.best }

// Probes returns the number of probes behind the warm-up.
func (s *Selector[O]) Probes() uint64 { return s.probes }

// Estimates returns an entry for each measured option.
func (s *Selector[O]) Estimates() (all []Estimate[O]) {
	for o := range s.options() {
		if e := &s.estimates[o]; e.messages > 0 && e.cost > 0 {
			all = append(all, Estimate[O]{o, e.messages, 1 / e.cost, o == s.best})
		}
	}
	return all
}

// Costs are the costs of all options for one kind of message, in ns per byte. 0 is an unknown
// cost.
type Costs [MaxOptions]float32

// Lowest returns the option of the lowest known cost, or MaxOptions without any.
func (c Costs) Lowest() int {
	lowest := MaxOptions
	for o, cost := range c {
		if cost > 0 && (lowest == MaxOptions || cost < c[lowest]) {
			lowest = o
		}
	}
	return lowest
}

// Costs returns the measured costs, and reports whether the warm-up has ended. Only the costs
// of a warm selector are worth passing to Start.
func (s *Selector[O]) Costs() (c Costs, isWarm bool) {
	for o := range s.options() {
		if e := &s.estimates[o]; e.messages > 0 {
			c[o] = float32(e.cost)
		}
	}
	return c, s.isWarm
}

// Start starts the selector with costs that were measured elsewhere. The option of the lowest
// cost is the first guess, and hopeless ones skip the warm-up. Start has no effect without a
// known cost, nor after the first Select.
func (s *Selector[O]) Start(c Costs) {
	best := c.Lowest()
	if best >= s.shape.Options || s.selections > 0 {
		return
	}
	s.best = O(best)
	for o := range s.options() {
		if c[o] <= 0 {
			continue
		}
		e := &s.estimates[o]
		if *e = (estimate{ratio: 1, cost: float64(c[o]), isStale: true}); c[o] > hopeless*c[best] {
			e.skipWarmup()
		}
	}
}

// skipWarmup leaves an option to later probes.
func (e *estimate) skipWarmup() { e.probes, e.probedAt = warmupProbes, -maxLate }

// Inherit starts the selector with the costs of a neighboring kind of message, if that is warm.
func (s *Selector[O]) Inherit(like *Selector[O]) {
	if c, isWarm := like.Costs(); isWarm {
		s.Start(c)
	}
}
