package cm

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// How a message travels that is longer than the network takes.
//
// In its place goes a head, which is matched and probed for as the message would be, so
// that the order stays. Who receives the head asks the sender for as much of the message as
// there is room for (controlTake), and posts receives for the parts. They come under the
// communicator's id on a plane of their own, in their order, with a tag that the receiver
// has chosen. Who drops the message asks for nothing of it. Either way the sender learns
// that its message has matched, and is done with the last part.
//
// A head is told by its length and by its beginning, which names both processes by numbers
// that only members of the job know. A user's message that looks the same travels behind a
// head, too. A probe sees the length only: what has the length of a head is taken out of
// the network and looked at, with all that its sender has sent before (see pull). A receive
// with less room than a head has the request's own buffer.
//
// Programs that don't care what comes may receive a window of messages into one buffer, which MPI
// forbids (MPI-4.1, 3.7.2) and every implementation bears. A network that completes several
// receives before it tells of the first one keeps their heads (mtl.Keeper). With one that does not,
// such receives fail, or wait like their senders, as nobody knows any more what was announced.
//
// A network without a limit has none of this: Module.cuts is false.

// headSize is that of a head, in bytes: one that few messages have.
const headSize = 61

const _ = uint(mtl.MostKept - headSize) // it can be kept

// planeParts is the plane of parts.
const planeParts = 1<<planeBits - 1

// unlimited is the longest message of networks that have no limit, or more.
const unlimited = 1 << 62

// headMagic begins each head.
const headMagic = 0x66657272796c6f6e

// head stands for a message that comes in parts.
type head struct {
	to, from uint64 // nonces
	number   uint64 // of the sender's, to find the message by
	total    uint64 // bytes
	part     uint64 // the longest part that the sender can send, in bytes
}

// mark is what a head from one process to another begins with.
func mark(b []byte, to, from uint64) []byte {
	b = le.AppendUint64(b, headMagic)
	b = le.AppendUint64(b, to)
	return le.AppendUint64(b, from)
}

// put returns headSize bytes in b's memory.
func (h *head) put(b []byte) []byte {
	b = mark(b[:0], h.to, h.from)
	for _, v := range [...]uint64{h.number, h.total, h.part} {
		b = le.AppendUint64(b, v)
	}
	return append(b, make([]byte, headSize-len(b))...)
}

// parseHead is the inverse of put, and says whether b is a head.
func parseHead(b []byte) (h head, ok bool) {
	if len(b) != headSize || le.Uint64(b) != headMagic {
		return h, false
	}
	h = head{to: le.Uint64(b[8:]), from: le.Uint64(b[16:]), number: le.Uint64(b[24:]), total: le.Uint64(b[32:]), part: le.Uint64(b[40:])}
	for _, x := range b[48:] {
		if x != 0 {
			return h, false
		}
	}
	return h, h.total <= math.MaxInt64 && h.part > 0 && h.part <= math.MaxInt64
}

// parts is what a request knows of a message that comes in parts.
type parts struct {
	head      [headSize]byte
	number    uint64     // of the message, the sender's
	took      bool       // send: the receiver has asked for it
	isDropped bool       // send: nobody receives it
	rest      []byte     // what has not been sent or received
	part      int64      // the longest part
	tag       int32      // of the parts
	whole     mtl.Result // receive: of the message
	came      int64      // receive: bytes of the part that is on its way
}

// longs are a process's messages that come in parts.
type longs struct {
	sends  map[uint64]*request // by number
	number uint64              // the last one
	tags   map[int32]*request  // of those that are received, by the tag of their parts
	tag    int32               // the last one
	taken  map[origin]struct{} // likewise, by what their senders call them
}

// origin is what a long message is called by its sender.
type origin struct {
	from   *proc
	number uint64
}

// mustCut reports whether a message to a member travels in parts, where some do. A synchronous one of the length of a head
// does, because a probe that fetches it would complete its send.
func (p *peer) mustCut(b []byte, mode pml.Mode) bool {
	m := p.proc.m
	switch {
	case len(b) != headSize:
		return int64(len(b)) > m.caps.MaxMessage
	case mode == pml.Synchronous:
		return true
	}
	var room [headSize]byte
	return bytes.HasPrefix(b, mark(room[:0], p.proc.Life.Nonce, m.env.Self.Nonce))
}

// announce sends the head. Lock held.
func (r *request) announce(b []byte) {
	m, p := r.m, r.p
	if r.parts == nil {
		r.parts = new(parts)
	}
	l := &m.longs
	l.number++
	*r.parts = parts{number: l.number, rest: b}
	l.sends[l.number] = r
	h := head{to: p.proc.Life.Nonce, from: m.env.Self.Nonce, number: l.number, total: uint64(len(b)), part: uint64(m.caps.MaxMessage)}
	r.state, r.busy = announced, true
	done, err := m.mtl.Send(&r.op, p.proc.to, r.c.to(p, r.tag, uint32(r.plane)), h.put(r.parts.head[:]), mtl.Standard)
	if err != nil {
		r.busy = false
		r.forgetParts()
		r.doubt(r.sendError(err))
		return
	}
	p.counts(r.plane, r.tag)
	if done {
		r.busy = false
	}
	if m.failures {
		p.inquire()
	}
}

