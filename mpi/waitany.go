package mpi

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// In all functions here, a completed request is replaced by the zero Request in reqs, as MPI replaces it by MPI_REQUEST_NULL, so that the same slice can
// be waited for repeatedly. Requests of one engine are tested under one lock, and a test makes progress at most once. wait_engines.go has the case
// of several engines.

// WaitAll blocks until all requests are complete (MPI_Waitall). st is nil or has the length of reqs. Each Status then has the Err of its operation. The
// error joins those of all failed operations. If ctx ends, incomplete requests stay active, with ErrPending in their Status. Receives from AnySource
// for which Request.Wait returns ErrProcFailedPending stay active with that error, and WaitAll waits for the others.
func WaitAll(ctx context.Context, reqs []Request, st []Status) error {
	if err := checkRoom(reqs, st); err != nil {
		return err
	}
	var failed []error
	var suspended []int
	var e *progress.Engine // Its lock is held.
	for i := 0; i < len(reqs); i++ {
		if i += takeDone(e, reqs[i:], tail(st, i)); i == len(reqs) {
			break
		}
		q := reqs[i]
		if q.pmlRequest == nil {
			keep(reqs, st, i, i, noMessage(), nil)
			continue
		}
		if other := q.pmlRequest.Engine(); other != e {
			unlock(e)
			e = other
			e.Lock()
		}
		if !q.pmlRequest.Done() {
			if progress.SeveralEngines() && hasSeveral(reqs[i:]) {
				e.Unlock()
				waitEngines(ctx, reqs[i:])
				e.Lock()
			} else {
				waitLast(ctx, e, reqs[i:]) // By then most others are complete.
			}
		}
		s, err := q.pmlRequest.WaitLocked(ctx, q.generation, nil) // All paths are polled, because other requests may complete.
		if err != nil && q.pmlRequest.Suspended(q.generation) != nil {
			suspended = append(suspended, i)
			if st != nil { // ctx may end.
				st[i] = noMessage()
				st[i].Err = err
			}
			continue
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("request %d: %w", i, requestError(ctx, err)))
			if ctx != nil && ctx.Err() != nil && q.pmlRequest.Live(q.generation) {
				unlock(e)
				rest := sweep(reqs[i:], tail(st, i))
				return errors.Join(append(failed, rest)...)
			}
		}
		keep(reqs, st, i, i, Status(s), err)
	}
	unlock(e)
	for _, i := range suspended {
		s, err := reqs[i].Wait(ctx)
		if err != nil {
			failed = append(failed, fmt.Errorf("request %d: %w", i, err))
		}
		keepOrLeave(reqs, st, i, i, s, err)
	}
	return errors.Join(failed...)
}

// takeDone takes requests from the front, as long as they are e's, complete, and
// went well, and returns how many. e's lock held.
func takeDone(e *progress.Engine, reqs []Request, st []Status) int {
	var s *pml.Status
	for i := range reqs {
		q := &reqs[i]
		if st != nil {
			s = (*pml.Status)(&st[i])
		}
		if q.pmlRequest == nil || q.pmlRequest.Engine() != e || !q.pmlRequest.TakeDone(q.generation, s) {
			return i
		}
		*q = Request{}
	}
	return len(reqs)
}

// waitLast waits for the last pending request, by when most others have completed. If the wait ends early, the caller's own wait returns the reason. The
// lock of e is held.
func waitLast(ctx context.Context, e *progress.Engine, reqs []Request) {
	for i := len(reqs) - 1; i > 0; i-- {
		q := &reqs[i]
		if q.pmlRequest == nil || q.pmlRequest.Engine() != e || !q.pmlRequest.Live(q.generation) || q.pmlRequest.Done() {
			continue
		}
		_ = e.Wait(ctx, &q.pmlRequest.Completion, nil)
		return
	}
}

func unlock(e *progress.Engine) {
	if e != nil {
		e.Unlock()
	}
}

func tail(st []Status, i int) []Status {
	if st == nil {
		return nil
	}
	return st[i:]
}

