package selector

// Estimate is the measured speed of one protocol.
type Estimate struct {
	Protocol Protocol
	// Measured messages.
	Messages uint64
	GBs      float64
	IsBest   bool
}

// Best returns the protocol of the lowest estimated cost.
func (s *Selector) Best() Protocol { return s.best }

// Estimates returns an entry for each measured protocol.
func (s *Selector) Estimates() (all []Estimate) {
	for p := range Protocols {
		if e := &s.estimates[p]; e.samples > 0 && e.messages > 0 {
			all = append(all, Estimate{p, e.messages, 1 / e.cost, p == s.best})
		}
	}
	return all
}

// Probes returns the number of probes after the warm-up.
func (s *Selector) Probes() uint64 { return s.probes }
