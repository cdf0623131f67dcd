package mpi

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// FlushBuffer waits until the messages of earlier buffered sends on the communicator have left
// the buffer (MPI_Comm_flush_buffer), and returns the errors of those that fail meanwhile. If ctx
// ends first, only the wait ends.
func (c *Comm) FlushBuffer(ctx context.Context) error {
	if err := flushArgs(ctx, c.isClosed(), c.errClosed); err != nil {
		return err
	}
	_, err := c.startFlush().Wait(ctx)
	return err
}

// IflushBuffer starts a FlushBuffer (MPI_Comm_iflush_buffer). Cancel has no effect.
func (c *Comm) IflushBuffer() (Request, error) {
	if c.isClosed() {
		return Request{}, c.errClosed()
	}
	return c.startFlush(), nil
}

// FlushBuffer is (*Comm).FlushBuffer of all communicators of the session, closed ones and those of streams included
// (MPI_Session_flush_buffer).
func (s *Session) FlushBuffer(ctx context.Context) error {
	s.mu.Lock()
	isClosed := s.isClosed
	s.mu.Unlock()
	if err := flushArgs(ctx, isClosed, closedSession); err != nil {
		return err
	}
	var flushes []Request
	comms := s.buffered.comms()
	for _, st := range s.openStreams() {
		comms = append(comms, st.commSession.buffered.comms()...)
	}
	for _, c := range comms {
		flushes = append(flushes, c.startFlush())
	}
	err := WaitAll(ctx, flushes, nil)
	for _, q := range flushes {
		_ = q.Free() // Pending only if ctx has ended.
	}
	return err
}

func flushArgs(ctx context.Context, isClosed bool, errClosed func() error) error {
	if isClosed {
		return errClosed()
	}
	if hasEnded(ctx) {
		return ended(ctx, "flush buffer", context.Cause(ctx))
	}
	return nil
}

// flush is the request of IflushBuffer. Guarded by the lock of the rank's engine, which is the
// engine of the sends too.
type flush struct {
	pml.Request
	// Sends, and startFlush.
	pendingParts int
	sendErrs     []error
}

// startFlush starts a flush, also of a closed communicator.
func (c *Comm) startFlush() Request {
	f := &flush{pendingParts: 1}
	e, b := c.rankState.engine, &c.session.buffered
	e.Lock()
	defer e.Release()
	f.Init(e, f)
	f.Start()
	b.mu.Lock()
	for x := range b.pendingSends {
		if x.c == c {
			x.waitingFlushes = append(x.waitingFlushes, f)
			f.pendingParts++
		}
	}
	b.mu.Unlock()
	q := Request{&f.Request, f.Generation()}
	f.sendCompleted(nil)
	return q
}

// sendCompleted counts a send that is complete. Lock held.
func (f *flush) sendCompleted(err error) {
	if err != nil {
		f.sendErrs = append(f.sendErrs, err)
	}
	if f.pendingParts--; f.pendingParts > 0 {
		return
	}
	f.Request.Status = pml.NoMessage()
	if len(f.sendErrs) > 0 {
		f.Request.Status.Err = fmt.Errorf("buffered send: %w", errors.Join(f.sendErrs...))
	}
	f.Finish()
}

// Cancel implements pml.Owner.
func (f *flush) Cancel() {}

// Release implements pml.Owner.
func (f *flush) Release() {}

// First implements pml.Owner.
func (f *flush) First() progress.Source { return nil }
