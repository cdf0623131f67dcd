package ob1

import (
	"context"
	"errors"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
)

// Send implements pml.Comm.
//
// A small message costs the lock (one atomic operation), the peer's state, header and
// payload in one cell, one atomic store that publishes them, and one load of the receiver's
// doorbell.
func (c *comm) Send(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	e := c.m.engine
	e.Lock()
	if c.sendEager(buf, dst, tag, plane, mode) {
		e.Unlock()
		return nil
	}
	return c.sendWithRequest(ctx, buf, dst, tag, plane, mode)
}

// sendWithRequest implements Send by a request. It releases the lock.
func (c *comm) sendWithRequest(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	r, err := c.startSend(buf, dst, tag, plane, mode)
	if err == nil {
		_, err = r.Conclude(ctx)
	}
	c.m.engine.Unlock()
	return err
}

// sendEager sends an eager message, or reports false if that is impossible now. Lock held.
func (c *comm) sendEager(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) bool {
	p := c.peers.Get(dst)
	if p == nil || p.sendWord == 0 || mode == pml.Synchronous || buf.Layout() != nil {
		return false
	}
	proc := p.proc
	n := matchSize + len(buf.Bytes)
	cost := int64(len(buf.Bytes)) + messageCost
	if !proc.canSendEager || n > proc.eagerLimit || cost > proc.credit || proc.prefersGet(buf) {
		return false
	}
	h := eagerHeader(p.sendWord, plane, tag, c.Spec.Rank, p.sendSeq)
	if !proc.shortSender.SendShort(h, buf.Bytes) {
		return false
	}
	p.sendSeq++
	proc.credit -= cost
	proc.Stats.Sent++
	proc.Stats.SentBytes += uint64(len(buf.Bytes))
	if c.m.env.Hooks != nil {
		c.m.env.Event(pml.Event{Kind: pml.EventSend, Peer: p.proc.Incarnation, Comm: c.Spec.ID, Tag: tag, Bytes: int64(len(buf.Bytes)), Plane: plane})
	}
	return true
}

// Isend implements pml.Comm.
func (c *comm) Isend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	m := c.m
	m.engine.Lock()
	// StartSend, inlined to save a call.
	if c.sendEager(buf, dst, tag, plane, mode) {
		r := m.newCompleteSend()
		m.engine.Unlock()
		return &r.Request, nil
	}
	r, err := c.startSend(buf, dst, tag, plane, mode)
	m.engine.Unlock()
	if err != nil {
		return nil, err
	}
	return &r.Request, nil
}

// StartSend implements pml.Comm.
func (c *comm) StartSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	if c.sendEager(buf, dst, tag, plane, mode) {
		return &c.m.newCompleteSend().Request, nil
	}
	r, err := c.startSend(buf, dst, tag, plane, mode)
	if err != nil {
		return nil, err
	}
	return &r.Request, nil
}

// startSend starts a send with a request, and sends its first frame if possible. Lock held.
func (c *comm) startSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*request, error) {
	if err := c.StartError(plane); err != nil {
		return nil, err
	}
	p := c.peer(dst)
	m := c.m
	r := m.newRequest(c)
	m.pendingSends++
	r.isSend, r.state, r.mode, r.plane = true, stateQueued, mode, plane
	r.p, r.buf, r.tag = p, buf, tag
	r.Status = pml.NoMessage()
	err := p.proc.requirePath()
	if err == nil && p.hasRefused {
		err = m.procs.NotMemberError(p.proc.Incarnation)
	}
	if err != nil {
		r.fail(c.MemberError(err, dst))
		return r, nil
	}
	p.proc.Stats.Sent++
	p.proc.Stats.SentBytes += uint64(buf.Len())
	m.env.Event(pml.Event{Kind: pml.EventSend, Peer: p.proc.Incarnation, Comm: c.Spec.ID, Tag: tag, Bytes: buf.Len(), Plane: plane})
	p.proc.sendQueue.push(r)
	if p.proc.sendQueue.head != r || p.proc.suspectedFor != nil || !r.sendFirst() {
		p.proc.canSendEager = false
		p.proc.markBusy()
	}
	return r, nil
}

// sendFirst sends an eager message or an RTS for the head of its process's sendQueue. It
// reports false if the path is blocked. Otherwise the request has left the queue. Lock held.
func (r *request) sendFirst() bool {
	p := r.p
	length := r.buf.Len()
	flags, size := byte(r.plane), matchSize
	if p.exchange.Send() != cid.SendCompact {
		flags |= flagExtended
		size += extendedSize
	}
	if r.mode != pml.Synchronous && int64(size)+length <= int64(p.proc.eagerLimit) && length+messageCost <= p.proc.credit && !p.proc.prefersGet(r.buf) {
		return r.sendMatch(flags, size)
	}
	return r.sendRTS(flags, size)
}

