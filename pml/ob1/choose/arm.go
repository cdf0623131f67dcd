package choose

// arm is what is known of one way.
type arm struct {
	n      int        // messages that count
	stale  bool       // the machine has changed since
	cost   float64    // ns per byte
	lately float64    // the same, of the last few messages only
	usual  float64    // before the machine changed, until that is over; or 0
	recent [5]float64 // the last messages, in a ring
	total  uint64     // messages that were ever measured
	at     int64      // Chooser.count at the last one

	flatters float64 // how much more it has cost in use than tries had said; or 0
	lies     int     // how many times that was found out, up to mostLies
	proofs   int     // measurements in use that have yet to confirm what tries said
	proof    float64 // the least of those that were made
	tried    bool    // it was tries that said it
	proven   bool    // it was in use since the machine changed, and its cost is what that has shown
	begins   float64 // how much of its cost is the beginnings of windows
	expected float64 // not tried yet: its cost to that of the best way of messages much alike

	owed    int // tries whose time is not known yet
	partial partial
}

// partial are messages that are not a measurement yet.
type partial struct {
	messages  int
	bytes, ns float64
	longest   [outliers]message // of these, the longest first
}

type message struct{ bytes, ns float64 }

// add takes in one more.
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

// most returns them without the longest.
func (p *partial) most() message {
	m := message{p.bytes, p.ns}
	for _, l := range p.longest {
		m.bytes -= l.bytes
		m.ns -= l.ns
	}
	return m
}

// measured returns the ns per byte that are the next measurement of a way, if a message
// completes one.
func (c *Chooser) measured(w Way, bytes, ns float64) (x float64, ok bool) {
	a := &c.arms[w]
	p := &a.partial
	p.add(message{bytes, ns})
	enough := max(c.burst-1, 1)
	inUse := c.burst > 1 && w == c.best && (a.n >= first || a.proofs > 0)
	if inUse {
		enough = run
	}
	if p.messages < enough && !(inUse && a.proofs > 0 && p.messages > 2*outliers && c.failed(p.most().ns/bytes)) {
		return 0, false
	}
	if x = p.ns / p.bytes; inUse {
		x = c.inWindows(a, p)
	}
	*p = partial{}
	return x, true
}

// inWindows returns what messages of a way in use cost on average. What the longest of them add is the beginning of a
// window, and whatever interrupts a process: it is learnt by itself, and moves slowly. (Of windows shorter than half a run more
// messages than those are beginnings; they count as the others do.)
func (c *Chooser) inWindows(a *arm, p *partial) (x float64) {
	most, usual := p.most(), a.begins
	pace := most.ns / most.bytes
	begins := min(max(p.ns/p.bytes-pace, 0), doubtful*pace)
	if usual > 0 {
		begins = min(max(begins, usual/beginning), usual*beginning)
	}
	if a.proven {
		begins = usual + (begins-usual)/4
	}
	a.begins = begins
	return pace + begins
}

// begins is what the beginnings of windows would add to what a try of a way has taken: as much as they do by the way in use, or what
// they did when this one was in use, if that is not much more.
func (c *Chooser) begins(a *arm) float64 {
	best := c.arms[c.best].begins
	if a.proven {
		return min(a.begins, beginning*best)
	}
	return best
}

// unlikely reports whether the way was not tried because of what is expected of it.
func (a *arm) unlikely() bool { return a.expected > 0 && a.n == 0 }

// add takes one more measurement, and reports whether the way has become another one.
func (a *arm) add(x float64, inUse, runs bool) (changed bool) {
	if a.stale {
		a.stale, a.n = false, 0
	}
	a.recent[a.n%len(a.recent)] = x
	a.n++
	if a.n <= first {
		a.cost = median(a.recent[:a.n])
		a.lately = a.cost
		return false
	}
	most := float64(spike)
	if inUse && runs {
		most = spikeOfRuns
	}
	x = min(max(x, a.cost/most), a.cost*most)
	slow := float64(forgets)
	if inUse {
		few := float64(soon)
		if runs {
			few = soonOfRuns
		}
		a.lately += (x - a.lately) / few
		changed = a.lately > shifted*a.cost || a.lately < a.cost/shifted
	} else {
		// There are few. Two in a row say that it is another one.
		slow = 4
		last := median([]float64{a.recent[(a.n-1)%len(a.recent)], a.recent[(a.n-2)%len(a.recent)], a.recent[(a.n-3)%len(a.recent)]})
		changed = last > far*a.cost || last < a.cost/far
	}
	if changed {
		var last [5]float64 // three of them, the latest one behind the others
		for i := range first {
			last[i] = a.recent[(a.n-first+i)%len(a.recent)]
		}
		a.n, a.recent = first, last
		a.cost = median(last[:first])
		a.lately = a.cost
		return true
	}
	a.cost += (x - a.cost) / min(float64(a.n), slow)
	if !inUse {
		a.lately = a.cost
	}
	if a.n >= 1<<30 {
		a.n = forgets * len(a.recent)
	}
	return false
}

// median returns the middle of up to five numbers; of two the smaller one, since what
// disturbs a message makes it slower.
func median(of []float64) float64 {
	var s [5]float64
	n := copy(s[:], of)
	for i := 1; i < n; i++ {
		for k := i; k > 0 && s[k] < s[k-1]; k-- {
			s[k], s[k-1] = s[k-1], s[k]
		}
	}
	return s[(n-1)/2]
}
