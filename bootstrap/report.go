package bootstrap

import (
	"sync"

	"github.com/ferrympi/ferry/framework"
)

// reported has the conditions that this process has logged, because each session would log them
// again.
var reported sync.Map

// condition is a lasting condition of a process of a job.
type condition struct {
	proc framework.Proc
	name string
}

// FirstReport reports whether this is the first call of the program for a condition of a process of
// a job. The caller then logs the condition.
func FirstReport(p framework.Proc, name string) bool {
	_, isKnown := reported.LoadOrStore(condition{p, name}, nil)
	return !isKnown
}
