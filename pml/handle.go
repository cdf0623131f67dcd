package pml

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Methods for package mpi, which takes several requests under one lock of the engine.

// Engine returns the engine whose lock guards the request.
func (r *Request) Engine() *progress.Engine { return r.engine }

// Live reports whether a handle with this generation is valid, that is neither released nor freed. The engine's lock is
// held.
func (r *Request) Live(generation uint32) bool {
	return r.generation == generation && r.exceptions&exceptionFreed == 0
}

// TakeDone takes a request that has completed without an error, the usual case when many are taken. It returns false for
// any other. If st is not nil, it gets the status, which is copied once. The engine's lock is held.
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

// Take is Test without progress. A suspended request stays. The engine's lock is held.
func (r *Request) Take(generation uint32) (st Status, done bool, err error) {
	switch {
	case !r.Live(generation):
		return NoMessage(), false, framework.ErrClosed
	case !r.Done():
		return NoMessage(), false, nil
	case r.exceptions != 0:
		return NoMessage(), false, r.suspendReason
	}
	// Copied field by field, see mpi.Comm.Recv.
	err = r.Status.Err
	st = Status{Source: r.Status.Source, Tag: r.Status.Tag, Bytes: r.Status.Bytes, Canceled: r.Status.Canceled, Err: err}
	r.recycle()
	return st, true, err
}

// TakeIfDone is TakeDone for callers without the lock.
func (r *Request) TakeIfDone(generation uint32) bool {
	r.engine.Lock()
	done := r.TakeDone(generation, nil)
	r.engine.Unlock()
	return done
}
