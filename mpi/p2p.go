package mpi

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// Status describes a completed operation (MPI-4.1 section 3.2.5). Where there
// was no message it is {AnySource, AnyTag, 0}; for ProcNull {ProcNull, AnyTag, 0}.
type Status struct {
	// Rank of the sender.
	Source int
	// Tag of the message.
	Tag int
	// Full length of the message.
	Bytes int
	// The operation was canceled, and has transferred no data.
	Canceled bool
	// Error of the operation.
	Err error
}

func noMessage() Status  { return Status{Source: AnySource, Tag: AnyTag} }
func nullStatus() Status { return Status{Source: ProcNull, Tag: AnyTag} }

// The checks below detect all unusual arguments in one branch. A slow path determines the error.

func (c *Comm) plainSend(dst, tag int) bool {
	return uint(dst) < uint(c.size) && uint(tag) <= uint(c.tagMax) && c.stateBits.Load() == 0
}

func (c *Comm) plainRecv(src, tag int) bool {
	return uint(src) < uint(c.size) && uint(tag) <= uint(c.tagMax) && c.stateBits.Load() == 0
}

// endless is the type of Background, most callers' context, which never ends.
var endless = mem.ContextType(context.Background())

// hasEnded reports whether a context has ended before the call, which then has no effect even if it would not block. A program that only sends notices the
// end of its context by that. Send and Recv check the type first, so that Background costs a comparison.
func hasEnded(ctx context.Context) bool { return ctx != nil && ctx.Err() != nil }

// sendArgs checks a send. null reports that it has no receiver.
func (c *Comm) sendArgs(ctx context.Context, dst, tag int) (null bool, err error) {
	null, err = c.initSend(ctx, dst, tag)
	if err == nil {
		err = c.terminalError()
	}
	return null, err
}

// initSend checks the arguments of a send.
func (c *Comm) initSend(ctx context.Context, dst, tag int) (null bool, err error) {
	switch {
	case c.isClosed():
		return false, c.errClosed()
	case tag < 0 || tag > c.tagMax:
		return false, c.errTag(tag)
	case dst != ProcNull && (dst < 0 || dst >= c.size):
		return false, c.errRank(dst)
	case hasEnded(ctx):
		return false, context.Cause(ctx)
	}
	return dst == ProcNull, nil
}

// recvArgs checks a receive or probe.
func (c *Comm) recvArgs(ctx context.Context, src, tag int) (null bool, err error) {
	null, err = c.initRecv(ctx, src, tag)
	if err == nil {
		err = c.terminalError()
	}
	return null, err
}

// initRecv checks the arguments of a receive or probe, which may be wildcards.
func (c *Comm) initRecv(ctx context.Context, src, tag int) (null bool, err error) {
	switch {
	case c.isClosed():
		return false, c.errClosed()
	case tag != AnyTag && (tag < 0 || tag > c.tagMax):
		return false, c.errTag(tag)
	case src != ProcNull && src != AnySource && (src < 0 || src >= c.size):
		return false, c.errRank(src)
	case hasEnded(ctx):
		return false, context.Cause(ctx)
	}
	return src == ProcNull, nil
}

func (c *Comm) errRank(rank int) error {
	return fmt.Errorf("%w: %d, in a communicator of %d", ErrRank, rank, c.size)
}

func (c *Comm) errTag(tag int) error {
	return fmt.Errorf("%w: %d; tags are 0 to %d", ErrTag, tag, c.tagMax)
}

// Send sends buf to rank dst (MPI_Send). It blocks until buf can be reused. The message may not have been received then. Over a network it may not have
// left the process, and Session.Close waits for it. If ctx ends first, an unmatched message is withdrawn, and the error matches the cause of the
// context and ErrTimeout or ErrCanceled. If a message cannot be withdrawn, the error is a *PendingError. Over shared memory this happens only if a
// matched probe has claimed the message. Other errors are ErrRank, ErrTag, ErrClosed, ErrProcFailed and ErrTransport.
func (c *Comm) Send(ctx context.Context, buf []byte, dst, tag int) error {
	if mem.ContextType(ctx) != endless && ctx != nil && ctx.Err() != nil {
		return ended(ctx, "send", context.Cause(ctx))
	}
	if !c.plainSend(dst, tag) {
		if null, err := c.sendArgs(ctx, dst, tag); null || err != nil {
			return ended(ctx, "send", err)
		}
	}
	err := c.pml.Send(ctx, pml.Buffer{Bytes: buf, Form: c.formOf(buf)}, dst, tag, pml.PointToPoint, pml.Standard)
	if err != nil {
		return ended(ctx, "send", err)
	}
	return nil
}

