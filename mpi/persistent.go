package mpi

import (
	"context"
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// Persistent is an operation with its arguments, which may be started again and
// again (MPI-4.1 section 3.9). It is inactive at first, and again after the Wait
// or Test that saw it complete. The buffer is the library's while it is active;
// what a send sends is what the buffer holds when it is started. Use it by the
// pointer.
type Persistent struct {
	comm      *Comm
	buf       pml.Buffer
	peer, tag int
	recv      bool
	mode      pml.Mode

	mu     sync.Mutex
	active Request // of the operation that was started last
	freed  bool
}

// SendInit makes a persistent send (MPI_Send_init). Arguments are checked now.
func (c *Comm) SendInit(buf []byte, dst, tag int) (*Persistent, error) {
	return c.sendInit(buf, dst, tag, pml.Standard)
}

// SsendInit makes a persistent synchronous send (MPI_Ssend_init). Arguments are
// checked now.
func (c *Comm) SsendInit(buf []byte, dst, tag int) (*Persistent, error) {
	return c.sendInit(buf, dst, tag, pml.Synchronous)
}

func (c *Comm) sendInit(buf []byte, dst, tag int, mode pml.Mode) (*Persistent, error) {
	if _, err := c.initSend(nil, dst, tag); err != nil {
		return nil, err
	}
	return &Persistent{comm: c, buf: pml.Buffer{Bytes: buf, Form: c.formOf(buf)}, peer: dst, tag: tag, mode: mode}, nil
}

// RecvInit makes a persistent receive (MPI_Recv_init). Arguments are checked now.
func (c *Comm) RecvInit(buf []byte, src, tag int) (*Persistent, error) {
	if _, err := c.initRecv(nil, src, tag); err != nil {
		return nil, err
	}
	return &Persistent{comm: c, buf: pml.Buffer{Bytes: buf}, peer: src, tag: tag, recv: true}, nil
}

// Start starts the operation (MPI_Start). ErrPending if it is active; ErrClosed
// after Free, and if the communicator is closed. If that is revoked, Wait returns ErrRevoked.
func (p *Persistent) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.freed || p.comm == nil:
		return errInactive()
	case p.current() != Request{}:
		return fmt.Errorf("%w: the persistent request is active; wait for it first", ErrPending)
	}
	var err error
	if p.recv {
		p.active, err = p.comm.irecv(p.buf, p.peer, p.tag)
	} else {
		p.active, err = p.comm.isend(p.buf, p.peer, p.tag, p.mode)
	}
	return err
}

// current is the request of the operation in progress, the zero one if there is
// none. p.mu held.
func (p *Persistent) current() Request {
	if p.active.r != nil && p.active.r.Stale(p.active.gen) {
		p.active = Request{} // used up
	}
	return p.active
}

// Request returns the operation in progress, for WaitAll, Cancel and others; the
// zero Request while it is inactive. A wait that uses the Request up makes the
// operation inactive.
func (p *Persistent) Request() Request {
	q, _ := p.handle()
	return q
}

// Wait blocks until the operation is complete, and makes it inactive (MPI_Wait).
// An inactive one returns at once, with the Status {AnySource, AnyTag, 0}. If ctx
// ends first only the wait ends. ErrClosed after Free.
func (p *Persistent) Wait(ctx context.Context) (Status, error) {
	q, err := p.handle()
	if err != nil {
		return noMessage(), err
	}
	return q.Wait(ctx)
}

// Test is Wait without waiting (MPI_Test): the result is false while the
// operation goes on.
func (p *Persistent) Test() (Status, bool, error) {
	q, err := p.handle()
	if err != nil {
		return noMessage(), false, err
	}
	return q.Test()
}

func (p *Persistent) handle() (Request, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freed || p.comm == nil {
		return Request{}, errInactive()
	}
	return p.current(), nil
}

// Free gives the request up (MPI_Request_free). An operation in progress
// completes unseen, and its buffer stays the library's until then. A second Free,
// and any other use after it, is ErrClosed.
func (p *Persistent) Free() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freed || p.comm == nil {
		return errInactive()
	}
	p.freed = true
	q := p.current()
	if q == (Request{}) {
		return nil
	}
	return q.Free()
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

// RecvInit is (*Comm).RecvInit of elements.
func RecvInit[T any](c *Comm, buf []T, src, tag int) (*Persistent, error) {
	if err := sendable[T](); err != nil {
		return nil, err
	}
	return c.RecvInit(mem.Bytes(buf), src, tag)
}
