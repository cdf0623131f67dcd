package choose

// A change of the machine: processors have moved, or a neighbour has come. It has a moment, and then it is over.

// hasChanged says that the best way has become another one, which cost so much before.
func (c *Chooser) hasChanged(before float64) {
	for w := range Ways {
		a := &c.arms[w]
		if c.again == 0 { // else it goes on
			a.usual = 0
			if w == c.best {
				a.usual = before
			}
		}
		a.stale = w != c.best
		a.flatters, a.lies, a.proofs, a.proven = 0, 0, 0, w == c.best
	}
	c.again = c.count + c.settling()
	c.pending, c.changed = All, true
}

// settling is how long a change is waited for. In windows the next measurement of the way in use is later.
func (c *Chooser) settling() int64 {
	switch {
	case c.steady:
		return settlesIn
	case c.burst > 1:
		return 3 * run
	}
	return settles
}

// settle has the next messages go by the way that was best before a change, some time after it, if it was
// better then than the best is now. The second of them, or their first measurement, says whether it still is.
func (c *Chooser) settle() {
	if c.again == 0 || c.count < c.again {
		return
	}
	c.again = 0
	least, before := better*c.arms[c.best].cost, Ways
	for w := range Ways {
		a := &c.arms[w]
		if w != c.best && a.usual > 0 && a.usual < least {
			least, before = a.usual, w
		}
		a.usual = 0
	}
	if before == Ways {
		return
	}
	a := &c.arms[before]
	a.cost, a.stale, a.n, a.partial, a.proofs = least, true, 1, partial{}, 0
	if c.burst > 1 {
		c.toProve(a, false)
	}
	if !c.steady {
		c.after = 1 // it finds what another way has left in the caches
	}
}

// atLength returns the ways that are to be tried at length, once each was tried shortly
// after a change.
func (c *Chooser) atLength() Set {
	if c.changed {
		c.changed = false
		for w := range Ways {
			if a := &c.arms[w]; a.n > 0 && !a.stale && a.cost <= close*c.arms[c.best].cost {
				c.long |= Of(w)
			}
		}
	}
	return c.long
}
