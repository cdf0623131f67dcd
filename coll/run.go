package coll

// A Run is a schedule that is carried out step by step by others, in any order of
// completion: it says what to start, and is told what is complete. It is pure.
type Run struct {
	steps []Step
	done  []bool
	next  int // the first step that has not started
	low   int // all steps before it are complete
}

// Begin starts over with the steps of s, which stay as they are until the run is over.
func (r *Run) Begin(s *Schedule) {
	r.steps, r.next, r.low = s.Steps, 0, 0
	if cap(r.done) < len(s.Steps) {
		r.done = make([]bool, len(s.Steps))
	}
	r.done = r.done[:len(s.Steps)]
	clear(r.done)
}

// Skip marks the first n steps as complete. It comes after Begin.
func (r *Run) Skip(n int) {
	r.next, r.low = n, n
	for i := range n {
		r.done[i] = true
	}
}

// Next returns a step to start now. false: none may start before others complete.
func (r *Run) Next() (i int, ok bool) {
	if r.next == len(r.steps) || int(r.steps[r.next].After) > r.low {
		return 0, false
	}
	r.next++
	return r.next - 1, true
}

// Done says that a step that has started is complete.
func (r *Run) Done(i int) {
	r.done[i] = true
	for r.low < r.next && r.done[r.low] {
		r.low++
	}
}

// Over reports whether all steps are complete.
func (r *Run) Over() bool { return r.low == len(r.steps) }