// Ssend is Send that blocks until the receive has matched (MPI_Ssend). It returns ErrTransport if the receiver drops the message, because it has closed
// the communicator or its session. A network that matches messages (pml=cm) does not report a message that is dropped while the receiver has posted
// receives on a closed communicator.
func (c *Comm) Ssend(ctx context.Context, buf []byte, dst, tag int) error {
	return c.send(ctx, "ssend", pml.Buffer{Bytes: buf, Form: c.formOf(buf)}, dst, tag, pml.Synchronous)
}

// Rsend is Send for a message whose receive is known to be posted (MPI_Rsend). If it is not posted, the message still arrives.
func (c *Comm) Rsend(ctx context.Context, buf []byte, dst, tag int) error {
	return c.send(ctx, "rsend", pml.Buffer{Bytes: buf, Form: c.formOf(buf)}, dst, tag, pml.Ready)
}

// send implements the blocking sends, except for Send, which inlines it.
func (c *Comm) send(ctx context.Context, op string, buf pml.Buffer, dst, tag int, mode pml.Mode) error {
	if null, err := c.sendArgs(ctx, dst, tag); null || err != nil {
		return ended(ctx, op, err)
	}
	return ended(ctx, op, c.pml.Send(ctx, buf, dst, tag, pml.PointToPoint, mode))
}

// Recv receives a message into buf (MPI_Recv) from rank src or AnySource, with that tag or AnyTag. It blocks until the message is complete. For a message
// longer than buf it returns ErrTruncate. buf is filled, and Status.Bytes is the full length. If ctx ends before a message has matched, the receive is
// withdrawn. Other errors are those of Send.
func (c *Comm) Recv(ctx context.Context, buf []byte, src, tag int) (Status, error) {
	if mem.ContextType(ctx) != endless && ctx != nil && ctx.Err() != nil {
		return noMessage(), ended(ctx, "receive", context.Cause(ctx))
	}
	if !c.plainRecv(src, tag) {
		if null, err := c.recvArgs(ctx, src, tag); err != nil {
			return noMessage(), ended(ctx, "receive", err)
		} else if null {
			return nullStatus(), nil
		}
	}
	st, err := c.pml.Recv(ctx, pml.Buffer{Bytes: buf}, src, tag, pml.PointToPoint)
	if err != nil {
		return Status(st), ended(ctx, "receive", err)
	}
	// The fields are copied one by one. A conversion copies by wide loads of values that were just stored by narrow stores, which stalls the
	// processor for 20 ns.
	return Status{Source: st.Source, Tag: st.Tag, Bytes: st.Bytes, Canceled: st.Canceled, Err: st.Err}, nil
}

// Sendrecv sends and receives concurrently, without deadlock (MPI_Sendrecv). The buffers must not overlap. The Status is that of the receive. The end of
// ctx withdraws the operations that have not matched.
func (c *Comm) Sendrecv(ctx context.Context, send []byte, dst, stag int, recv []byte, src, rtag int) (Status, error) {
	nullSend, err := c.sendArgs(nil, dst, stag)
	if err != nil {
		return noMessage(), err
	}
	nullRecv, err := c.recvArgs(ctx, src, rtag)
	if err != nil {
		return noMessage(), ended(ctx, "sendrecv", err)
	}
	switch {
	case nullSend:
		return c.Recv(ctx, recv, src, rtag)
	case nullRecv:
		return nullStatus(), c.Send(ctx, send, dst, stag)
	}
	st, err := c.sendrecv(ctx, send, dst, stag, recv, src, rtag, pml.PointToPoint)
	return Status(st), ended(ctx, "sendrecv", err)
}

