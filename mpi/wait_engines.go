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
	held *progress.Engine
	// Whether held is closed.
	closed bool
}

// lockOf returns a cursor that holds the lock of e.
func lockOf(e *progress.Engine) lockCursor {
	e.Lock()
	return lockCursor{e, e.IsClosed()}
}

// moveTo makes l hold the lock of e, and no other.
func (l *lockCursor) moveTo(e *progress.Engine) {
	if e != l.held {
		l.held.Unlock()
		e.Lock()
		l.held, l.closed = e, e.IsClosed()
	}
}

// release ends the use of l.
func (l *lockCursor) release() { l.held.Unlock() }

// progress polls each engine of the requests once.
func (l *lockCursor) progress(reqs []Request) {
	var space [8]*progress.Engine // A larger number allocates.
	polled := space[:0]
	for _, q := range reqs {
		if q.r != nil && !slices.Contains(polled, q.r.Engine()) {
			polled = append(polled, q.r.Engine())
			l.moveTo(q.r.Engine())
			l.held.Progress()
		}
	}
}

// takeOneOf is takeOne for a request with a lock that l acquires. A pending request of a closed engine cannot complete, and is consumed with an error.
// If l is nil, the lock is held and the engine is open.
func takeOneOf(l *lockCursor, q Request) (Status, bool, error) {
	if l != nil {
		l.moveTo(q.r.Engine())
		if l.closed && q.r.Live(q.gen) && (!q.r.Done() || q.r.Suspended(q.gen) != nil) {
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
			if q.r == nil {
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
		if q.r == nil {
			continue
		}
		lock.moveTo(q.r.Engine())
		if q.r.Live(q.gen) && !q.r.Done() {
			_ = m.Add(lock.held, &q.r.Completion)
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
		if q.r == nil {
			continue
		}
		lock.moveTo(q.r.Engine())
		if !q.r.Live(q.gen) || q.r.Done() {
			return true, nil
		}
		switch err := m.Add(lock.held, &q.r.Completion); {
		case errors.Is(err, ErrClosed):
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return false, nil
}
