package pml

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// What package mpi needs to look at several requests at once: it takes the
// engine's lock itself.

// Engine returns the engine whose lock guards the request.
func (r *Request) Engine() *progress.Engine { return r.engine }

// Live reports whether a handle of that generation still stands for the
// request: it was neither used up nor freed. Engine's lock held.
func (r *Request) Live(generation uint32) bool {
	return r.generation == generation && r.exceptions&exceptionFreed == 0
}

// TakeDone is Take of a request that is complete and went well, which is the usual
// case when many are taken. Of any other it takes nothing and reports false. st, if
// not nil, gets the status, which is copied once. Engine's lock held.
func (r *Request) TakeDone(generation uint32, st *Status) bool {
	if !r.Done() || r.generation != generation || r.exceptions != 0 || r.Status.Err != nil {
		return false
	}
	if st != nil {
		*st = r.Status
	}
	r.recycle()
	return true
}

// Take is Test without progress. A suspended request stays. Engine's lock held.
func (r *Request) Take(generation uint32) (st Status, done bool, err error) {
	switch {
	case !r.Live(generation):
		return NoMessage(), false, framework.ErrClosed
	case !r.Done():
		return NoMessage(), false, nil
	case r.exceptions != 0:
		return NoMessage(), false, r.suspendReason
	}
	// Field by field: see mpi.Comm.Recv.
	err = r.Status.Err
	st = Status{Source: r.Status.Source, Tag: r.Status.Tag, Bytes: r.Status.Bytes, Canceled: r.Status.Canceled, Err: err}
	r.recycle()
	return st, true, err
}

// TakeIfDone is TakeDone for a caller who does not hold the lock.
func (r *Request) TakeIfDone(generation uint32) bool {
	r.engine.Lock()
	done := r.TakeDone(generation, nil)
	r.engine.Unlock()
	return done
}
