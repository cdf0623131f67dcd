package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// SendrecvReplace is Sendrecv with one buffer (MPI_Sendrecv_replace). The message that arrives
// replaces the message that leaves, which is copied before.
func (c *Comm) SendrecvReplace(ctx context.Context, buf []byte, dst, stag, src, rtag int) (Status, error) {
	send := c.copyOf(buf)
	st, err := c.Sendrecv(ctx, send, dst, stag, buf, src, rtag)
	if err == nil { // Otherwise the send may be pending.
		c.freeCopy(send)
	}
	return st, err
}

// Isendrecv starts a Sendrecv (MPI_Isendrecv). The request completes when both messages have,
// and its Status is the receive's. The buffers must not overlap, and are the library's until
// then. If one of the two fails, the other one is withdrawn unless it has matched, and
// Wait returns the error. Cancel withdraws both likewise. The Status is Canceled if the receive
// was withdrawn. If only one of the two was, Wait returns ErrCanceled.
func (c *Comm) Isendrecv(send []byte, dst, stag int, recv []byte, src, rtag int) (Request, error) {
	return c.isendrecv(send, dst, stag, recv, src, rtag, nil)
}

// IsendrecvReplace starts a SendrecvReplace (MPI_Isendrecv_replace). buf is the library's until
// the request is complete.
func (c *Comm) IsendrecvReplace(buf []byte, dst, stag, src, rtag int) (Request, error) {
	send := c.copyOf(buf)
	return c.isendrecv(send, dst, stag, buf, src, rtag, send)
}

// copyOf returns a copy of buf, which freeCopy takes back.
func (c *Comm) copyOf(buf []byte) []byte {
	if len(buf) == 0 {
		return nil
	}
	b := c.session.process.pieces.Take(len(buf))
	copy(b, buf)
	return b
}

func (c *Comm) freeCopy(b []byte) {
	if b != nil {
		c.session.process.pieces.Give(b)
	}
}

// exchange is the request of Isendrecv. Like an operation, it is reused. Guarded by the
// engine's lock.
type exchange struct {
	pml.Request
	c *Comm
	// Pending messages, or nil. Status is the receive's.
	sendRequest, recvRequest *pml.Request
	sendErr                  error
	sendCanceled             bool
	// The source is ProcNull.
	hasNoSource bool
	// The receive is from any source, and in Comm.wildcards.
	isWildcard bool
	// Send buffer of IsendrecvReplace, or nil.
	sendCopy []byte
}

// sendOf and recvOf are the notifiers of the two messages.
type (
	sendOf exchange
	recvOf exchange
)

func (c *Comm) isendrecv(send []byte, dst, stag int, recv []byte, src, rtag int, copied []byte) (Request, error) {
	nullRecv := false
	if !c.plainSend(dst, stag) || !c.plainRecv(src, rtag) {
		nullSend, err := c.initSend(nil, dst, stag)
		if err == nil {
			nullRecv, err = c.initRecv(nil, src, rtag)
		}
		if r, ok := c.startNone(nullSend && nullRecv, err); ok || err != nil {
			return r, err
		}
		if nullSend {
			return c.irecv(pml.Buffer{Bytes: recv}, src, rtag)
		}
	}
	e := c.rankState.engine
	e.Lock()
	x := c.rankState.newExchange()
	x.c, x.sendCopy, x.hasNoSource = c, copied, nullRecv
	if !nullRecv { // First, so that a message that is about to arrive finds its buffer.
		x.recvRequest = c.pml.StartRecv(pml.Buffer{Bytes: recv}, src, rtag, pml.PointToPoint)
	}
	x.sendRequest, x.sendErr = c.pml.StartSend(pml.Buffer{Bytes: send, Form: c.formOf(send)}, dst, stag, pml.PointToPoint, pml.Standard)
	x.follow(src)
	q := Request{&x.Request, x.Generation()}
	e.Release()
	return q, nil
}

// newExchange returns an exchange from the free list, or a new one, with a started request. Lock
// held.
func (r *rankState) newExchange() *exchange {
	var x *exchange
	if last := len(r.freeExchanges) - 1; last >= 0 {
		x = r.freeExchanges[last]
		r.freeExchanges = r.freeExchanges[:last]
	} else {
		x = new(exchange)
		x.Init(r.engine, x)
	}
	x.Start()
	return x
}

// follow waits for the messages of an exchange that has just started. Lock held.
func (x *exchange) follow(src int) {
	switch r := x.sendRequest; {
	case x.sendErr != nil:
		x.sendRequest = nil
		x.sendErr = cmp.Or(x.c.terminalError(), x.sendErr)
		x.cancelRecv()
	case r.TakeDone(r.Generation(), nil):
		x.sendRequest = nil
	case r.Done():
		x.takeSend()
	default:
		r.Notify((*sendOf)(x))
	}
	switch r := x.recvRequest; {
	case r == nil:
	case r.Done():
		x.takeRecv()
	default:
		r.Notify((*recvOf)(x))
		if src == AnySource {
			x.c.wildcards.add(x)
		}
	}
	x.settle()
}

