package choose

import "math"

// Some ways are fast as long as they are taken now and then: frames find room in lines that have rested. And in a window no
// try has the first message in it, which waits for the answer to the window before. So what tries say of a way is compared
// with its first measurements in use. If those are worse, what tries say is not to be believed the next time, and it
// does not mean that the machine has changed.

// doubted takes in what a try says of a way, and returns it as it is to be believed.
func (c *Chooser) doubted(w Way, x float64) float64 {
	a := &c.arms[w]
	c.toProve(a, true)
	if a.flatters <= 1 {
		return x
	}
	x *= a.flatters
	a.flatters += (1 - a.flatters) / float64(int(forgives)<<(a.lies-1))
	return x
}

// toProve says that a way has to confirm in use what is believed of it; tried is that tries have said so. A group is enough, and
// a run.
func (c *Chooser) toProve(a *arm, tried bool) {
	a.tried, a.proof, a.proofs = tried, math.Inf(1), 1
	if c.burst == 1 && !c.steady {
		a.proofs = first
	}
}

// failed reports whether some messages by the best way have already taken more than all of a run would by the way before;
// they are counted in the time of a byte of one message.
func (c *Chooser) failed(took float64) bool {
	before := &c.arms[c.before]
	return c.before != c.best && before.proven && took > run*before.cost
}

// prove takes in one of the first measurements of the best way in use. The least of them counts.
func (c *Chooser) prove(x float64) {
	a := &c.arms[c.best]
	a.proof = min(a.proof, x)
	if a.proofs--; a.proofs > 0 {
		return
	}
	a.proven = true
	if !c.begun {
		c.begun = true
		for w := range Ways { // the first tries knew nothing of how windows begin
			c.arms[w].cost += a.begins
		}
	}
	ratio := a.proof / a.cost
	if a.tried {
		a.proof = min(a.proof, worstLie*a.cost) // one run may have been disturbed
		switch f := max(a.flatters, 1) * ratio; {
		case f <= 1:
			a.flatters, a.lies = 0, 0
		case ratio > shifted:
			a.flatters = min(f, worstLie)
			a.lies = min(a.lies+1, mostLies)
		}
	}
	if ratio <= shifted && c.burst == 1 {
		a.add(a.proof, true, false)
		return
	}
	a.stale, a.cost, a.lately, a.recent = false, a.proof, a.proof, [5]float64{a.proof, a.proof, a.proof}
	if a.n = 1; c.burst > 1 {
		a.n = first // as good as that
	}
}
