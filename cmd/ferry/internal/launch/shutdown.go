package launch

import (
	"syscall"
	"time"
)

// stage is the state of a job. The stages failing and terminating last Grace each.
type stage int

const (
	running     stage = iota
	failing           // A rank failed; the others were notified, and may finish.
	terminating       // The ranks got SIGTERM, or another signal that ends programs.
	killed            // The ranks got SIGKILL.
	draining          // All ranks have ended; their output is on its way.
	ended             // All output and notes are written, or abandoned.
)

// shutdown is the progress of a job to its end, with the reasons for it.
type shutdown struct {
	stage    stage
	stageEnd *time.Timer

	isTimedOut bool
	// The ranks got a signal that ends programs.
	isAsked bool
	// By the user, the time limit or the context. Output has Grace to be read.
	isCut bool
	// SIGINTs and SIGTERMs.
	interruptCount int
	// Last signal that ends programs, or 0.
	interruptedBy syscall.Signal
	// Second interrupt, or 0.
	killedBy syscall.Signal
}

// hasBegun reports whether the job is ending, so that no change of it begins.
func (d *shutdown) hasBegun() bool { return d.stage != running || d.interruptedBy != 0 || d.isCut }

// enter begins a stage that lasts Grace.
func (d *shutdown) enter(next stage) {
	d.stage = next
	d.stageEnd.Reset(Grace)
}

// drain begins the stage draining. Its time is limited only if the job was cut.
func (d *shutdown) drain() {
	d.stage = draining
	d.stageEnd.Stop()
	if d.isCut {
		d.stageEnd.Reset(Grace)
	}
}

// cut marks a job that ends by the user's will, or because its time is up.
func (d *shutdown) cut() {
	if !d.isCut && d.stage == draining {
		d.stageEnd.Reset(Grace)
	}
	d.isCut = true
}

// resume restarts the time of the stage, which ran on while the job was stopped.
func (d *shutdown) resume() {
	if d.stageEnd.Stop() {
		d.stageEnd.Reset(Grace)
	}
}
