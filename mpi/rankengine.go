package mpi

import "github.com/ferrympi/ferry/progress"

// rankEngine is the progress engine of one rank, and what package mpi keeps beside it. A
// process has one, and each goroutine rank another.
type rankEngine struct {
	progress   *progress.Engine
	nulls      nullOwner
	operations []*operation // Free list; guarded by progress's lock.
	tries      tries
}

func (r *rankEngine) init(e *progress.Engine) {
	r.progress, r.nulls.engine, r.tries.engine = e, e, e
}

// release releases the lock after steps of instances, which may let other steps of the rank complete: nothing
// else polls them while its waits are parked.
func (r *rankEngine) release() {
	r.pollTries()
	r.progress.Release()
}

// pollTries polls the steps of a goroutine rank that wait. Lock held.
func (r *rankEngine) pollTries() {
	if len(r.tries.list) > 0 && r.progress.IsRank() {
		r.tries.Poll()
	}
}