// sendMatch sends an eager message with a header of size bytes, and completes the request.
func (r *request) sendMatch(flags byte, size int) bool {
	p, length := r.p, r.buf.Len()
	n := size + int(length)
	b := p.proc.endpoint.Reserve(n, btl.RingStart)
	if b == nil {
		return false
	}
	r.putHeader(b, frameMatch, flags)
	r.pack(b[size:n], 0, packCached)
	r.commitFirst(n)
	p.proc.credit -= length + messageCost
	r.finish()
	return true
}

// putHeader writes the header of the first frame.
func (r *request) putHeader(b []byte, typ, flags byte) {
	p, c := r.p, r.c
	h := header{flags: flags, ctx: p.exchange.Remote(), tag: int32(r.tag), source: uint32(c.Spec.Rank), seq: uint32(p.sendSeq)}
	if flags&flagExtended != 0 {
		h.to, h.from = c.EndpointOf(p.rank), c.Endpoint
		putExtended(b[matchSize:], c.Spec.ID, c.Spec.Local)
	}
	putHeader(b, typ, h)
}

// commitFirst publishes the first frame, of n bytes, and takes the request out of the queue.
func (r *request) commitFirst(n int) {
	r.p.proc.sendQueue.pop()
	r.p.proc.endpoint.Commit(n)
	r.p.sendSeq++
}

// minGetFrom is the smallest size of messages in memory from AllocMem that use a rendezvous
// even below the eager limit. From here on, the saved copy pays for RTS and CTS.
const minGetFrom = 32 << 10

// prefersGet reports whether a message of any size should use a rendezvous for the get protocol.
func (p *proc) prefersGet(buf pml.Buffer) bool {
	return len(buf.Bytes) >= p.getFrom && buf.Kind() == pml.Registered
}

// minFragment is the smallest fragment that pays for a separate frame, in bytes.
const minFragment = 16 << 10

// pipelineFragment returns the size of the fragments of a message. It is a quarter, so that
// both sides copy at the same time, within minFragment and the parameter fragment_size.
func (m *Module) pipelineFragment(length int64) int64 {
	return min(max(length/4&^63, minFragment), m.fragmentSize)
}

// reserve reserves a frame of n bytes in the part of the ring that mode uses.
func (p *proc) reserve(n int, of packMode) []byte {
	placement := btl.RingStart
	if of == packFull {
		placement = btl.FullRing
	}
	return p.endpoint.Reserve(n, placement)
}

// pack copies payload from offset into dst.
func (r *request) pack(dst []byte, offset int64, mode packMode) {
	if l := r.buf.Layout(); l != nil {
		l.Pack(dst, r.buf.Bytes, offset)
		return
	}
	src := r.buf.Bytes[offset : offset+int64(len(dst))]
	if mode == packNT {
		cpu.CopyPast(dst, src)
		return
	}
	cpu.CopyShared(dst, src)
}

// handleDropped handles a CTS that reports a dropped message. A send that is not synchronous
// completes.
func (r *request) handleDropped() error {
	switch {
	case !r.isOffered():
		return errors.New("CTS reports a drop of a message that has matched")
	case r.p.hasRefused:
		r.fail(r.m.procs.NotMemberError(r.p.proc.Incarnation))
	case r.state == stateWithdrawing:
		r.completeCanceled()
	case r.mode != pml.Synchronous:
		r.completeRendezvous()
	default:
		r.fail(r.m.procs.DroppedError(r.p.proc.Incarnation))
	}
	return nil
}

// withdrawTimeout bounds how long a send waits for the return of its RTS after its context has
// ended. A receiver that has matched only sends the CTS, perhaps much later if a matched probe
// has claimed the message.
const withdrawTimeout = time.Second

// Abandon implements pml.Abandoner. It waits up to withdrawTimeout for the answer to a
// withdrawal, and releases the lock meanwhile. It returns true if there is none. Lock held.
func (r *request) Abandon() bool {
	if r.state == stateWithdrawing {
		patience, stop := context.WithTimeout(context.Background(), withdrawTimeout)
		defer stop()
		r.m.engine.Wait(patience, &r.Completion, r.First())
	}
	return r.state == stateWithdrawing
}