// Completed implements pml.Notifier.
func (s *sendOf) Completed(*pml.Request) {
	x := (*exchange)(s)
	x.takeSend()
	x.settle()
}

// Completed implements pml.Notifier.
func (r *recvOf) Completed(*pml.Request) {
	x := (*exchange)(r)
	x.takeRecv()
	x.settle()
}

// takeSend consumes the send, which is complete. Lock held.
func (x *exchange) takeSend() {
	r := x.sendRequest
	x.sendRequest = nil
	st, _, err := r.Take(r.Generation())
	x.sendCanceled = st.Canceled
	if x.sendErr = err; err != nil {
		x.cancelRecv()
	}
}

// takeRecv consumes the receive, which is complete. A truncated message does not end the send.
// Lock held.
func (x *exchange) takeRecv() {
	r := x.recvRequest
	x.recvRequest = nil
	if x.isWildcard {
		x.c.wildcards.remove(x)
	}
	from, to := &r.Status, &x.Request.Status // Field by field, see Comm.Recv.
	to.Source, to.Tag, to.Bytes, to.Canceled, to.Err = from.Source, from.Tag, from.Bytes, from.Canceled, from.Err
	_, _, _ = r.Take(r.Generation())
	if x.sendRequest != nil && to.Err != nil && !errors.Is(to.Err, ErrTruncate) {
		x.sendRequest.CancelLocked()
	}
}

func (x *exchange) cancelRecv() {
	if x.recvRequest != nil {
		x.recvRequest.CancelLocked()
	}
}

// settle completes the request when both messages are complete. Lock held.
func (x *exchange) settle() {
	if x.sendRequest != nil || x.recvRequest != nil || x.Done() {
		return
	}
	if x.sendCopy != nil {
		x.c.freeCopy(x.sendCopy)
	}
	if x.sendErr != nil || x.sendCanceled || x.Request.Status.Canceled || x.hasNoSource {
		x.addSend()
	}
	x.Finish()
}

// addSend adds the outcome of the send to the Status.
func (x *exchange) addSend() {
	st := &x.Request.Status
	switch {
	case x.hasNoSource:
		*st = pml.Status(nullStatus())
		st.Canceled, st.Err = x.sendCanceled, x.sendErr
	case x.sendErr != nil && st.Canceled:
		*st = pml.NoMessage()
		st.Err = x.sendErr
	case x.sendErr != nil:
		st.Err = errors.Join(x.sendErr, st.Err)
	case st.Err == nil && st.Canceled != x.sendCanceled:
		withdrawn, kept := "send", "receive"
		if st.Canceled {
			withdrawn, kept = kept, withdrawn
		}
		st.Err = fmt.Errorf("%w: the %s of Isendrecv was withdrawn, and the %s was not", ErrCanceled, withdrawn, kept)
	}
}

// Cancel implements pml.Owner. The request may complete before it returns.
func (x *exchange) Cancel() {
	if x.sendRequest != nil {
		x.sendRequest.CancelLocked()
	}
	x.cancelRecv()
}

// Release implements pml.Owner.
func (x *exchange) Release() {
	local := x.c.rankState
	x.c, x.sendCopy, x.sendErr, x.sendCanceled = nil, nil, nil, false
	local.freeExchanges = append(local.freeExchanges, x)
}

// First implements pml.Owner.
func (x *exchange) First() progress.Source {
	if x.recvRequest != nil {
		return x.recvRequest.Source()
	}
	return nil
}

// wildcards are the pending exchanges of a communicator that receive from any source. They are
// suspended with the other receives from any source (AckFailed). Guarded by the engine's lock.
type wildcards struct {
	pending map[*exchange]struct{}
	// Reason of the suspension, or nil.
	suspendReason error
}

func (w *wildcards) add(x *exchange) {
	if w.pending == nil {
		w.pending = map[*exchange]struct{}{}
	}
	w.pending[x] = struct{}{}
	x.isWildcard = true
	x.SetSuspended(w.suspendReason)
}

func (w *wildcards) remove(x *exchange) {
	delete(w.pending, x)
	x.isWildcard = false
	x.Resume()
}

// suspend suspends the exchanges for a reason, or resumes them if why is nil.
func (w *wildcards) suspend(e *progress.Engine, why error) {
	e.Lock()
	w.suspendReason = why
	for x := range w.pending {
		x.SetSuspended(why)
	}
	e.Release()
}
