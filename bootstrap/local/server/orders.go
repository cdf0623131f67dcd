package server

import "sync"

// Orders is a queue without a limit between a server and its launcher. The zero Orders is
// not usable; NewOrders makes one.
type Orders struct {
	ready chan struct{} // Has room for one; full if there may be orders.

	mu     sync.Mutex
	orders []Order
}

// NewOrders returns an empty queue.
func NewOrders() *Orders { return &Orders{ready: make(chan struct{}, 1)} }

// Add is for Options.Order. It does not block.
func (q *Orders) Add(o Order) {
	q.mu.Lock()
	q.orders = append(q.orders, o)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default: // The launcher has not taken the orders before.
	}
}

// Ready receives after each Add. Take follows.
func (q *Orders) Ready() <-chan struct{} { return q.ready }

// Take returns the orders since the previous Take, the oldest first. There may be none.
func (q *Orders) Take() []Order {
	q.mu.Lock()
	defer q.mu.Unlock()
	orders := q.orders
	q.orders = nil
	return orders
}
