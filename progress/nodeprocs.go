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
	nodeProcs   atomic.Int32
	streamCount atomic.Int32
	pollerCount atomic.Int32
	// Value of waitLimits.spinTime while waits do not yield at once. Constant.
	longSpin time.Duration
	// Processors that the processes of the node share; constant.
	processorCount int32
	// Waits yield at once while pollerCount is larger; constant.
	yieldAbove int32
}

// SetNodeProcs sets the number of processes that share the node, this one included. Waits follow
// it after the next one that reads the clock. It never blocks, and needs no lock.
func (e *Engine) SetNodeProcs(n int) {
	e.processEngine.nodeProcs.Store(int32(n))
	e.processEngine.setPollers()
}

// SetStreams sets the number of open streams of the process. Each stream has an engine. Waits of several streams poll at a
// time. It never blocks, and needs no lock.
func (e *Engine) SetStreams(n int) {
	e.processEngine.streamCount.Store(int32(n))
	e.processEngine.setPollers()
}

// setPollers updates the number of waits that may poll at a time on the node. Each process is taken to have the streams of this
// one.
func (l *nodeLoad) setPollers() {
	l.pollerCount.Store(l.nodeProcs.Load() * max(1, l.streamCount.Load()))
}

// NodeProcs returns the number of processes that share the node; 0 if it is unknown. No lock is
// needed.
func (e *Engine) NodeProcs() int { return int(e.processEngine.nodeProcs.Load()) }

// IsOversubscribed reports whether the processes that share the node outnumber its processors.
// No lock is needed.
func (e *Engine) IsOversubscribed() bool {
	return e.processEngine.nodeProcs.Load() > e.processEngine.processorCount
}

// yieldsAtOnce reports whether waits yield from the first polls on. No lock is needed.
func (l *nodeLoad) yieldsAtOnce() bool { return l.pollerCount.Load() > l.yieldAbove }

// followPollers updates the fields of a process's engine that its waits use. Short waits
// don't load the number. Lock held.
//
//go:noinline
func (e *Engine) followPollers(n int32) {
	e.usesGosched = sharesP()
	e.followedPollers, e.isOversubscribed = n, n > e.yieldAbove
	e.pollBudget, e.spinTime = pollBudgetOf(e.isOversubscribed), e.longSpin
	if e.isOversubscribed {
		e.spinTime = min(e.spinTime, OversubscribedSpin)
	}
}