// sendrecv is Sendrecv on a plane, with checked arguments. A small message is sent first,
// which usually completes at once; the receive is then a blocking one, the fastest there
// is.
func (c *Comm) sendrecv(ctx context.Context, send []byte, dst, stag int, recv []byte, src, rtag int, plane pml.Plane) (pml.Status, error) {
	if len(send) > sendFirst {
		return c.recvsend(ctx, send, dst, stag, recv, src, rtag, plane)
	}
	s, err := c.pml.Isend(pml.Buffer{Bytes: send, Form: c.formOf(send)}, dst, stag, plane, pml.Standard)
	if err != nil {
		return pml.NoMessage(), err
	}
	gen := s.Generation()
	if s.TakeIfDone(gen) {
		return c.pml.Recv(ctx, pml.Buffer{Bytes: recv}, src, rtag, plane)
	}
	r, err := c.pml.Irecv(pml.Buffer{Bytes: recv}, src, rtag, plane)
	if err != nil {
		_, _ = withdraw(s, gen)
		return pml.NoMessage(), err
	}
	return awaitBoth(ctx, Request{pmlRequest: s, generation: gen}, Request{pmlRequest: r, generation: r.Generation()})
}

// awaitBoth waits for a send and a receive, and returns the receive's status. If one of
// them fails, or ctx ends, the other one is withdrawn. A truncated message does not fail the
// send.
func awaitBoth(ctx context.Context, send, recv Request) (pml.Status, error) {
	both := []Request{send, recv}
	st, failed := pml.NoMessage(), error(nil) // Of the receive.
	for both[0].pmlRequest != nil || both[1].pmlRequest != nil {
		i, s, done, err := TestAny(both)
		switch {
		case !done && err == nil:
			if err = waitAny(ctx, both); err != nil {
				return withdrawBoth(both, st, failed, err)
			}
		case i == 1:
			if st, failed = pml.Status(s), err; err != nil && !errors.Is(err, ErrTruncate) {
				return withdrawBoth(both, st, err, nil)
			}
		case err != nil:
			return endReceive(both[1], st, failed, err)
		}
	}
	return st, failed
}

// endReceive returns the error of a send, and withdraws the receive unless it has matched. st and
// failed are those of the receive if it is complete.
func endReceive(recv Request, st pml.Status, failed, sendErr error) (pml.Status, error) {
	if recv.pmlRequest != nil {
		if st, failed = withdraw(recv.pmlRequest, recv.generation); st.Canceled {
			return pml.NoMessage(), sendErr
		}
	}
	return st, errors.Join(sendErr, failed)
}

// withdrawBoth ends the pending operations among a send and a receive after the end of a context, which is why. st and failed are the result of the
// receive if it is complete. An operation that has matched completes. If both complete, why is not returned.
func withdrawBoth(both []Request, st pml.Status, failed, why error) (pml.Status, error) {
	if r := both[1]; r.pmlRequest != nil {
		if st, failed = withdraw(r.pmlRequest, r.generation); st.Canceled {
			st, failed = pml.NoMessage(), nil
		} else if both[0].pmlRequest == nil {
			return st, failed
		}
	}
	if s := both[0]; s.pmlRequest != nil {
		if sent, err := withdraw(s.pmlRequest, s.generation); err == nil && !sent.Canceled && st.Source >= 0 {
			return st, failed
		}
	}
	return st, errors.Join(failed, why)
}

// sendFirst is the largest message for which Sendrecv sends before it receives, in bytes.
const sendFirst = 4 << 10

