package mpi

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// Persistent is an operation with its arguments, which may be started again and
// again (MPI-4.1 sections 3.9, 4.2 and 6.13). It is inactive at first, and again after the Wait
// or Test that saw it complete. The buffer is the library's while it is active;
// a send sends the contents of the buffer at the start, except for a partitioned one (PsendInit). Use it by the
// pointer.
type Persistent struct {
	startRequest func() (Request, error)
	// Of resources besides the request, or nil.
	freeResources func() error
	// nil if the operation is not partitioned.
	partitionedOp *partitioned
	// Of a collective in shared memory, or nil.
	earlyOp *run.Early

	mu sync.Mutex
	// Of the last started operation.
	activeRequest Request
	isFreed       bool
}

// SendInit initializes a persistent send (MPI_Send_init). Arguments are checked now.
func (c *Comm) SendInit(buf []byte, dst, tag int) (*Persistent, error) {
	return c.sendInit(buf, dst, tag, pml.Standard)
}

// SsendInit initializes a persistent synchronous send (MPI_Ssend_init). Arguments are
// checked now.
func (c *Comm) SsendInit(buf []byte, dst, tag int) (*Persistent, error) {
	return c.sendInit(buf, dst, tag, pml.Synchronous)
}

// RsendInit initializes a persistent ready send (MPI_Rsend_init). Arguments are checked now. The
// receive is posted before each Start.
func (c *Comm) RsendInit(buf []byte, dst, tag int) (*Persistent, error) {
	return c.sendInit(buf, dst, tag, pml.Ready)
}

// BsendInit initializes a persistent buffered send (MPI_Bsend_init). Arguments are checked now. Start
// copies the buffer, and returns the errors of a full one (Ibsend).
func (c *Comm) BsendInit(buf []byte, dst, tag int) (*Persistent, error) {
	if _, err := c.initSend(nil, dst, tag); err != nil {
		return nil, err
	}
	return &Persistent{startRequest: func() (Request, error) { return c.Ibsend(buf, dst, tag) }}, nil
}

func (c *Comm) sendInit(buf []byte, dst, tag int, mode pml.Mode) (*Persistent, error) {
	if _, err := c.initSend(nil, dst, tag); err != nil {
		return nil, err
	}
	b := pml.Buffer{Bytes: buf, Form: c.formOf(buf)}
	return &Persistent{startRequest: func() (Request, error) { return c.isend(b, dst, tag, mode) }}, nil
}

// RecvInit initializes a persistent receive (MPI_Recv_init). Arguments are checked now.
func (c *Comm) RecvInit(buf []byte, src, tag int) (*Persistent, error) {
	if _, err := c.initRecv(nil, src, tag); err != nil {
		return nil, err
	}
	return &Persistent{startRequest: func() (Request, error) { return c.Irecv(buf, src, tag) }}, nil
}

// Start starts the operation (MPI_Start). ErrPending if it is active; ErrClosed
// after Free, for nil, and if the communicator is closed. If that is revoked, Wait returns ErrRevoked.
func (p *Persistent) Start() error {
	if p == nil {
		return errInactive()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isFreed || p.startRequest == nil:
		return errInactive()
	case p.earlyOp.IsActive() || p.activeRequest.pmlRequest != nil && p.current() != Request{}:
		return fmt.Errorf("%w: the persistent request is active; wait for it first", ErrPending)
	}
	if p.earlyOp != nil {
		if h, isStarted := p.earlyOp.Begin(); isStarted {
			p.activeRequest = requestOf(h)
			return nil
		}
	}
	var err error
	p.activeRequest, err = p.startRequest()
	return err
}

// StartAll starts the operations in their order (MPI_Startall). After an error, which names the
// index, the earlier ones are active and the later ones are not.
func StartAll(ps []*Persistent) error {
	for i, p := range ps {
		if err := p.Start(); err != nil {
			return fmt.Errorf("start of operation %d: %w", i, err)
		}
	}
	return nil
}

// current is the request of the operation in progress, the zero one if there is
// none. p.mu held.
func (p *Persistent) current() Request {
	if p.earlyOp.Claim() {
		p.activeRequest = requestOf(p.earlyOp.Promote(nil))
	}
	if p.activeRequest.pmlRequest != nil && p.activeRequest.pmlRequest.Stale(p.activeRequest.generation) {
		p.activeRequest = Request{} // Consumed.
	}
	return p.activeRequest
}

// promote hands an operation that is between Start and Wait to the engine.
func (p *Persistent) promote() {
	p.mu.Lock()
	p.current()
	p.mu.Unlock()
}

