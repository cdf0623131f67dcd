package mpi

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/pml"
)

// Bsend is Send that never waits (MPI_Bsend): the library copies buf, which is
// the caller's again at the return, and sends the copy as the receiver takes it.
// The session's copies that have not left yet are bounded by the parameter
// session.bsend_limit; a message beyond it is ErrPending, or ErrConfig if it
// would never fit. What goes wrong after the return is logged. Session.Close
// waits for these sends like for others. Other errors: ErrRank, ErrTag,
// ErrClosed, ErrProcFailed, ErrTransport.
func (c *Comm) Bsend(ctx context.Context, buf []byte, dst, tag int) error {
	if null, err := c.sendArgs(ctx, dst, tag); null || err != nil {
		return ended(ctx, "bsend", err)
	}
	s := c.session
	size := int64(len(buf)) + bsendOverhead
	if err := s.buffered.reserve(s, size); err != nil {
		return err
	}
	q, err := c.isend(pml.Buffer{Bytes: slices.Clone(buf)}, dst, tag, pml.Standard)
	if err == nil {
		var done bool
		if _, done, err = q.Test(); done {
			q = Request{}
		}
	}
	s.buffered.add(bufferedSend{q, size})
	return ended(ctx, "bsend", err)
}

// bsendOverhead is what a buffered send takes besides its payload, so that empty
// ones are bounded too: request, records, the allocation's rounding
// (MPI_BSEND_OVERHEAD).
const bsendOverhead = 256

// buffered keeps account of a session's buffered sends.
type buffered struct {
	mu       sync.Mutex
	reserved int64 // bytes of copies, those about to be made included
	sends    []bufferedSend
}

type bufferedSend struct {
	request Request
	bytes   int64
}

// reserve makes room for a message.
func (b *buffered) reserve(s *Session, bytes int64) error {
	limit := int64(s.params.BsendLimit)
	if bytes > limit {
		return fmt.Errorf("%w: bsend of %d bytes is more than session.bsend_limit=%v: raise it, or use Isend", ErrConfig, bytes-bsendOverhead, s.params.BsendLimit)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reserved+bytes > limit {
		b.reap(s)
	}
	if b.reserved+bytes > limit {
		return fmt.Errorf("%w: bsend of %d bytes: %d earlier ones have not left, and session.bsend_limit=%v is reached: raise it, or have the receivers receive",
			ErrPending, bytes-bsendOverhead, len(b.sends), s.params.BsendLimit)
	}
	b.reserved += bytes
	return nil
}

// add takes a send for which there was room; the zero Request has left already, or
// never will.
func (b *buffered) add(s bufferedSend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.request == (Request{}) {
		b.reserved -= s.bytes
		return
	}
	b.sends = append(b.sends, s)
}

// reap forgets the sends that have left. b.mu held.
func (b *buffered) reap(s *Session) {
	b.sends = slices.DeleteFunc(b.sends, func(x bufferedSend) bool {
		_, done, err := x.request.Test()
		if !done && err == nil {
			return false
		}
		if err != nil {
			s.engine.Env().Logger.Warn("a buffered send failed", "err", err)
		}
		b.reserved -= x.bytes
		return true
	})
}

// abandon gives the requests back; the sends go on.
func (b *buffered) abandon() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.sends {
		_ = x.request.Free() // nobody else has it
	}
	b.sends = nil
}
