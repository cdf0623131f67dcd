package mpi

import "github.com/ferrympi/ferry/progress"

// rankEngine is the progress engine of one rank, with the state of package mpi for it. A process has one, and each goroutine rank another one.
type rankEngine struct {
	progress   *progress.Engine
	nulls      nullOwner
	operations []*operation // Free list; guarded by progress's lock.
	exchanges  []*exchange  // Free list; guarded by progress's lock.
	tries      tries
}

func (r *rankEngine) init(e *progress.Engine) {
	r.progress, r.nulls.engine, r.tries.engine = e, e, e
}

// pollTries polls the pending steps of a goroutine rank after a step that may complete them. While the rank's waits are parked, no other code polls them.
// The lock is held.
func (r *rankEngine) pollTries() {
	if len(r.tries.list) > 0 && r.progress.IsRank() {
		r.tries.Poll()
	}
}
