package mpi

import "github.com/ferrympi/ferry/progress"

// rankState is the progress engine of one rank, with the state of package mpi for it. A process has one, and each goroutine rank another one.
type rankState struct {
	progress *progress.Engine
	nulls    nullOwner
	// Free list; guarded by progress's lock.
	operations []*operation
	// Free list; guarded by progress's lock.
	exchanges    []*exchange
	pendingSteps pendingSteps
}

func (r *rankState) init(e *progress.Engine) {
	r.progress, r.nulls.engine, r.pendingSteps.engine = e, e, e
}

// pollPendingSteps polls the pending steps of a goroutine rank after a step that may complete them. While the rank's waits are parked, no other code polls them.
// The lock is held.
func (r *rankState) pollPendingSteps() {
	if len(r.pendingSteps.list) > 0 && r.progress.IsRank() {
		r.pendingSteps.Poll()
	}
}
