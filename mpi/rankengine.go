package mpi

import "github.com/ferrympi/ferry/progress"

// rankEngine is the progress engine of one rank, and what package mpi keeps beside it. A
// process has one, and each goroutine rank another.
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

// pollTries polls the waiting steps of a goroutine rank after a step that may let them complete. Nothing else polls
// them while the rank's waits are parked. Lock held.
func (r *rankEngine) pollTries() {
	if len(r.tries.list) > 0 && r.progress.IsRank() {
		r.tries.Poll()
	}
}