// sweep tests each request once. Pending ones get ErrPending.
func sweep(reqs []Request, st []Status) error {
	var failed []error
	for i := range reqs {
		s, done, err := reqs[i].Test()
		switch {
		case err != nil:
			failed = append(failed, err)
			if !done {
				keepOrLeave(reqs, st, i, i, s, err)
				continue
			}
		case !done:
			if st != nil {
				st[i] = noMessage()
				st[i].Err = ErrPending
			}
			continue
		}
		keep(reqs, st, i, i, s, err)
	}
	return errors.Join(failed...)
}

// keep stores the outcome of request i, which is used up, in place at of st.
func keep(reqs []Request, st []Status, i, at int, s Status, err error) {
	reqs[i] = Request{}
	if st != nil {
		st[at] = s
		st[at].Err = err
	}
}

func checkRoom(reqs []Request, st []Status) error {
	if st != nil && len(st) < len(reqs) {
		return fmt.Errorf("%w: %d statuses for %d requests", ErrTruncate, len(st), len(reqs))
	}
	return nil
}

// TestAll is WaitAll without blocking (MPI_Testall). If not all requests are complete it returns false, and changes nothing. If Request.Test returns
// ErrProcFailedPending for all incomplete ones, it returns that error.
func TestAll(reqs []Request, st []Status) (bool, error) {
	if err := checkRoom(reqs, st); err != nil {
		return false, err
	}
	if e, several := engineOf(reqs); e != nil {
		lock := lockOf(e)
		all, why := allDone(&lock, reqs)
		if !all || why != nil {
			if several {
				lock.progress(reqs)
			} else {
				e.Progress()
			}
			all, why = allDone(&lock, reqs)
		}
		lock.release()
		if !all || why != nil {
			return false, why
		}
	}
	return true, WaitAll(context.Background(), reqs, st)
}

// allDone reports whether a wait for any of the requests would return at once, and returns an error if some are
// suspended then.
func allDone(lock *lockCursor, reqs []Request) (all bool, err error) {
	for i, q := range reqs {
		if q.pmlRequest == nil {
			continue
		}
		lock.moveTo(q.pmlRequest.Engine())
		if q.pmlRequest.Live(q.generation) && !q.pmlRequest.Done() && !lock.isEngineClosed {
			return false, nil
		}
		if why := q.pmlRequest.Suspended(q.generation); why != nil && !lock.isEngineClosed {
			err = errors.Join(err, fmt.Errorf("request %d: %w", i, why))
		}
	}
	return true, err
}

// engineOf returns the engine of the first active request, nil if none is active, and
// whether others have another engine.
func engineOf(reqs []Request) (e *progress.Engine, several bool) {
	first := 0
	for first < len(reqs) && reqs[first].pmlRequest == nil {
		first++
	}
	if first == len(reqs) {
		return nil, false
	}
	e = reqs[first].pmlRequest.Engine()
	for _, q := range reqs[first+1:] {
		if q.pmlRequest != nil && q.pmlRequest.Engine() != e {
			return e, true
		}
	}
	return e, false
}

// hasSeveral reports whether the active requests have several engines.
func hasSeveral(reqs []Request) bool {
	_, several := engineOf(reqs)
	return several
}

// takeOne is Test of one request without progress. Its engine's lock is held. The result is false for a suspended one.
func takeOne(q Request) (Status, bool, error) {
	s, done, err := q.pmlRequest.Take(q.generation)
	if done || err == nil || q.pmlRequest.Suspended(q.generation) == nil {
		return Status(s), done || err != nil, err
	}
	return noMessage(), false, nil
}

// WaitAny waits until one of the requests is complete (MPI_Waitany), and returns
// its index, Status and error. Without any active request the index is
// Undefined, at once. If ctx ends first the index is Undefined, and all requests
// stay as they are. If none is complete, and one is a receive for which Request.Wait returns
// ErrProcFailedPending, the results are its index and that error, and the request stays active.
func WaitAny(ctx context.Context, reqs []Request) (int, Status, error) {
	for {
		i, s, done, err := TestAny(reqs)
		if done || err != nil {
			return i, s, err
		}
		if err := waitAny(ctx, reqs); err != nil {
			return Undefined, noMessage(), requestError(ctx, err)
		}
	}
}