// headSent takes the end of the head's send from the MTL.
func (r *request) headSent(err error) {
	if err != nil {
		r.forgetParts()
		r.sendDone(err)
		return
	}
	if r.parts.took {
		r.sendPart()
	}
}

// take takes the word of a receiver that it wants a message, or nothing of it. Lock held.
func (p *peer) take(f *control) {
	m := p.proc.m
	r := m.longs.sends[f.sent[0]]
	if r == nil || r.p != p || r.state != announced || r.parts.took {
		return // it has ended here meanwhile
	}
	n, part, tag := f.sent[1], f.sent[2], uint32(f.local)
	if n > uint64(len(r.parts.rest)) || n > 0 && (part == 0 || part > uint64(m.caps.MaxMessage) || tag>>m.caps.TagBits != 0) {
		m.env.Logger.Debug("pml cm: a control message is dropped", "err", "it asks for more of a message than there is", "rank", p.rank)
		return
	}
	r.parts.took, r.parts.rest, r.parts.part, r.parts.tag = true, r.parts.rest[:n], int64(part), int32(tag)
	r.parts.isDropped = part == 0
	if !r.busy {
		r.sendPart()
	}
}

// next cuts the next part off.
func (x *parts) next() []byte {
	n := min(int64(len(x.rest)), x.part)
	b := x.rest[:n]
	x.rest = x.rest[n:]
	return b
}

// sendPart sends the next part, or ends the send. Lock held.
func (r *request) sendPart() {
	m, p := r.m, r.p
	for len(r.parts.rest) > 0 {
		r.state, r.busy = parting, true
		done, err := m.mtl.Send(&r.op, p.proc.to, r.c.to(p, int(r.parts.tag), planeParts), r.parts.next(), mtl.Standard)
		if err != nil {
			r.partSent(err)
			return
		}
		if !done {
			return
		}
		r.busy = false
	}
	r.forgetParts()
	if r.parts.isDropped {
		r.dropped()
		return
	}
	r.finish()
}

// partSent takes the end of a part's send from the MTL.
func (r *request) partSent(err error) {
	if r.busy = false; err != nil {
		r.forgetParts()
		r.doubt(r.sendError(err))
		return
	}
	r.sendPart()
}

// forgetParts is the end of a message that comes in parts, for its request.
func (r *request) forgetParts() {
	l := &r.m.longs
	if r.send {
		delete(l.sends, r.parts.number)
	} else {
		delete(l.tags, r.parts.tag)
		delete(l.taken, origin{r.p.proc, r.parts.number})
	}
	r.parts.rest = nil
}

// headIn returns the head that a message is, if it is one: of its sender, for this process.
func (m *Module) headIn(p *peer, b []byte) (head, bool) {
	h, ok := parseHead(b)
	return h, ok && h.to == m.env.Self.Nonce && h.from == p.proc.Life.Nonce
}

// arrived reports whether what was received into r.target() is the message itself. If it is
// a head, the message comes now.
func (r *request) arrived(p *peer, res *mtl.Result) bool {
	b := r.target()
	if res.Bytes == headSize {
		if h, ok := r.m.headIn(p, r.headAt(b)); ok {
			r.assemble(p, h, res.Tag)
			return false
		}
	}
	if r.bounced() {
		copy(r.buf.Bytes, b[:min(res.Bytes, headSize)])
	}
	return true
}

// headAt returns where the head is that a receive into b has got, if it is one.
func (r *request) headAt(b []byte) []byte {
	if !r.kept {
		return b[:headSize]
	}
	r.kept = false // others may have been received into b since
	return r.parts.head[:]
}

// keepHead keeps what a posted receive has got, which the module has for as long as Done runs.
func (r *request) keepHead() {
	if kept := r.m.keeper.Kept(&r.op); kept != nil {
		if r.parts == nil {
			r.parts = new(parts)
		}
		r.kept = copy(r.parts.head[:], kept) == headSize
	}
}

// bounced reports whether a receive has the request's own buffer, for want of room for a head.
func (r *request) bounced() bool { return r.buf.Layout() == nil && len(r.buf.Bytes) < headSize }