// Request returns the operation in progress, for WaitAll, Cancel and others, or the
// zero Request while it is inactive. A wait that consumes the Request makes the
// operation inactive.
func (p *Persistent) Request() Request {
	q, _ := p.handle()
	return q
}

// Wait blocks until the operation is complete, and makes it inactive (MPI_Wait).
// An inactive one returns at once, with the Status {AnySource, AnyTag, 0}. If ctx
// ends first only the wait ends. ErrClosed after Free.
func (p *Persistent) Wait(ctx context.Context) (Status, error) {
	q, err := p.latest() // It completes a run.Early, if that takes no longer than a poll.
	if err != nil || q.pmlRequest == nil {
		return noMessage(), err
	}
	st, err := q.pmlRequest.Wait(ctx, q.generation)
	switch {
	case err == nil:
		p.consumed(q)
		return Status(st), nil
	case err == framework.ErrClosed && st.Err == nil: // Another wait has consumed the request.
		return noMessage(), nil
	}
	return Status(st), requestError(ctx, err)
}

// Test is Wait without blocking (MPI_Test). It returns false while the operation is in progress.
func (p *Persistent) Test() (Status, bool, error) {
	q, err := p.handle()
	if err != nil {
		return noMessage(), false, err
	}
	return q.Test()
}

// latest returns the request of the last start, which may be stale, or none if the operation is complete.
func (p *Persistent) latest() (Request, error) {
	if p == nil {
		return Request{}, errInactive()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isFreed || p.startRequest == nil {
		return Request{}, errInactive()
	}
	if p.earlyOp.Claim() {
		p.finishEarly()
	}
	return p.activeRequest, nil
}

// finishEarly completes the operation, or hands it to the engine. It is claimed, and p.mu is held.
func (p *Persistent) finishEarly() {
	h, _ := p.earlyOp.Finish()
	p.activeRequest = requestOf(h)
}

// consumed marks the operation of a request as inactive, unless it has been started again.
func (p *Persistent) consumed(q Request) {
	p.mu.Lock()
	if p.activeRequest == q {
		p.activeRequest = Request{}
	}
	p.mu.Unlock()
}

func (p *Persistent) handle() (Request, error) {
	if p == nil {
		return Request{}, errInactive()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isFreed || p.startRequest == nil {
		return Request{}, errInactive()
	}
	return p.current(), nil
}

// Free frees the request (MPI_Request_free). An operation in progress completes without a report, and its buffer belongs to the library until then. After
// Free, all methods return ErrClosed, including a second Free. Free of an active partitioned operation returns ErrPending, and has no effect.
func (p *Persistent) Free() error {
	if p == nil {
		return errInactive()
	}
	q, err := p.retire()
	if err != nil {
		return err
	}
	if q != (Request{}) {
		err = q.Free()
	}
	if p.freeResources != nil { // It may call promote, which takes p.mu.
		err = cmp.Or(err, p.freeResources())
	}
	return err
}

// retire ends the use of the operation, and returns the request that is in progress.
func (p *Persistent) retire() (Request, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isFreed || p.startRequest == nil {
		return Request{}, errInactive()
	}
	if p.partitionedOp != nil {
		if err := p.partitionedOp.leave(); err != nil {
			return Request{}, err
		}
	}
	p.isFreed = true
	return p.current(), nil
}

// SendInit is (*Comm).SendInit of elements.
func SendInit[T any](c *Comm, buf []T, dst, tag int) (*Persistent, error) {
	if err := sendable[T](); err != nil {
		return nil, err
	}
	return c.SendInit(mem.Bytes(buf), dst, tag)
}

// SsendInit is (*Comm).SsendInit of elements.
func SsendInit[T any](c *Comm, buf []T, dst, tag int) (*Persistent, error) {
	if err := sendable[T](); err != nil {
		return nil, err
	}
	return c.SsendInit(mem.Bytes(buf), dst, tag)
}

// RsendInit is (*Comm).RsendInit of elements.
func RsendInit[T any](c *Comm, buf []T, dst, tag int) (*Persistent, error) {
	if err := sendable[T](); err != nil {
		return nil, err
	}
	return c.RsendInit(mem.Bytes(buf), dst, tag)
}

// BsendInit is (*Comm).BsendInit of elements.
func BsendInit[T any](c *Comm, buf []T, dst, tag int) (*Persistent, error) {
	if err := sendable[T](); err != nil {
		return nil, err
	}
	return c.BsendInit(mem.Bytes(buf), dst, tag)
}

// RecvInit is (*Comm).RecvInit of elements.
func RecvInit[T any](c *Comm, buf []T, src, tag int) (*Persistent, error) {
	if err := sendable[T](); err != nil {
		return nil, err
	}
	return c.RecvInit(mem.Bytes(buf), src, tag)
}
