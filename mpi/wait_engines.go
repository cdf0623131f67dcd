package mpi

import (
	"context"
	"errors"
	"slices"

	"github.com/ferrympi/ferry/progress"
)

// Requests have several engines if they belong to goroutine ranks of one process, to a rank and its process, or to several processes with ranks as
// goroutines (package mpitest). One engine's lock is held at a time. A pending request of a closed engine returns ErrClosed.

// lockCursor holds the lock of one engine, that of the request that is accessed.
type lockCursor struct {
	lockedEngine *progress.Engine
	// Whether lockedEngine is closed.
	isEngineClosed bool
}

// lockOf returns a cursor that holds the lock of e.
func lockOf(e *progress.Engine) lockCursor {
	e.Lock()
	return lockCursor{e, e.IsClosed()}
}

// moveTo makes l hold the lock of e, and no other.
func (l *lockCursor) moveTo(e *progress.Engine) {
	if e != l.lockedEngine {
		l.lockedEngine.Unlock()
		e.Lock()
		l.lockedEngine, l.isEngineClosed = e, e.IsClosed()
	}
}

// release ends the use of l.
func (l *lockCursor) release() { l.lockedEngine.Unlock() }

// progress polls each engine of the requests once.
func (l *lockCursor) progress(reqs []Request) {
	var space [8]*progress.Engine // A larger number allocates.
	polled := space[:0]
	for _, q := range reqs {
		if q.pmlRequest != nil && !slices.Contains(polled, q.pmlRequest.Engine()) {
			polled = append(polled, q.pmlRequest.Engine())
			l.moveTo(q.pmlRequest.Engine())
			l.lockedEngine.Progress()
		}
	}
}

// takeOneOf is takeOne for a request with a lock that l acquires. A pending request of a closed engine cannot complete, and is consumed with an error.
// If l is nil, the lock is held and the engine is open.
func takeOneOf(l *lockCursor, q Request) (Status, bool, error) {
	if l != nil {
		l.moveTo(q.pmlRequest.Engine())
		if l.isEngineClosed && q.pmlRequest.Live(q.generation) && (!q.pmlRequest.Done() || q.pmlRequest.Suspended(q.generation) != nil) {
			return noMessage(), true, errInactive()
		}
	}
	return takeOne(q)
}

// testAnyEngine is TestAny of requests that have several engines, or a closed one.
func testAnyEngine(reqs []Request) (int, Status, bool, error) {
	e, _ := engineOf(reqs)
	lock := lockOf(e)
	defer lock.release()
	for round := range 2 {
		for i, q := range reqs {
			if q.pmlRequest == nil {
				continue
			}
			if s, done, err := takeOneOf(&lock, q); done {
				reqs[i] = Request{}
				s.Err = err
				return i, s, true, err
			}
		}
		if round == 0 {
			lock.progress(reqs)
		}
	}
	i, why := firstSuspended(&lock, reqs)
	return suspendedAny(i, why)
}

// testSomeEngines is TestSome of requests that have several engines, or a closed one.
func testSomeEngines(reqs []Request, done []int, st []Status) (int, error) {
	e, _ := engineOf(reqs)
	lock := lockOf(e)
	defer lock.release()
	if n, err := takeSome(&lock, reqs, done, st); n > 0 {
		return n, err
	}
	lock.progress(reqs)
	return takeSomeOrWhy(&lock, reqs, done, st)
}

// waitEngines blocks until all pending requests are complete, or ctx ends. At least one
// request is active. Errors are
// those of the caller's own wait for each request, which follows.
func waitEngines(ctx context.Context, reqs []Request) {
	m := progress.NewMultiWait()
	defer m.Remove()
	e, _ := engineOf(reqs)
	lock := lockOf(e)
	for _, q := range reqs {
		if q.pmlRequest == nil {
			continue
		}
		lock.moveTo(q.pmlRequest.Engine())
		if q.pmlRequest.Live(q.generation) && !q.pmlRequest.Done() {
			_ = m.Add(lock.lockedEngine, &q.pmlRequest.Completion)
		}
	}
	lock.release()
	_ = m.WaitAll(ctx)
}

// waitAnyEngine is waitAny of requests that have several engines.
func waitAnyEngine(ctx context.Context, reqs []Request) error {
	m := progress.NewMultiWait()
	defer m.Remove() // After the release of the lock.
	if ready, err := addAll(m, reqs); ready || err != nil {
		return err
	}
	return m.WaitAny(ctx)
}

// addAll adds requests, at least one of them active, to a wait. It returns true if a test
// of them returns at once.
func addAll(m *progress.MultiWait, reqs []Request) (ready bool, err error) {
	e, _ := engineOf(reqs)
	lock := lockOf(e)
	defer lock.release()
	for _, q := range reqs {
		if q.pmlRequest == nil {
			continue
		}
		lock.moveTo(q.pmlRequest.Engine())
		if !q.pmlRequest.Live(q.generation) || q.pmlRequest.Done() {
			return true, nil
		}
		switch err := m.Add(lock.lockedEngine, &q.pmlRequest.Completion); {
		case errors.Is(err, ErrClosed):
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return false, nil
}
