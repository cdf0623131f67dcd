package ob1

import "slices"

// copyList are the requests with copies between processes that this process steps. Each of them
// is listed once. The engine's lock guards it.
type copyList struct {
	// requests has nil entries for requests that have been removed during an iteration.
	requests []*request
	// isStepping is set while stepCopies iterates.
	isStepping bool
}

func (l *copyList) add(r *request) { l.requests = append(l.requests, r) }

// remove removes a request, if it is listed. An iteration deletes the entry itself.
func (l *copyList) remove(r *request) {
	i := slices.Index(l.requests, r)
	switch {
	case i < 0:
	case l.isStepping:
		l.requests[i] = nil
	default:
		l.requests = slices.Delete(l.requests, i, i+1)
	}
}

// addCopy adds a request with a stepper as its transfer, and takes a step of all copies.
func (m *Module) addCopy(r *request) {
	m.copies.add(r)
	m.stepCopies()
}

// stepCopies takes one step of each copy between processes. A request that is added during the
// iteration gets its step as well. It returns the number of steps that made progress. Lock held.
func (m *Module) stepCopies() (n int) {
	l := &m.copies
	if l.isStepping {
		return 0
	}
	l.isStepping = true
	for i := 0; i < len(l.requests); {
		r := l.requests[i]
		more := false
		if r != nil {
			// The last step may complete r. Its notifier may use r again and add it.
			l.requests[i] = nil
			var steps int
			steps, more = r.rndv.transfer.(stepper).progress(r)
			n += steps
		}
		if more {
			l.requests[i] = r
			i++
		} else {
			l.requests = slices.Delete(l.requests, i, i+1)
		}
	}
	l.isStepping = false
	return n
}
