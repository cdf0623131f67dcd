package run

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/progress"
)

// queueStep queues a step for the communicator's goroutine, and starts that if it does not run. The
// goroutine ends when the queue is empty. Lock held.
func (n *nonblocking) queueStep(e *progress.Engine, s step) {
	if n.work = append(n.work, s); !n.isWorking {
		n.isWorking = true
		h := s.k.env.Host
		e.Go(func() { n.label(e, h); n.runSteps(e) })
	}
}

// label sets the profile labels of the goroutine.
func (n *nonblocking) label(e *progress.Engine, h Host) {
	if !n.hasLabels {
		n.labels, n.hasLabels = h.Labels(), true
	}
	e.Label(n.labels)
}

// errNoReturn is the error of an operation of the program that has ended its goroutine.
var errNoReturn = errors.New("it ended its goroutine")

// runSteps executes queued steps until the queue is empty. A function of the program may panic.
func (n *nonblocking) runSteps(e *progress.Engine) {
	var s step
	e.Lock()
	defer func() {
		if s.Operation != nil { // The lock is not held.
			h := s.k.env.Host
			why := any(errNoReturn)
			if v := recover(); v != nil {
				why = v
			}
			e.Lock()
			s.busy--
			s.stop(fmt.Errorf("%w: %v", ErrPanicked, why))
			s.advance()
			if n.isWorking = len(n.work) > 0; n.isWorking {
				e.Go(func() { n.label(e, h); n.runSteps(e) })
			}
		}
		e.Release()
	}()
	for len(n.work) > 0 {
		s, n.work = n.work[0], n.work[1:]
		e.Release()
		s.local(s.i)
		e.Lock()
		o, i := s.Operation, s.i
		s.Operation = nil
		o.busy--
		o.stepDone(i, nil)
		o.advance()
	}
	n.work, n.isWorking = nil, false
}