// recvsend implements sendrecv with the receive posted first, so that an arriving message is copied into its buffer at once.
func (c *Comm) recvsend(ctx context.Context, send []byte, dst, stag int, recv []byte, src, rtag int, plane pml.Plane) (pml.Status, error) {
	r, err := c.pml.Irecv(pml.Buffer{Bytes: recv}, src, rtag, plane)
	if err != nil {
		return pml.NoMessage(), err
	}
	gen := r.Generation()
	if err := c.pml.Send(ctx, pml.Buffer{Bytes: send, Form: c.formOf(send)}, dst, stag, plane, pml.Standard); err != nil {
		_, _ = withdraw(r, gen) // The error of the send is returned.
		return pml.NoMessage(), err
	}
	st, err := r.Wait(ctx, gen)
	if err == nil || r.Stale(gen) { // Otherwise ctx has ended, or the receive is suspended.
		return st, err
	}
	late, lateErr := withdraw(r, gen)
	if late.Canceled {
		return pml.NoMessage(), err
	}
	return late, lateErr // It had matched, and has completed.
}

// withdraw cancels an operation, and blocks until it has ended. An unmatched one ends at once, a matched one when the peer has completed it or failed.
func withdraw(r *pml.Request, gen uint32) (pml.Status, error) {
	if err := r.Cancel(gen); err != nil {
		return pml.NoMessage(), err
	}
	return r.Wait(context.Background(), gen)
}

// Isend starts a send (MPI_Isend). buf is the library's until the request is
// complete.
func (c *Comm) Isend(buf []byte, dst, tag int) (Request, error) {
	return c.isend(pml.Buffer{Bytes: buf, Form: c.formOf(buf)}, dst, tag, pml.Standard)
}

// Issend starts a send that completes only after the receive has matched
// (MPI_Issend). buf is the library's until the request is complete.
func (c *Comm) Issend(buf []byte, dst, tag int) (Request, error) {
	return c.isend(pml.Buffer{Bytes: buf, Form: c.formOf(buf)}, dst, tag, pml.Synchronous)
}

// Irsend starts a send by a caller for which the receive is already posted (MPI_Irsend). buf is
// the library's until the request is complete.
func (c *Comm) Irsend(buf []byte, dst, tag int) (Request, error) {
	return c.isend(pml.Buffer{Bytes: buf, Form: c.formOf(buf)}, dst, tag, pml.Ready)
}

func (c *Comm) isend(buf pml.Buffer, dst, tag int, mode pml.Mode) (Request, error) {
	if !c.plainSend(dst, tag) {
		null, err := c.initSend(nil, dst, tag)
		if r, ok := c.startNone(null, err); ok || err != nil {
			return r, err
		}
	}
	return c.started(c.pml.Isend(buf, dst, tag, pml.PointToPoint, mode))
}

// Irecv starts a receive (MPI_Irecv). buf is the library's until the request is
// complete.
func (c *Comm) Irecv(buf []byte, src, tag int) (Request, error) {
	return c.irecv(pml.Buffer{Bytes: buf}, src, tag)
}

func (c *Comm) irecv(buf pml.Buffer, src, tag int) (Request, error) {
	if !c.plainRecv(src, tag) {
		null, err := c.initRecv(nil, src, tag)
		if r, ok := c.startNone(null, err); ok || err != nil {
			return r, err
		}
	}
	return c.started(c.pml.Irecv(buf, src, tag, pml.PointToPoint))
}

// Probe blocks until a message that matches is here, and leaves it there
// (MPI_Probe). Its length is in the Status.
func (c *Comm) Probe(ctx context.Context, src, tag int) (Status, error) {
	if null, err := c.recvArgs(ctx, src, tag); err != nil {
		return noMessage(), ended(ctx, "probe", err)
	} else if null {
		return nullStatus(), nil
	}
	st, err := c.pml.Probe(ctx, src, tag, pml.PointToPoint)
	return Status(st), ended(ctx, "probe", err)
}

// Iprobe is Probe without blocking (MPI_Iprobe). It returns false if no matching message has arrived.
func (c *Comm) Iprobe(src, tag int) (Status, bool, error) {
	if null, err := c.recvArgs(nil, src, tag); err != nil {
		return noMessage(), false, err
	} else if null {
		return nullStatus(), true, nil
	}
	st, ok, err := c.pml.Iprobe(src, tag, pml.PointToPoint)
	return Status(st), ok, err
}
