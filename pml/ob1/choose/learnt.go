package choose

// Best returns the way that seems best.
func (c *Chooser) Best() Way { return c.best }

// Learnt is what is known of one way.
type Learnt struct {
	Way      Way
	Messages uint64  // that were measured
	GBs      float64 // bytes per ns
	Used     bool    // it seems best
}

// Learnt returns what is known of each way that was taken.
func (c *Chooser) Learnt() (all []Learnt) {
	for w := range Ways {
		if a := &c.arms[w]; a.n > 0 && a.total > 0 {
			all = append(all, Learnt{w, a.total, 1 / a.cost, w == c.best})
		}
	}
	return all
}

// Tries returns how many times another way than the best was tried, after the first ones.
func (c *Chooser) Tries() uint64 { return c.tried }
