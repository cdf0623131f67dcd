package mpi

import (
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// absence records the handles of communicators that are closed in this process, or will not be created. Guarded by
// process.mu.
type absence struct {
	closedByID map[cid.Extended]closedEndpoints
	// A ring once it is full.
	idsByAge     []cid.Extended
	oldestIndex  int
	refusedSpans []refusedSpan
}

// closedEndpoints has the endpoints that have closed their handles of one communicator. It is nil if all endpoints of this
// process have.
type closedEndpoints []uint16

// mostClosed limits the communicators in absence.closedByID. The record of the oldest one is dropped first.
const mostClosed = 1 << 16

// close records a closed handle. local is the number of the communicator's ranks in this process.
func (a *absence) close(key cid.EndpointID, local int) {
	if a.closedByID == nil {
		a.closedByID = map[cid.Extended]closedEndpoints{}
	}
	endpoints, isRecorded := a.closedByID[key.Extended]
	if !isRecorded {
		a.makeRoom(key.Extended)
	}
	if len(endpoints)+1 == local {
		endpoints = nil
	} else {
		endpoints = append(endpoints, key.Endpoint)
	}
	a.closedByID[key.Extended] = endpoints
}

// makeRoom enters the key of a new record, in place of the oldest one if the limit is reached.
func (a *absence) makeRoom(id cid.Extended) {
	if len(a.idsByAge) < mostClosed {
		a.idsByAge = append(a.idsByAge, id)
		return
	}
	delete(a.closedByID, a.idsByAge[a.oldestIndex])
	a.idsByAge[a.oldestIndex] = id
	a.oldestIndex = (a.oldestIndex + 1) % mostClosed
}

// hasClosed reports whether a handle is recorded as closed.
func (a *absence) hasClosed(key cid.EndpointID) bool {
	endpoints, isRecorded := a.closedByID[key.Extended]
	return isRecorded && (endpoints == nil || slices.Contains(endpoints, key.Endpoint))
}

// allClosed reports whether all handles of a communicator in this process are recorded as closed.
func (a *absence) allClosed(id cid.Extended) bool {
	endpoints, isRecorded := a.closedByID[id]
	return isRecorded && endpoints == nil
}

// refusedSpan is a call of refuseHandles.
type refusedSpan struct {
	span     cid.Span
	endpoint int
}

// isAbsent reports whether a handle that is not open is closed, or will not be created. mu held.
func (e *process) isAbsent(key cid.EndpointID) bool {
	return e.absence.hasClosed(key) || e.HasRefused(key.Extended) || slices.ContainsFunc(e.absence.refusedSpans, func(r refusedSpan) bool {
		return r.span.Has(key.Extended) && (r.endpoint == pml.AllEndpoints || r.endpoint == int(key.Endpoint))
	})
}

// areAllAbsent reports whether all handles of a communicator in this process are closed, or will not be created. mu held.
func (e *process) areAllAbsent(id cid.Extended) bool {
	return e.absence.allClosed(id) || e.HasRefused(id) || slices.ContainsFunc(e.absence.refusedSpans, func(r refusedSpan) bool {
		return r.endpoint == pml.AllEndpoints && r.span.Has(id)
	})
}

// refuseHandles records that the handles of the span will not be created. Notes for them are answered from now on.
func (e *process) refuseHandles(span cid.Span, endpoint int) {
	if span == (cid.Span{}) {
		return
	}
	e.mu.Lock()
	r := refusedSpan{span, endpoint}
	if !slices.Contains(e.absence.refusedSpans, r) {
		e.absence.refusedSpans = append(e.absence.refusedSpans, r)
	}
	e.mu.Unlock()
}
