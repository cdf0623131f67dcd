package choose

import "math"

// Some ways are fast as long as they are taken now and then: frames find room in lines that have rested. So what
// tries say of a way is compared with its first measurements in use. If those are worse, what tries say is not to be
// believed the next time, and it does not mean that the machine has changed.

// doubted takes in what a try says of a way, and returns it as it is to be believed.
func (c *Chooser) doubted(w Way, x float64) float64 {
	a := &c.arms[w]
	a.proof = math.Inf(1)
	switch {
	case c.steady:
		a.proofs = 1
	case c.burst > 1:
		a.proofs = run / shortRun
	default:
		a.proofs = first
	}
	if a.flatters <= 1 {
		return x
	}
	x *= a.flatters
	a.flatters += (1 - a.flatters) / forgives
	return x
}

// prove takes in one of the first measurements of the best way in use.
func (c *Chooser) prove(x float64) {
	a := &c.arms[c.best]
	if c.burst > 1 && a.proofs == run/shortRun {
		a.proofs--
		return // it is fast still
	}
	if a.proof = min(a.proof, x); a.proofs > 1 && (c.burst == 1 || a.proof < spike*a.cost) {
		a.proofs--
		return
	}
	a.proofs = 0
	if ratio := a.proof / a.cost; ratio > shifted {
		a.flatters = max(a.flatters, 1) * ratio
		a.n, a.stale, a.cost, a.lately, a.recent = 1, false, a.proof, a.proof, [5]float64{a.proof}
		return
	}
	a.add(a.proof, true, c.burst > 1)
}
