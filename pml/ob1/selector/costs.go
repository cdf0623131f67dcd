package selector

// Costs are the costs of all protocols for one kind of message, in ns per byte. 0 is an
// unknown cost.
type Costs [Protocols]float32

// Costs returns the measured costs, and reports whether the warm-up has ended. Only the costs
// of a warm selector are worth passing to Start.
func (s *Selector) Costs() (c Costs, isWarm bool) {
	for p := range Protocols {
		if e := &s.estimates[p]; e.samples > 0 && e.messages > 0 {
			c[p] = float32(e.cost)
		}
	}
	return c, s.isWarm
}

// best returns the protocol of the lowest known cost, or Protocols.
func (c *Costs) best() Protocol {
	best := Protocols
	for p := range Protocols {
		if c[p] > 0 && (best == Protocols || c[p] < c[best]) {
			best = p
		}
	}
	return best
}
