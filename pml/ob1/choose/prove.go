package choose

// prove takes in one of the first measurements of the best way in use. Some ways are fast as long as they are
// taken now and then: frames find room in lines that have rested. What tries say of such a way is not to be
// believed the next time, and that it is slower in use does not mean that the machine has changed.
func (c *Chooser) prove(x float64) {
	a := &c.arms[c.best]
	if c.burst > 1 && c.proofs == run/shortRun {
		c.proofs--
		return // it is fast still
	}
	if c.proof = min(c.proof, x); c.proofs > 1 && (c.burst == 1 || c.proof < spike*a.cost) {
		c.proofs--
		return
	}
	c.proofs = 0
	if ratio := c.proof / a.cost; ratio > shifted {
		a.flatters = max(a.flatters, 1) * ratio
		a.n, a.cost, a.lately, a.recent = 1, c.proof, c.proof, [5]float64{c.proof}
		return
	}
	a.add(c.proof, true, c.burst > 1)
}
