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
// The path of a small message, from the caller to the wire: the lock (one atomic
// operation), the peer's state, header and payload into one cell, one atomic store
// that publishes, one load of the receiver's doorbell.
func (c *comm) Send(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	e := c.m.engine
	e.Lock()
	if c.sendNow(buf, dst, tag, plane, mode) {
		e.Unlock()
		return nil
	}
	return c.sendQueued(ctx, buf, dst, tag, plane, mode)
}

// sendQueued is Send by way of a request. It releases the lock.
func (c *comm) sendQueued(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	r, err := c.startSend(buf, dst, tag, plane, mode)
	if err == nil {
		_, err = r.Conclude(ctx)
	}
	c.m.engine.Unlock()
	return err
}

// sendNow sends an eager message if nothing stands against it. Lock held.
func (c *comm) sendNow(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) bool {
	p := c.peers.Get(dst)
	if p == nil || p.word == 0 || mode == pml.Synchronous || buf.Layout() != nil {
		return false
	}
	proc := p.proc
	n := matchSize + len(buf.Bytes)
	cost := int64(len(buf.Bytes)) + messageCost
	if !proc.direct || n > proc.eager || cost > proc.credit || proc.readsOnce(buf) {
		return false
	}
	h := btl.ShortHeader{
		First:  p.word | uint64(plane)<<8,
		Second: uint64(uint32(tag)) | uint64(c.Spec.Rank)<<32,
		Third:  uint64(uint32(p.sendSeq)),
	}
	if !proc.short.SendShort(h, buf.Bytes) {
		return false
	}
	p.sendSeq++
	proc.credit -= cost
	proc.Stats.Sent++
	proc.Stats.SentBytes += uint64(len(buf.Bytes))
	if c.m.env.Hooks != nil {
		c.m.env.Event(pml.Event{Kind: pml.EventSend, Peer: p.proc.Life, Comm: c.Spec.ID, Tag: tag, Bytes: int64(len(buf.Bytes)), Plane: plane})
	}
	return true
}

// Isend implements pml.Comm.
func (c *comm) Isend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	m := c.m
	m.engine.Lock()
	if c.sendNow(buf, dst, tag, plane, mode) { // StartSend, without a call more
		r := m.sentRequest()
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
	if c.sendNow(buf, dst, tag, plane, mode) {
		return &c.m.sentRequest().Request, nil
	}
	r, err := c.startSend(buf, dst, tag, plane, mode)
	if err != nil {
		return nil, err
	}
	return &r.Request, nil
}

// startSend makes a request of a send and brings it as far as it goes now. Lock
// held.
func (c *comm) startSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*request, error) {
	if err := c.Over(plane); err != nil {
		return nil, err
	}
	p := c.peer(dst)
	m := c.m
	r := m.newRequest(c)
	m.sends++
	r.send, r.state, r.mode, r.plane = true, queued, mode, plane
	r.p, r.buf, r.tag = p, buf, tag
	r.Status = pml.NoMessage()
	err := p.proc.connect()
	if err == nil && p.refused {
		err = m.procs.NotMember(p.proc.Life)
	}
	if err != nil {
		r.fail(c.Explain(err, dst))
		return r, nil
	}
	p.proc.Stats.Sent++
	p.proc.Stats.SentBytes += uint64(buf.Len())
	m.env.Event(pml.Event{Kind: pml.EventSend, Peer: p.proc.Life, Comm: c.Spec.ID, Tag: tag, Bytes: buf.Len(), Plane: plane})
	p.proc.queue.push(r)
	if p.proc.queue.head != r || p.proc.why != nil || !r.first() {
		p.proc.direct = false
		p.proc.markBusy()
	}
	return r, nil
}

// first sends the first frame of a send, which is the head of its process's
// queue: the whole message, or an RTS. It reports false if the path is
// blocked; otherwise the request has left the queue. Lock held.
func (r *request) first() bool {
	p, c := r.p, r.c
	length := r.buf.Len()
	r.lines = nearLines
	size := matchSize
	flags := byte(r.plane)
	compact := p.exchange.Send() == cid.SendCompact
	if !compact {
		flags |= flagExtended
		size += extendedSize
	}
	eager := r.mode != pml.Synchronous && int64(size)+length <= int64(p.proc.eager) && length+messageCost <= p.proc.credit && !p.proc.readsOnce(r.buf)
	n := size + rtsSize
	var remote btl.Remote
	var part int64
	var more bool // others are under way
	if eager {
		n = size + int(length)
	} else {
		var wanted bool
		more = r.next != nil || p.proc.offering()
		// The first message of a window is alone when it is sent. If it counted as that, it
		// might go another way than those behind it, and keep them waiting; and what it
		// took, with all that its receiver had packed before, would be learnt of messages that
		// are alone. So a message behind a window counts as the next one's first.
		r.depth = alone
		if more || p.proc.windowed {
			r.depth = window
			flags |= flagMore
		}
		remote, wanted = r.describe()
		if r.described {
			flags |= flagRemote
			n += remoteSize
			if r.writer {
				flags |= flagWriter
			}
		}
		if wanted {
			part = r.firstPart(p.proc.frame - n)
			n += int(part)
		}
	}
	b := p.proc.reserve(n, r.lines)
	if b == nil {
		return false
	}
	typ := byte(frameRTS)
	if eager {
		typ = frameMatch
	}
	h := header{flags: flags, ctx: p.exchange.Remote(), tag: int32(r.tag), source: uint32(c.Spec.Rank), seq: uint32(p.sendSeq)}
	if !compact {
		h.to, h.from = c.EndpointOf(p.rank), c.Endpoint
	}
	putHeader(b, typ, h)
	if !compact {
		putExtended(b[matchSize:], c.Spec.ID, c.Spec.Local)
	}
	if eager {
		r.pack(b[size:n], 0)
	} else {
		took := r.packPart(b[n-int(part) : n])
		putRTS(b[size:], length, r.handle(), part, took)
		if r.described {
			copy(b[size+rtsSize:], remote[:])
		}
	}
	p.proc.queue.pop()
	p.proc.endpoint.Commit(n)
	p.sendSeq++
	if eager {
		p.proc.credit -= length + messageCost
		r.finish()
	} else {
		r.state, r.moved = rtsSent, part
		p.proc.offered = r.handle()
		p.proc.windowFrom(r.depth, more)
		if part > 0 {
			p.proc.credit -= part + messageCost
		}
		if r.m.failures != 0 {
			p.inquire() // nobody may receive it
		}
	}
	return true
}