// assemble receives what the head of a message with this tag has announced. Lock held.
func (r *request) assemble(p *peer, h head, tag int32) {
	m, l := r.m, &r.m.longs
	r.p = p
	if p.proc.Err != nil { // nobody is there who would send it
		r.fail(r.c.Explain(p.proc.Err, p.rank))
		return
	}
	if len(l.tags) >= 1<<(m.caps.TagBits-1) {
		r.fail(fmt.Errorf("%w: pml cm: %d messages come in parts already", framework.ErrUnsupported, len(l.tags)))
		return
	}
	if _, again := l.taken[origin{p.proc, h.number}]; again && m.keeper == nil {
		p.took(r.plane, 0)
		r.fail(fmt.Errorf("%w: pml cm: the head of a long message was overwritten before it was read: receives that are in progress share memory, and mtl %s keeps no heads", framework.ErrUnsupported, m.name))
		return
	}
	if r.parts == nil {
		r.parts = new(parts)
	}
	r.why = nil // The message had matched before the receive could be withdrawn.
	for {
		if l.tag = (l.tag + 1) & (1<<m.caps.TagBits - 1); l.tags[l.tag] == nil {
			break
		}
	}
	l.tags[l.tag] = r
	l.taken[origin{p.proc, h.number}] = struct{}{}
	n := min(int64(h.total), r.buf.Len())
	*r.parts = parts{number: h.number, tag: l.tag, whole: mtl.Result{Source: int32(p.rank), Tag: tag, Bytes: int64(h.total)}, part: min(int64(h.part), m.caps.MaxMessage)}
	if n > 0 {
		b := r.buf.Bytes
		if r.buf.Layout() != nil {
			b = r.room(n)
		}
		r.parts.rest = b[:n]
	}
	p.takes(h.number, n, r.parts)
	r.receivePart()
}

// takes asks the sender for the first n bytes of a message. x may be nil if that is nothing.
func (p *peer) takes(number uint64, n int64, x *parts) {
	c := p.c
	f := control{typ: controlTake, id: p.id(), endpoint: c.Endpoint, rank: uint32(c.Spec.Rank), sent: cid.Counts{number, uint64(n)}}
	if x != nil {
		f.local, f.sent[2] = cid.Local(x.tag), uint64(x.part)
	}
	p.proc.control(f, nil)
}

// receivePart posts the receive of the next part, or ends the receive. Lock held.
func (r *request) receivePart() {
	r.state = assembling
	if len(r.parts.rest) == 0 {
		r.forgetParts()
		r.received(&r.parts.whole)
		return
	}
	r.busy = true
	e := r.c.from(r.p, int(r.parts.tag), planeParts)
	b := r.parts.next()
	r.parts.came = int64(len(b))
	if err := r.m.mtl.Recv(&r.op, r.p.proc.to, e, b); err != nil {
		r.busy = false
		r.forgetParts()
		r.doubt(err)
	}
}

// partReceived takes the end of a part's receive from the MTL.
func (r *request) partReceived(res *mtl.Result) {
	switch {
	case (res.Canceled || len(r.parts.rest) > 0 && res.Err == nil) && r.why != nil:
		r.forgetParts()
		r.fail(r.why)
	case res.Err != nil || res.Canceled || res.Bytes != r.parts.came:
		err := res.Err
		if err == nil && res.Canceled {
			err = errors.New("the network gave up a part of a long message")
		} else if err == nil {
			err = fmt.Errorf("a part of a long message has %d bytes, want %d", res.Bytes, r.parts.came)
		}
		if !errors.Is(err, framework.ErrTransport) {
			err = &framework.TransportError{Component: "pml cm", Peer: r.p.proc.String(), Op: "receive", Err: err}
		}
		r.forgetParts()
		r.doubt(err)
	default:
		r.receivePart()
	}
}

// mustOpen reports whether a claimed message may be a head: then it is looked at before
// anything is done with it.
func (msg *message) mustOpen() bool {
	return msg.c.m.cuts && msg.op.Bytes == headSize && msg.from != nil && !msg.isOpen
}

// open receives the contents. Done goes on when they are here. Lock held.
func (msg *message) open() {
	msg.opening, msg.found = true, msg.op.Result
	if err := msg.c.m.mtl.RecvClaimed(&msg.op, msg.contents[:]); err != nil {
		msg.op.Err = err
		msg.Done(&msg.op)
	}
}

// opened takes the contents, or the error in their place.
func (msg *message) opened() {
	msg.opening, msg.isOpen, msg.err = false, true, msg.op.Err
	msg.op.Result = msg.found
	if msg.err != nil {
		return
	}
	if h, ok := msg.c.m.headIn(msg.from, msg.contents[:]); ok {
		msg.isHead, msg.head, msg.op.Bytes = true, h, int64(h.total)
	}
}

// handOver gives an open message to its receive.
func (msg *message) handOver() {
	r, res, from, h := msg.r, msg.op.Result, msg.from, msg.head
	switch {
	case msg.err != nil:
		res = mtl.Result{Err: msg.err}
	case msg.isHead:
		msg.c.m.freeMessage(msg)
		from.proc.Aside--
		r.assemble(from, h, res.Tag)
		return
	default:
		copy(r.target(), msg.contents[:])
	}
	msg.c.m.freeMessage(msg)
	r.receivedClaimed(&res)
}

// drop is the end of an open message that nobody receives. Who sends in parts is told.
func (msg *message) drop() {
	if msg.isHead && msg.from.proc.Err == nil {
		msg.from.takes(msg.head.number, 0, nil)
	}
	msg.c.dropped(msg)
	msg.c.m.freeMessage(msg)
}
