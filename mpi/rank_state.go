package mpi

import (
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/progress"
)

// rankState is the progress engine of one rank, with the state of package mpi for it. A process has one, and each goroutine rank another one.
type rankState struct {
	engine       *progress.Engine
	nullRequests nullOwner
	// Guarded by the engine's lock.
	freeExchanges []*exchange
	// Resources of collective operations.
	run.Rank
}

// init prepares the state. pieces are those of the process.
func (r *rankState) init(e *progress.Engine, pieces *run.Pieces) {
	r.engine, r.nullRequests.engine = e, e
	r.Rank.Init(e, pieces)
}
