// Package queries decides when a process that leaves queries unanswered counts as dead. The process
// that sends the queries counts its own ticks and not the time, so that its own suspension makes no
// other process late.
package queries

import (
	"fmt"
	"sync/atomic"
	"time"
)

// most is the number of queries without an answer in a timeout.
const most = 5

// minPeriod limits the load of a tiny timeout.
const minPeriod = 10 * time.Millisecond

// Period returns the time between two ticks for a timeout above 0.
func Period(timeout time.Duration) time.Duration { return max(timeout/most, minPeriod) }

// Run calls tick every Period(timeout) until done is closed.
func Run(timeout time.Duration, done <-chan struct{}, tick func()) {
	ticker := time.NewTicker(Period(timeout))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			tick()
		case <-done:
			return
		}
	}
}

// A Record counts the queries over one connection. Received may be called concurrently with Tick.
type Record struct {
	// A message has arrived since the last tick.
	received   atomic.Bool
	unanswered int
}

// Received records a message of the peer. Any message is an answer.
func (r *Record) Received() { r.received.Store(true) }

// Tick reports whether the peer has left queries unanswered for the timeout. If it has not, the caller
// sends another query.
func (r *Record) Tick() (isLate bool) {
	if r.received.Swap(false) {
		r.unanswered = 0
	}
	r.unanswered++
	return r.unanswered > most
}

// Reason is that of a death.
func Reason(timeout time.Duration) string {
	return fmt.Sprintf("it has answered no query for %v (bootstrap.process_timeout), although its host answers", timeout)
}
