package run

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/progress"
)

// queueStep queues a step for the communicator's goroutine, and starts that if it does not run. The
// goroutine ends when the queue is empty. Lock held.
func (n *nonblocking) queueStep(e *progress.Engine, s step) {
	if n.goroutineSteps = append(n.goroutineSteps, s); !n.isWorking {
		n.isWorking = true
		h := s.collState.env.Host
		e.Go(func() { n.label(e, h); n.runSteps(e) })
	}
}

// label sets the profile labels of the goroutine.
func (n *nonblocking) label(e *progress.Engine, h Host) {
	if !n.hasLabels {
		n.profileLabels, n.hasLabels = h.Labels(), true
	}
	e.Label(n.profileLabels)
}

// errNoReturn is the error of an operation of the program that has ended its goroutine.
var errNoReturn = errors.New("it ended its goroutine")

// runSteps executes queued steps until the queue is empty. A function of the program may panic.
func (n *nonblocking) runSteps(e *progress.Engine) {
	var s step
	e.Lock()
	defer func() {
		if s.Operation != nil { // The lock is not held.
			h := s.collState.env.Host
			why := any(errNoReturn)
			if v := recover(); v != nil {
				why = v
			}
			e.Lock()
			s.pendingStepCount--
			s.stop(fmt.Errorf("%w: %v", ErrPanicked, why))
			s.advance()
			if n.isWorking = len(n.goroutineSteps) > 0; n.isWorking {
				e.Go(func() { n.label(e, h); n.runSteps(e) })
			}
		}
		e.Release()
	}()
	for len(n.goroutineSteps) > 0 {
		s, n.goroutineSteps = n.goroutineSteps[0], n.goroutineSteps[1:]
		e.Release()
		s.local(s.stepIndex)
		e.Lock()
		o, i := s.Operation, s.stepIndex
		s.Operation = nil
		o.pendingStepCount--
		o.stepDone(i, nil)
		o.advance()
	}
	n.goroutineSteps, n.isWorking = nil, false
}
