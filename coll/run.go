package coll

// A Run tracks the execution of a schedule whose steps complete in any order. It selects the steps
// to start and records completions, and does not execute them.
type Run struct {
	steps      []Step
	isComplete []bool
	// Index of the first step that has not started.
	nextStep int
	// All steps before this index are complete.
	firstIncomplete int
}

// Begin starts over with the steps of s, which must not change until the run is complete.
func (r *Run) Begin(s *Schedule) {
	r.steps, r.nextStep, r.firstIncomplete = s.Steps, 0, 0
	if cap(r.isComplete) < len(s.Steps) {
		r.isComplete = make([]bool, len(s.Steps))
	}
	r.isComplete = r.isComplete[:len(s.Steps)]
	clear(r.isComplete)
}

// CompleteFirst marks the first n steps as complete. Call it right after Begin.
func (r *Run) CompleteFirst(n int) {
	r.nextStep, r.firstIncomplete = n, n
	for i := range n {
		r.isComplete[i] = true
	}
}

// NextStep returns the next step to start. ok is false if none may start before others complete.
func (r *Run) NextStep() (i int, ok bool) {
	if r.nextStep == len(r.steps) || int(r.steps[r.nextStep].After) > r.firstIncomplete {
		return 0, false
	}
	r.nextStep++
	return r.nextStep - 1, true
}

// Complete records the completion of a started step.
func (r *Run) Complete(i int) {
	r.isComplete[i] = true
	for r.firstIncomplete < r.nextStep && r.isComplete[r.firstIncomplete] {
		r.firstIncomplete++
	}
}

// IsComplete reports whether all steps are complete.
func (r *Run) IsComplete() bool { return r.firstIncomplete == len(r.steps) }
