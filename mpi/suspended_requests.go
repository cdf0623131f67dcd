package mpi

import "fmt"

// Suspended requests are receives from AnySource after the failure of a member (AckFailed).

// firstSuspended returns the index of the first suspended request, and the reason; Undefined if there is none. lock is nil if
// all have one engine. The engine's lock is held then.
func firstSuspended(lock *lockCursor, reqs []Request) (int, error) {
	for i, q := range reqs {
		if q.pmlRequest == nil {
			continue
		}
		if lock != nil {
			lock.moveTo(q.pmlRequest.Engine())
		}
		if why := q.pmlRequest.Suspended(q.generation); why != nil {
			return i, why
		}
	}
	return Undefined, nil
}

// suspendedAny returns the results of TestAny without a complete request. i is Undefined, or why the reason for which request
// i is suspended.
func suspendedAny(i int, why error) (int, Status, bool, error) {
	s := noMessage()
	s.Err = why
	return i, s, false, why
}

// takeSomeOrWhy is takeSome, with the error of the first suspended request if none is complete.
func takeSomeOrWhy(lock *lockCursor, reqs []Request, done []int, st []Status) (int, error) {
	n, err := takeSome(lock, reqs, done, st)
	if n > 0 || err != nil {
		return n, err
	}
	if i, why := firstSuspended(lock, reqs); why != nil {
		return 0, fmt.Errorf("request %d: %w", i, why)
	}
	return 0, nil
}

// keepOrLeave is keep, unless the request is active because it is suspended, or because its context has ended.
func keepOrLeave(reqs []Request, st []Status, i, at int, s Status, err error) {
	if err == nil || reqs[i].pmlRequest.Stale(reqs[i].generation) {
		keep(reqs, st, i, at, s, err)
	} else if st != nil {
		st[at] = noMessage()
		st[at].Err = err
	}
}
