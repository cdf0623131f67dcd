package pml

import "github.com/ferrympi/ferry/progress"

// What package mpi needs to wait for several requests at once. See
// progress.Engine.WaitAny.

// Engine returns the engine whose lock guards the request.
func (r *Request) Engine() *progress.Engine { return r.engine }

// Live reports whether a handle of that generation still stands for the
// request: it was neither used up nor freed. Engine's lock held.
func (r *Request) Live(generation uint32) bool {
	return r.generation.Load() == generation && !r.released
}
