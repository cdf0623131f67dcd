package run

import (
	"context"
	"runtime/pprof"
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/progress"
)

// mostRunning bounds a communicator's operations that exchange something at the same time.
// Further ones are queued. All ranks start them in the same order, so that an
// operation depends on none that was started after it.
const mostRunning = 1000

// nonblocking is the state of a communicator's nonblocking operations.
type nonblocking struct {
	// Number of running and waiting operations. Changes with the engine's lock held.
	unfinishedCount atomic.Int32

	// The fields below are guarded by the engine's lock. Both lists are in the order of the starts,
	// and queued operations follow the running ones.
	running, queued []*Operation
	// startQueued is active in a caller.
	isStarting bool
	// Of a blocking collective in awaitQueued, or nil.
	blockedCall    *progress.Completion
	goroutineSteps []step
	// The goroutine runs.
	isWorking bool
	// The communicator is closed, and its resources go with the last operation.
	isClosing bool

	// Of the goroutine, which alone uses them. hasLabels is set after the first use.
	profileLabels pprof.LabelSet
	hasLabels     bool
}

// mostAhead is the largest distance in sequence numbers of a collective from the oldest running one.
// Tags repeat after coll.MaxTag+1 sequence numbers, and a blocking call may use several.
const mostAhead = coll.MaxTag - 64

// tagsFree reports whether no running operation has one of the tags of sequence numbers before end.
// Lock held.
func (n *nonblocking) tagsFree(end uint32) bool {
	return len(n.running) == 0 || end-n.running[0].call.Sequence <= mostAhead
}

// mayRun reports whether the first queued operation, with sequence numbers before end, may run. Lock
// held.
func (n *nonblocking) mayRun(end uint32) bool {
	return len(n.running) < mostRunning && n.tagsFree(end)
}

// run begins an operation. Lock held.
func (n *nonblocking) run(o *Operation) {
	n.running = append(n.running, o)
	o.execution.Begin(&o.schedule)
	o.advance()
}

// startQueued runs queued operations in order, as far as mayRun allows. Lock held.
func (n *nonblocking) startQueued() {
	if n.isStarting { // By the end of an operation that it has started.
		return
	}
	n.isStarting = true
	for len(n.queued) > 0 && n.mayRun(n.queued[0].nextSequence) {
		o := n.queued[0]
		n.queued[0] = nil
		n.queued = n.queued[1:]
		n.run(o)
	}
	n.isStarting = false
}

// awaitQueued waits until all nonblocking operations are running, and none of them has a tag of
// the blocking collective that begins. Called inside Do.
func (k *State) awaitQueued(ctx context.Context) error {
	n, e := &k.nonblocking, k.engine()
	e.Lock()
	defer e.Unlock()
	for len(n.queued) > 0 || !n.tagsFree(k.operationCount) {
		n.blockedCall = new(progress.Completion)
		err := e.Wait(ctx, n.blockedCall, nil)
		n.blockedCall = nil
		if err != nil {
			return err
		}
		if err := k.CheckUsable(); err != nil {
			return err
		}
	}
	return nil
}

// Closing reports whether operations of the closed communicator are in progress.
// Host.OperationsEnded is then called at the end of the last one.
func (k *State) Closing() bool {
	if !k.hasResources.Load() {
		return false
	}
	if k.promoteEarly != nil { // Also during a Start or Wait, which may promote it.
		k.promoteEarly()
	}
	e := k.engine()
	e.Lock()
	defer e.Unlock()
	k.nonblocking.isClosing = k.nonblocking.unfinishedCount.Load() > 0
	return k.nonblocking.isClosing
}
