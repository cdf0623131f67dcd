package server

import "sync"

// A Queue passes values to one reader, without a limit. Launchers use it for the callbacks of
// Options that must not block, such as Order.
type Queue[T any] struct {
	// Has room for one value, and has it if there may be values.
	readyCh chan struct{}

	mu     sync.Mutex
	values []T
}

// NewQueue returns an empty queue.
func NewQueue[T any]() *Queue[T] { return &Queue[T]{readyCh: make(chan struct{}, 1)} }

// Add adds a value. It does not block.
func (q *Queue[T]) Add(v T) {
	q.mu.Lock()
	q.values = append(q.values, v)
	q.mu.Unlock()
	select {
	case q.readyCh <- struct{}{}:
	default: // The reader has not taken the earlier values.
	}
}

// Ready receives after each Add. Call Take next.
func (q *Queue[T]) Ready() <-chan struct{} { return q.readyCh }

// Take returns the values since the previous Take in their order. There may be none.
func (q *Queue[T]) Take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	values := q.values
	q.values = nil
	return values
}
