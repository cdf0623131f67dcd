package mpi

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/progress"
)

// In all functions here a request that completes is replaced by the zero
// Request in reqs, as MPI replaces it by MPI_REQUEST_NULL: the same slice can be
// waited for again and again.

// WaitAll waits until all requests are complete (MPI_Waitall). st may be nil, or
// as long as reqs: then each Status has its operation's own Err. The error joins
// those of all that failed. If ctx ends, the requests that are not complete stay
// as they are, with ErrPending in their Status.
func WaitAll(ctx context.Context, reqs []Request, st []Status) error {
	if err := checkStatuses(reqs, st); err != nil {
		return err
	}
	var failed []error
	for i := range reqs {
		q := reqs[i]
		s, err := q.Wait(ctx)
		if err != nil {
			failed = append(failed, fmt.Errorf("request %d: %w", i, err))
			if ctx != nil && ctx.Err() != nil && q.r.Generation() == q.gen {
				rest := sweep(reqs[i:], tail(st, i))
				return errors.Join(append(failed, rest)...)
			}
		}
		keep(reqs, st, i, s, err)
	}
	return errors.Join(failed...)
}

func tail(st []Status, i int) []Status {
	if st == nil {
		return nil
	}
	return st[i:]
}

// sweep tests each request once; what is pending gets ErrPending.
func sweep(reqs []Request, st []Status) error {
	var failed []error
	for i := range reqs {
		s, done, err := reqs[i].Test()
		switch {
		case err != nil:
			failed = append(failed, err)
		case !done:
			if st != nil {
				st[i] = noMessage()
				st[i].Err = ErrPending
			}
			continue
		}
		keep(reqs, st, i, s, err)
	}
	return errors.Join(failed...)
}

// keep stores the outcome of a request that is used up.
func keep(reqs []Request, st []Status, i int, s Status, err error) {
	reqs[i] = Request{}
	if st != nil {
		st[i] = s
		st[i].Err = err
	}
}

func checkStatuses(reqs []Request, st []Status) error {
	if st != nil && len(st) < len(reqs) {
		return fmt.Errorf("%w: %d statuses for %d requests", ErrTruncate, len(st), len(reqs))
	}
	return nil
}

// TestAll is WaitAll without waiting (MPI_Testall): if not all are complete the
// result is false, and nothing has changed.
func TestAll(reqs []Request, st []Status) (bool, error) {
	if err := checkStatuses(reqs, st); err != nil {
		return false, err
	}
	for _, q := range reqs {
		// A failed one is complete too: its error comes below.
		if _, done, err := q.Status(); !done && err == nil {
			return false, nil
		}
	}
	return true, WaitAll(context.Background(), reqs, st)
}

// WaitAny waits until one of the requests is complete (MPI_Waitany), and returns
// its index, Status and error. Without any active request the index is
// Undefined, at once. If ctx ends first the index is Undefined, and all requests
// stay as they are.
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

// waitAny blocks until one of the requests is complete, or used up by somebody.
func waitAny(ctx context.Context, reqs []Request) error {
	var space [16]*progress.Completion // more allocate
	waitFor := space[:0]
	var e *progress.Engine
	for _, q := range reqs {
		if q.r == nil {
			continue
		}
		if e == nil {
			e = q.r.Engine()
			e.Lock()
		}
		if !q.r.Live(q.gen) {
			e.Unlock()
			return nil // TestAny will say so
		}
		waitFor = append(waitFor, &q.r.Completion)
	}
	if e == nil {
		return nil
	}
	defer e.Unlock()
	return e.WaitAny(ctx, waitFor)
}

// TestAny is WaitAny without waiting (MPI_Testany): the result is false, with the
// index Undefined, if none is complete; true with Undefined if none is active.
func TestAny(reqs []Request) (int, Status, bool, error) {
	active := false
	for i, q := range reqs {
		if q.r == nil {
			continue
		}
		active = true
		if s, done, err := q.Test(); done || err != nil {
			reqs[i] = Request{}
			s.Err = err
			return i, s, true, err
		}
	}
	return Undefined, noMessage(), !active, nil
}