// waitAny blocks until one of the requests is complete or consumed by another goroutine.
func waitAny(ctx context.Context, reqs []Request) error {
	e, several := engineOf(reqs)
	if several {
		return waitAnyEngine(ctx, reqs)
	}
	if e == nil {
		return nil
	}
	var space [16]*progress.Completion // A larger number allocates.
	waitFor := space[:0]
	e.Lock()
	defer e.Unlock()
	for _, q := range reqs {
		if q.pmlRequest == nil {
			continue
		}
		if !q.pmlRequest.Live(q.generation) {
			return nil // The next test returns the error.
		}
		waitFor = append(waitFor, &q.pmlRequest.Completion)
	}
	return e.WaitAny(ctx, waitFor)
}

// TestAny is WaitAny without blocking (MPI_Testany). It returns false with the index Undefined if no request is complete, true with Undefined if none is
// active, and false with the index of a request for ErrProcFailedPending.
func TestAny(reqs []Request) (int, Status, bool, error) {
	e, several := engineOf(reqs)
	if e == nil {
		return Undefined, noMessage(), true, nil
	}
	e.Lock()
	if several || e.IsClosed() {
		e.Unlock()
		return testAnyEngine(reqs)
	}
	defer e.Unlock()
	for round := range 2 {
		for i, q := range reqs {
			if q.pmlRequest == nil {
				continue
			}
			if s, done, err := takeOne(q); done {
				reqs[i] = Request{}
				s.Err = err
				return i, s, true, err
			}
		}
		if round == 0 {
			e.Progress()
		}
	}
	i, why := firstSuspended(nil, reqs)
	return suspendedAny(i, why)
}

// WaitSome waits until at least one of the requests is complete (MPI_Waitsome),
// and takes all that are. It returns how many; their indices are in done, and
// their statuses, each with its own Err, in the same places of st, which may be
// nil. Both have room for all of reqs. Without any active request the number is
// Undefined, at once. The error joins those of all that failed. If ctx ends
// first the number is 0, and all requests stay as they are. If none is complete, and some are
// receives for which Request.Wait returns ErrProcFailedPending, the number is 0 and the error is that of
// the first one; they stay active.
func WaitSome(ctx context.Context, reqs []Request, done []int, st []Status) (int, error) {
	for {
		n, err := TestSome(reqs, done, st)
		if n != 0 || err != nil {
			return n, err
		}
		if err := waitAny(ctx, reqs); err != nil {
			return 0, requestError(ctx, err)
		}
	}
}

// TestSome is WaitSome without blocking (MPI_Testsome). It returns 0 if no request is complete.
func TestSome(reqs []Request, done []int, st []Status) (int, error) {
	if err := checkRoom(reqs, st); err != nil {
		return 0, err
	}
	if len(done) < len(reqs) {
		return 0, fmt.Errorf("%w: room for %d indices of %d requests", ErrTruncate, len(done), len(reqs))
	}
	e, several := engineOf(reqs)
	if e == nil {
		return Undefined, nil
	}
	e.Lock()
	if several || e.IsClosed() {
		e.Unlock()
		return testSomeEngines(reqs, done, st)
	}
	defer e.Unlock()
	if n, err := takeSome(nil, reqs, done, st); n > 0 {
		return n, err
	}
	e.Progress()
	return takeSomeOrWhy(nil, reqs, done, st)
}

// takeSome takes all completed requests, and returns their number. done and st get their indices and statuses. lock is nil if all have one engine, which
// is open and locked.
func takeSome(lock *lockCursor, reqs []Request, done []int, st []Status) (n int, err error) {
	var failed []error
	for i, q := range reqs {
		if q.pmlRequest == nil {
			continue
		}
		s, complete, err := takeOneOf(lock, q)
		if !complete {
			continue
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("request %d: %w", i, err))
		}
		keep(reqs, st, i, n, s, err)
		done[n] = i
		n++
	}
	return n, errors.Join(failed...)
}
