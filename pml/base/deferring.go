package base

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Deferring is a goroutine rank's view of a Comm that belongs to the engine of the process. Blocking
// and nonblocking operations use the Comm directly, and complete in the process's engine. Operations
// that start under the rank's lock (StartSend, StartRecv, Claimed.Start) are deferred until that
// lock is released. They have a request of the rank's engine, which completes with the Comm's own
// request.
type Deferring struct {
	pml.Comm
	pool *DeferredPool
	// Number of deferred operations that the Comm has not started.
	unstartedOps atomic.Int32
}

// DeferredPool is the free list of a rank's deferred requests. The rank's lock guards it.
type DeferredPool struct {
	rankEngine, processEngine *progress.Engine
	freeRequests              *deferred
}

// NewDeferredPool returns the pool of a rank with these engines.
func NewDeferredPool(rank, process *progress.Engine) *DeferredPool {
	return &DeferredPool{rankEngine: rank, processEngine: process}
}

// NewDeferring returns the view of c for the rank of a pool.
func NewDeferring(c pml.Comm, pool *DeferredPool) *Deferring {
	return &Deferring{Comm: c, pool: pool}
}

// Unwrap lets framework.As find the optional interfaces of the Comm.
func (d *Deferring) Unwrap() any { return d.Comm }

// awaitStarted waits until the Comm has started all deferred operations, so that later ones do not
// overtake them. It runs their tasks if no other goroutine does. No lock is held.
func (d *Deferring) awaitStarted() {
	for d.unstartedOps.Load() > 0 {
		d.pool.rankEngine.Lock()
		d.pool.rankEngine.Release()
		runtime.Gosched()
	}
}

// Send implements pml.Comm.
func (d *Deferring) Send(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	d.awaitStarted()
	return d.Comm.Send(ctx, buf, dst, tag, plane, mode)
}

// Isend implements pml.Comm.
func (d *Deferring) Isend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	d.awaitStarted()
	return d.Comm.Isend(buf, dst, tag, plane, mode)
}

// Recv implements pml.Comm.
func (d *Deferring) Recv(ctx context.Context, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	d.awaitStarted()
	return d.Comm.Recv(ctx, buf, src, tag, plane)
}

// Irecv implements pml.Comm.
func (d *Deferring) Irecv(buf pml.Buffer, src, tag int, plane pml.Plane) (*pml.Request, error) {
	d.awaitStarted()
	return d.Comm.Irecv(buf, src, tag, plane)
}

// Close implements pml.Comm.
func (d *Deferring) Close() {
	d.awaitStarted()
	d.Comm.Close()
}

// StartSend implements pml.Comm under the rank's lock. All errors are those of the request.
func (d *Deferring) StartSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	return d.start(deferral{kind: deferredSend, userBuf: buf, peerRank: dst, tag: tag, plane: plane, mode: mode}), nil
}

// StartRecv implements pml.Comm under the rank's lock.
func (d *Deferring) StartRecv(buf pml.Buffer, src, tag int, plane pml.Plane) *pml.Request {
	return d.start(deferral{kind: deferredRecv, userBuf: buf, peerRank: src, tag: tag, plane: plane})
}

// Improbe implements pml.Comm.
func (d *Deferring) Improbe(src, tag int, plane pml.Plane) (pml.Claimed, pml.Status, bool, error) {
	k, st, ok, err := d.Comm.Improbe(src, tag, plane)
	return d.claim(k), st, ok, err
}

// Mprobe implements pml.Comm.
func (d *Deferring) Mprobe(ctx context.Context, src, tag int, plane pml.Plane) (pml.Claimed, pml.Status, error) {
	k, st, err := d.Comm.Mprobe(ctx, src, tag, plane)
	return d.claim(k), st, err
}

func (d *Deferring) claim(k pml.Claimed) pml.Claimed {
	if k == nil {
		return nil
	}
	return &deferringClaimed{Claimed: k, view: d}
}

// deferringClaimed is Deferring for a claimed message.
type deferringClaimed struct {
	pml.Claimed
	view *Deferring
	// Start or Drop was called. The rank's lock guards it.
	isUsed bool
}

// Start implements pml.Claimed.
func (k *deferringClaimed) Start(buf pml.Buffer) (*pml.Request, error) {
	if k.isUsed {
		return nil, framework.ErrClosed
	}
	k.isUsed = true
	return k.view.start(deferral{kind: deferredClaimed, userBuf: buf, claimedMessage: k.Claimed}), nil
}

// Drop implements pml.Claimed.
func (k *deferringClaimed) Drop() {
	if !k.isUsed {
		k.isUsed = true
		k.view.pool.rankEngine.Defer(k)
	}
}

// Run implements progress.Task. It drops the message.
func (k *deferringClaimed) Run(t *progress.Tasks) {
	e := k.view.pool.processEngine
	t.LockProcess(e)
	k.Claimed.Drop()
	t.UnlockProcess(e)
}
