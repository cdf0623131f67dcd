package progress

import (
	"sync/atomic"
	"time"
)

// The number of processes of the job on the node changes while the job runs, because processes are added and others end. The spinning of waits
// follows the number, as do the initial rendezvous protocol (pml/ob1) and the size of new rings (btl/shm). Goroutine ranks are not counted, since at
// most GOMAXPROCS of them poll at a time (pollPermit).

// nodeLoad is the number of waits that poll on the node, with the limits that depend on it.
type nodeLoad struct {
	nodeProcs atomic.Int32
	streams   atomic.Int32
	pollers   atomic.Int32
	// Value of waitLimits.spin while waits do not yield at once. Constant.
	longSpin time.Duration
	// Processors that the processes of the node share; constant.
	processors int32
	// Waits yield at once while pollers is larger; constant.
	yieldAbove int32
}

// SetNodeProcs sets the number of processes that share the node, this one included. Waits follow
// it after the next one that reads the clock. It never blocks, and needs no lock.
func (e *Engine) SetNodeProcs(n int) {
	e.process.nodeProcs.Store(int32(n))
	e.process.setPollers()
}

// SetStreams sets the number of open streams of the process. Each stream has an engine. Waits of several streams poll at a
// time. It never blocks, and needs no lock.
func (e *Engine) SetStreams(n int) {
	e.process.streams.Store(int32(n))
	e.process.setPollers()
}

// setPollers updates the number of waits that may poll at a time on the node. Each process is taken to have the streams of this
// one.
func (l *nodeLoad) setPollers() { l.pollers.Store(l.nodeProcs.Load() * max(1, l.streams.Load())) }

// NodeProcs returns the number of processes that share the node; 0 if it is unknown. No lock is
// needed.
func (e *Engine) NodeProcs() int { return int(e.process.nodeProcs.Load()) }

// IsOversubscribed reports whether the processes that share the node outnumber its processors.
// No lock is needed.
func (e *Engine) IsOversubscribed() bool { return e.process.nodeProcs.Load() > e.process.processors }

// yieldsAtOnce reports whether waits yield from the first polls on. No lock is needed.
func (l *nodeLoad) yieldsAtOnce() bool { return l.pollers.Load() > l.yieldAbove }

// followPollers updates the fields of a process's engine that its waits use. Short waits
// don't load the number. Lock held.
//
//go:noinline
func (e *Engine) followPollers(n int32) {
	e.gosched = sharesP()
	e.followed, e.oversubscribed = n, n > e.yieldAbove
	e.pollBudget, e.spin = pollBudgetOf(e.oversubscribed), e.longSpin
	if e.oversubscribed {
		e.spin = min(e.spin, OversubscribedSpin)
	}
}