// offering reports whether the last large message to the process is under way still.
func (p *proc) offering() bool { return p.isSending(p.offered) }

// isSending reports whether a message to the process is under way.
func (p *proc) isSending(handle uint64) bool {
	r := p.m.lookup(handle)
	return r != nil && r.send && r.state != complete && r.p.proc == p
}

// windowFrom notes when a window of large messages to the process begins, of which one was sent;
// more says that others are under way.
func (p *proc) windowFrom(depth uint8, more bool) {
	p.windowed = more
	if depth == alone {
		p.since = 0
	} else if !more || p.since == 0 {
		p.since = p.m.now()
	}
}

// firstPart is how much of a message goes with its RTS, where room is so much:
// the receiver copies it while its answer is on the way. Nothing if there is no
// credit for it, and for a synchronous send, which asks for the answer.
func (r *request) firstPart(room int) int64 {
	part := min(r.m.piece(r.buf.Len()), r.buf.Len(), int64(room))
	if r.mode == pml.Synchronous || part+messageCost > r.p.proc.credit || part < 0 {
		return 0
	}
	return part
}

// onceFrom is from which size on a message that the peer can read out of memory from AllocMem is offered
// though it could go at once: one copy takes less than two, by more than the offer and its end take.
const onceFrom = 32 << 10

// readsOnce reports whether the message is one of those.
func (p *proc) readsOnce(buf pml.Buffer) bool {
	return len(buf.Bytes) >= p.onceFrom && buf.Kind() == pml.Registered
}

// smallestPiece is the least that is worth a frame of its own.
const smallestPiece = 16 << 10

// piece is how much of a message of that length travels in one frame: a quarter,
// so that both sides copy at the same time, but not less than a frame is worth.
func (m *Module) piece(length int64) int64 {
	return min(max(length/4&^63, smallestPiece), m.fragment)
}

// reserve reserves a frame in such lines, where the path has them.
func (p *proc) reserve(n int, of lines) []byte {
	if of == wideLines && p.wide != nil {
		return p.wide.ReserveWide(n)
	}
	return p.endpoint.Reserve(n)
}

// pack copies the message's bytes from offset into dst.
func (r *request) pack(dst []byte, offset int64) {
	if l := r.buf.Layout(); l != nil {
		l.Pack(dst, r.buf.Bytes, offset)
		return
	}
	src := r.buf.Bytes[offset : offset+int64(len(dst))]
	if r.lines == pastLines {
		cpu.CopyPast(dst, src)
		return
	}
	cpu.CopyShared(dst, src)
}

// accepted is the receiver's answer to an RTS: it takes limit bytes.
func (r *request) accepted(far uint64, limit int64) {
	if r.p.refused {
		r.fail(r.m.procs.NotMember(r.p.proc.Life))
		return
	}
	if limit <= r.moved { // it has all that the receiver wants
		r.sent()
		return
	}
	r.state, r.far, r.limit = copying, far, limit
	proc := r.p.proc
	proc.pushing.push(r)
	proc.pump()
	if !proc.idle() {
		proc.markBusy()
	}
}

// dropped takes the receiver's answer that nobody receives the message. A send that is not
// synchronous completes: its buffer is free.
func (r *request) dropped() error {
	switch {
	case !r.offered():
		return errors.New("the message was dropped after it had matched")
	case r.p.refused:
		r.fail(r.m.procs.NotMember(r.p.proc.Life))
	case r.state == withdrawn:
		r.canceled()
	case r.mode != pml.Synchronous:
		r.sent()
	default:
		r.fail(r.m.procs.Dropped(r.p.proc.Life))
	}
	return nil
}

// withdrawPatience is how long a send whose context has ended waits for its RTS to
// come back. A receiver says nothing if it has matched: then it accepts, sooner or,
// where a matched probe has claimed the message, much later.
const withdrawPatience = time.Second

// Abandon implements pml.Abandoner: nothing is heard of a send that was withdrawn.
func (r *request) Abandon() bool {
	if r.state == withdrawn {
		patience, stop := context.WithTimeout(context.Background(), withdrawPatience)
		defer stop()
		r.m.engine.Wait(patience, &r.Completion, r.First())
	}
	return r.state == withdrawn
}
