package mpi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Bsend is Send without blocking (MPI_Bsend). The library copies buf, which belongs to the caller again when Bsend returns, and sends the copy when
// the receiver accepts it. The parameter session.bsend_limit limits the copies that have not left, separately for the session and for each of its
// streams. A message that exceeds the limit now is ErrPending, and one that exceeds it alone is ErrConfig. Later failures are logged, and
// FlushBuffer returns those of the sends that it waits for. Session.Close waits for these sends like for others. Other errors are ErrRank, ErrTag,
// ErrClosed, ErrProcFailed and ErrTransport.
func (c *Comm) Bsend(ctx context.Context, buf []byte, dst, tag int) error {
	if null, err := c.sendArgs(ctx, dst, tag); null || err != nil {
		return ended(ctx, "bsend", err)
	}
	return ended(ctx, "bsend", c.bufferSend(buf, dst, tag))
}

// Ibsend is Bsend with a request (MPI_Ibsend), which is complete from the start. The errors of
// a full buffer are those of the call.
func (c *Comm) Ibsend(buf []byte, dst, tag int) (Request, error) {
	null, err := c.initSend(nil, dst, tag)
	if r, ok := c.startNone(null, err); ok || err != nil {
		return r, err
	}
	switch err := c.bufferSend(buf, dst, tag); {
	case err == nil:
		return c.rankState.nullRequests.request(noMessage()), nil
	case isBufferFull(err) || errors.Is(err, ErrClosed):
		return Request{}, err
	default:
		return c.startFailed(err), nil
	}
}

// bsendOverhead is the cost of a buffered send besides its payload, so that empty ones are
// bounded too. It covers request, records and the allocation's rounding (MPI_BSEND_OVERHEAD).
const bsendOverhead = 256

// buffered has the pending buffered sends of a session. Its mutex is acquired after an engine's
// lock.
type buffered struct {
	mu sync.Mutex
	// Bytes of pending sends and of those about to start.
	reservedBytes int64
	pendingSends  map[*bufferedSend]struct{}
	// The session is closed. Failures are no longer logged.
	isClosed bool
}

// bufferedSend is one pending send. Fields are guarded by the mutex of buffered.
type bufferedSend struct {
	c              *Comm
	reservedBytes  int64
	hasStarted     bool
	err            error
	waitingFlushes []*flush
}

// bufferSend copies buf and sends the copy. It returns the error of a send that fails at once.
func (c *Comm) bufferSend(buf []byte, dst, tag int) error {
	b := &c.session.buffered
	x := &bufferedSend{c: c, reservedBytes: int64(len(buf)) + bsendOverhead}
	if err := b.reserve(c.session, x); err != nil {
		return err
	}
	e := c.rankState.engine
	e.Lock()
	r, err := c.pml.StartSend(pml.Buffer{Bytes: slices.Clone(buf)}, dst, tag, pml.PointToPoint, pml.Standard)
	switch {
	case err != nil:
		b.complete(x, err)
	case r.Done():
		x.Completed(r)
	default:
		r.Notify(x)
		e.Progress()
	}
	e.Release()
	b.mu.Lock()
	defer b.mu.Unlock()
	x.hasStarted = true
	return x.err
}

// Completed implements pml.Notifier.
func (x *bufferedSend) Completed(r *pml.Request) {
	_, _, err := r.Take(r.Generation())
	x.c.session.buffered.complete(x, err)
}

// complete ends a send. The lock of its engine is held.
func (b *buffered) complete(x *bufferedSend, err error) {
	b.mu.Lock()
	x.err = err
	b.reservedBytes -= x.reservedBytes
	delete(b.pendingSends, x)
	flushes, isUnreported := x.waitingFlushes, err != nil && x.hasStarted && !b.isClosed
	b.mu.Unlock()
	if isUnreported {
		x.c.session.process.Env().Logger.Warn("a buffered send failed", "err", err)
	}
	for _, f := range flushes {
		f.sendCompleted(err)
	}
}

// bufferFull is the error of a send for which the buffer has no room.
type bufferFull struct{ error }

func (e bufferFull) Unwrap() error { return e.error }

func isBufferFull(err error) bool {
	_, isFull := err.(bufferFull)
	return isFull
}

// reserve reserves room for a send.
func (b *buffered) reserve(s *Session, x *bufferedSend) error {
	limit, payload := int64(s.params.BsendLimit), x.reservedBytes-bsendOverhead
	if x.reservedBytes > limit {
		return bufferFull{fmt.Errorf("%w: bsend of %d bytes is more than session.bsend_limit=%v; raise it, or use Isend", ErrConfig, payload, s.params.BsendLimit)}
	}
	if b.add(x, limit) {
		return nil
	}
	b.progress()
	if b.add(x, limit) {
		return nil
	}
	return bufferFull{fmt.Errorf("%w: bsend of %d bytes: the earlier ones that have not left reach session.bsend_limit=%v; raise it, call FlushBuffer, or let the receivers receive",
		ErrPending, payload, s.params.BsendLimit)}
}

// add adds a send if there is room.
func (b *buffered) add(x *bufferedSend, limit int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reservedBytes+x.reservedBytes > limit {
		return false
	}
	b.reservedBytes += x.reservedBytes
	if b.pendingSends == nil {
		b.pendingSends = map[*bufferedSend]struct{}{}
	}
	b.pendingSends[x] = struct{}{}
	return true
}

// progress polls each engine with pending sends once.
func (b *buffered) progress() {
	engines := map[*progress.Engine]struct{}{}
	b.mu.Lock()
	for x := range b.pendingSends {
		engines[x.c.rankState.engine] = struct{}{}
	}
	b.mu.Unlock()
	for e := range engines {
		e.Lock()
		e.Progress()
		e.Release()
	}
}

// close ends the logging of failures. Pending sends continue.
func (b *buffered) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isClosed = true
}

// comms returns the communicators with pending sends.
func (b *buffered) comms() []*Comm {
	comms := map[*Comm]struct{}{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for x := range b.pendingSends {
		comms[x.c] = struct{}{}
	}
	return slices.Collect(maps.Keys(comms))
}
