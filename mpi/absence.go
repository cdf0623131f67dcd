package mpi

import (
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// absence records the handles of communicators that are closed in this process, or will not be created. Guarded by
// process.mu.
type absence struct {
	closed map[cid.Extended]closedEndpoints
	// The keys of closed by age; a ring once it is full.
	order   []cid.Extended
	oldest  int
	refused []refusedSpan
}

// closedEndpoints has the endpoints that have closed their handles of one communicator. It is nil if all endpoints of this
// process have.
type closedEndpoints []uint16

// mostClosed limits the communicators in absence.closed. The record of the oldest one is dropped first.
const mostClosed = 1 << 16

// close records a closed handle. local is the number of the communicator's ranks in this process.
func (a *absence) close(key cid.EndpointID, local int) {
	if a.closed == nil {
		a.closed = map[cid.Extended]closedEndpoints{}
	}
	endpoints, isRecorded := a.closed[key.Extended]
	if !isRecorded {
		a.makeRoom(key.Extended)
	}
	if len(endpoints)+1 == local {
		endpoints = nil
	} else {
		endpoints = append(endpoints, key.Endpoint)
	}
	a.closed[key.Extended] = endpoints
}

// makeRoom enters the key of a new record, in place of the oldest one if the limit is reached.
func (a *absence) makeRoom(id cid.Extended) {
	if len(a.order) < mostClosed {
		a.order = append(a.order, id)
		return
	}
	delete(a.closed, a.order[a.oldest])
	a.order[a.oldest] = id
	a.oldest = (a.oldest + 1) % mostClosed
}

// hasClosed reports whether a handle is recorded as closed.
func (a *absence) hasClosed(key cid.EndpointID) bool {
	endpoints, isRecorded := a.closed[key.Extended]
	return isRecorded && (endpoints == nil || slices.Contains(endpoints, key.Endpoint))
}

// allClosed reports whether all handles of a communicator in this process are recorded as closed.
func (a *absence) allClosed(id cid.Extended) bool {
	endpoints, isRecorded := a.closed[id]
	return isRecorded && endpoints == nil
}

// refusedSpan is a call of refuseHandles.
type refusedSpan struct {
	span     cid.Span
	endpoint int
}

// isAbsent reports whether a handle that is not open is closed, or will not be created. mu held.
func (e *process) isAbsent(key cid.EndpointID) bool {
	return e.absence.hasClosed(key) || e.HasRefused(key.Extended) || slices.ContainsFunc(e.absence.refused, func(r refusedSpan) bool {
		return r.span.Has(key.Extended) && (r.endpoint == pml.AllEndpoints || r.endpoint == int(key.Endpoint))
	})
}

// areAllAbsent reports whether all handles of a communicator in this process are closed, or will not be created. mu held.
func (e *process) areAllAbsent(id cid.Extended) bool {
	return e.absence.allClosed(id) || e.HasRefused(id) || slices.ContainsFunc(e.absence.refused, func(r refusedSpan) bool {
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
	if !slices.Contains(e.absence.refused, r) {
		e.absence.refused = append(e.absence.refused, r)
	}
	e.mu.Unlock()
}
