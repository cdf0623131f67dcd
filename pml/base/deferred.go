package base

import (
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

type deferredKind uint8

const (
	deferredSend deferredKind = iota
	deferredRecv
	deferredClaimed
)

// deferral has the arguments of a deferred call.
type deferral struct {
	kind           deferredKind
	mode           pml.Mode
	plane          pml.Plane
	userBuf        pml.Buffer
	peerRank       int
	tag            int
	claimedMessage pml.Claimed
}

// deferred is a deferred operation, and the task that starts it. The rank's lock guards it.
type deferred struct {
	pml.Request
	pool *DeferredPool
	view *Deferring
	deferral

	// isStarted is set once the task has run, or is about to call the Comm. isCanceled is set
	// by a cancellation before that.
	isStarted  bool
	isCanceled bool
	// isReleased is set if the request was released while tasks refer to it.
	isReleased      bool
	deferredCancels int
	nextFree        *deferred

	// innerRequest is the request of the Comm. The process's lock guards it.
	innerRequest *pml.Request
}

// start defers an operation. The rank's lock is held.
func (d *Deferring) start(call deferral) *pml.Request {
	p := d.pool
	x := p.freeRequests
	if x == nil {
		x = &deferred{pool: p}
		x.Init(p.rankEngine, x)
	} else {
		p.freeRequests, x.nextFree = x.nextFree, nil
	}
	x.Request.Start()
	x.view, x.deferral = d, call
	x.isStarted, x.isCanceled, x.isReleased = false, false, false
	d.unstartedOps.Add(1)
	p.rankEngine.Defer(x)
	return &x.Request
}

// Run implements progress.Task.
func (x *deferred) Run(t *progress.Tasks) {
	d, p := x.view, x.pool
	t.LockProcess(p.processEngine)
	p.rankEngine.Lock()
	x.isStarted = true
	isCanceled := x.isCanceled
	p.rankEngine.ReleaseUnder()
	if isCanceled {
		st := pml.NoMessage()
		st.Canceled = true
		x.end(st)
	} else {
		x.followInner(x.startInner(d.Comm))
	}
	d.unstartedOps.Add(-1)
	t.UnlockProcess(p.processEngine)
}

// startInner starts the operation in the Comm. The process's lock is held.
func (x *deferred) startInner(c pml.Comm) (*pml.Request, error) {
	switch x.kind {
	case deferredSend:
		return c.StartSend(x.userBuf, x.peerRank, x.tag, x.plane, x.mode)
	case deferredRecv:
		return c.StartRecv(x.userBuf, x.peerRank, x.tag, x.plane), nil
	}
	return x.claimedMessage.Start(x.userBuf)
}

// followInner completes the request with that of the Comm. The process's lock is held.
func (x *deferred) followInner(r *pml.Request, err error) {
	switch {
	case err != nil:
		st := pml.NoMessage()
		st.Err = err
		x.end(st)
	case r.Done():
		x.Completed(r)
	default:
		x.innerRequest = r
		r.Notify(x)
	}
}

// Completed implements pml.Notifier.
func (x *deferred) Completed(r *pml.Request) {
	x.innerRequest = nil
	st, _, _ := r.Take(r.Generation())
	x.end(st)
}

// end completes the request. The process's lock is held.
func (x *deferred) end(st pml.Status) {
	e := x.pool.rankEngine
	e.Lock()
	x.Status, x.deferral = st, deferral{}
	x.Finish()
	e.ReleaseUnder()
}

// Cancel implements pml.Owner.
func (x *deferred) Cancel() {
	if !x.isStarted {
		x.isCanceled = true // Run completes it.
		return
	}
	x.deferredCancels++
	x.pool.rankEngine.Defer((*cancelDeferred)(x))
}

// cancelDeferred is the task that cancels an operation in the Comm.
type cancelDeferred deferred

// Run implements progress.Task.
func (k *cancelDeferred) Run(t *progress.Tasks) {
	x := (*deferred)(k)
	p := x.pool
	t.LockProcess(p.processEngine)
	if x.innerRequest != nil {
		x.innerRequest.CancelLocked()
	}
	t.UnlockProcess(p.processEngine)
	p.rankEngine.Lock()
	if x.deferredCancels--; x.deferredCancels == 0 && x.isReleased {
		x.recycle()
	}
	t.Release(p.rankEngine)
}

// Release implements pml.Owner.
func (x *deferred) Release() {
	if x.deferredCancels > 0 {
		x.isReleased = true
		return
	}
	x.recycle()
}

func (x *deferred) recycle() {
	x.view = nil
	x.nextFree, x.pool.freeRequests = x.pool.freeRequests, x
}

// First implements pml.Owner.
func (x *deferred) First() progress.Source { return nil }
