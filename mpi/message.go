package mpi

import (
	"context"
	"sync/atomic"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// Message is a message that a matched probe has removed from matching, so that no other receive gets it (MPI-4.1 section 3.8.2). It is received once by
// Recv or Irecv, also after the close of its communicator, which waits for it. It must not be copied.
type Message struct {
	comm *Comm
	// nil for ProcNull.
	claimed    pml.Claimed
	isConsumed atomic.Bool // For ProcNull.
}

// Mprobe blocks until a message that matches is here, and takes it out of
// matching (MPI_Mprobe). Errors are those of Recv.
func (c *Comm) Mprobe(ctx context.Context, src, tag int) (*Message, Status, error) {
	if null, err := c.recvArgs(ctx, src, tag); err != nil {
		return nil, noMessage(), ended(ctx, "mprobe", err)
	} else if null {
		return &Message{comm: c}, nullStatus(), nil
	}
	m, st, err := c.pml.Mprobe(ctx, src, tag, pml.PointToPoint)
	if err != nil {
		return nil, Status(st), ended(ctx, "mprobe", err)
	}
	return &Message{comm: c, claimed: m}, Status(st), nil
}

// Improbe is Mprobe without blocking (MPI_Improbe). It returns nil and false if no matching message has arrived.
func (c *Comm) Improbe(src, tag int) (*Message, Status, bool, error) {
	if null, err := c.recvArgs(nil, src, tag); err != nil {
		return nil, noMessage(), false, err
	} else if null {
		return &Message{comm: c}, nullStatus(), true, nil
	}
	m, st, ok, err := c.pml.Improbe(src, tag, pml.PointToPoint)
	if !ok || err != nil {
		return nil, Status(st), false, err
	}
	return &Message{comm: c, claimed: m}, Status(st), true, nil
}

// Recv receives the message into buf (MPI_Mrecv). The message has matched, so that the end of ctx does not end the receive. It completes, or fails with
// its sender. It returns ErrTruncate like (*Comm).Recv, and ErrClosed if the message was received before.
func (m *Message) Recv(ctx context.Context, buf []byte) (Status, error) {
	if m == nil || m.comm == nil {
		return noMessage(), errInactive()
	}
	if m.claimed == nil {
		if m.isConsumed.Swap(true) {
			return noMessage(), errInactive()
		}
		return nullStatus(), nil
	}
	st, err := m.claimed.Recv(ctx, pml.Buffer{Bytes: buf})
	return Status(st), ended(ctx, "mrecv", err)
}

// Irecv starts to receive the message into buf (MPI_Imrecv). buf is the library's
// until the request is complete. ErrClosed if the message was received before.
func (m *Message) Irecv(buf []byte) (Request, error) {
	if m == nil || m.comm == nil {
		return Request{}, errInactive()
	}
	if m.claimed == nil {
		if m.isConsumed.Swap(true) {
			return Request{}, errInactive()
		}
		return m.comm.rankState.nullRequests.request(nullStatus()), nil
	}
	return started(m.claimed.Irecv(pml.Buffer{Bytes: buf}))
}

// Mrecv is (*Message).Recv of elements.
func Mrecv[T any](ctx context.Context, m *Message, buf []T) (Status, error) {
	if err := sendable[T](); err != nil {
		return noMessage(), err
	}
	return m.Recv(ctx, mem.Bytes(buf))
}

// Imrecv is (*Message).Irecv of elements.
func Imrecv[T any](m *Message, buf []T) (Request, error) {
	if err := sendable[T](); err != nil {
		return Request{}, err
	}
	return m.Irecv(mem.Bytes(buf))
}
