package ob1

import (
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

var frameNames = [...]string{"", "match", "RTS", "CTS", "data", "cid", "withdraw", "withdrawn", "credit", "closed", "share"}

// frameSizes are the least sizes of frames. Those of messages and payload are looked at
// part by part.
var frameSizes = [...]int{
	frameCTS: ctsSize, frameCID: cidSize, frameClosed: cidSize,
	frameWithdraw: withdrawSize, frameWithdrawn: withdrawSize, frameCredit: creditSize, frameShare: shareSize,
}

// Frame implements btl.Inbound: one frame from this process. Lock held. What it
// says is a stranger's word: an error ends the path.
//
// This is the path of a small message: three loads of the header, each byte read
// once because a peer may change it any time, a few comparisons, the match, and
// the copy of the payload.
func (p *proc) Frame(f []byte) error {
	if len(f) < matchSize {
		return p.otherFrame(f)
	}
	h := (*[matchSize]byte)(f)
	word, tagAndSource, seq := le.Uint64(h[0:]), le.Uint64(h[8:]), le.Uint32(h[16:])
	plane := word >> 8 & flagPlane
	q := p.last
	if q == nil || word&^(flagPlane<<8) != q.inWord || tagAndSource>>32 != uint64(q.rank) || plane >= uint64(pml.Planes) {
		if q = p.sender(word, tagAndSource>>32); q == nil {
			return p.otherFrame(f)
		}
		p.last = q
	}
	c := q.c
	if seq != q.recvSeq {
		return c.outOfOrder(q, seq)
	}
	q.recvSeq++
	payload, tag := f[matchSize:], int(int32(tagAndSource))
	p.Stats.Received++
	p.Stats.RecvBytes += uint64(len(payload))
	node := c.queues[plane].Arrive(&q.match[plane], tag)
	if node == nil {
		c.keep(q, pml.Plane(plane), &inMessage{header: header{tag: int32(tag)}, payload: payload, length: int64(len(payload))})
		return nil
	}
	r := node.Owner
	r.p = q
	r.deliver(payload, tag)
	p.owe(int64(len(payload)))
	return nil
}

// sender returns the peer from which an eager message comes, if the first word of
// its header says that it is one, on a communicator that is known here, from a
// rank that has been heard of and is this process; otherwise nil.
func (p *proc) sender(word, source uint64) *peer {
	m := p.m
	plane, ctx := pml.Plane(word>>8), cid.Local(word>>32)
	index := uint64(ctx.Index())
	if byte(word) != frameMatch || plane >= pml.Plane(pml.Planes) || index >= uint64(len(m.comms.ByIndex)) {
		return nil
	}
	c := m.comms.ByIndex[index]
	if c == nil || c.Spec.Local != ctx {
		return nil
	}
	if q := c.peers.Get(int(source)); q != nil && q.proc == p {
		return q
	}
	return nil
}

func (c *comm) outOfOrder(q *peer, seq uint32) error {
	return fmt.Errorf("message %d of rank %d on communicator %v came instead of %d", seq, q.rank, c.Spec.ID, q.recvSeq)
}

// otherFrame takes every frame but an eager message of a known communicator from
// a peer that has been heard of there.
func (p *proc) otherFrame(f []byte) error {
	m := p.m
	if len(f) == 0 {
		return errors.New("empty frame")
	}
	typ := f[0]
	if int(typ) < len(frameSizes) && len(f) < frameSizes[typ] {
		return errShort(f)
	}
	switch typ {
	case frameMatch, frameRTS:
		in, err := parseMessage(f)
		if err != nil {
			return err
		}
		if in.rts {
			p.writes = in.flags&flagWriter != 0
		}
		return p.message(&in, f)

	case frameData:
		return p.data(f)

	case frameCTS:
		r, limit := m.lookup(le.Uint64(f[8:])), int64(le.Uint64(f[24:]))
		if r == nil || !r.offered() && r.state != sharing && r.state != shared || r.p.proc != p {
			return errors.New("answer to no RTS")
		}
		if f[1]&ctsDropped != 0 {
			return r.dropped()
		}
		r.advised(f[1])
		if limit < 0 || limit > r.buf.Len() {
			return fmt.Errorf("answer asks for %d bytes of %d", limit, r.buf.Len())
		}
		r.accepted(le.Uint64(f[16:]), limit)
		return nil

	case frameShare:
		return p.shared(f)

	case frameCID:
		id, from := getCIDFrame(f)
		c := m.comms.ByID[id]
		switch {
		case c != nil:
		case f[1]&cidInquiry == 0: // closed here meanwhile
			return nil
		case m.comms.Over(id):
			p.confirmClosed(id, from)
			return nil
		default:
			m.keepEarly(keyOf(id), p, f)
			return nil
		}
		q, err := c.fromEndpoint(p, le.Uint32(f[4:]), from)
		if err != nil {
			return err
		}
		m.env.Event(pml.Event{Kind: pml.EventControl, Peer: p.Life, Comm: id.Extended, Note: "cid"})
		if q.exchange.RecvReply(cid.Local(le.Uint32(f[8:])))&cid.Conflict != 0 {
			return fmt.Errorf("two indices for communicator %v", id.Extended)
		}
		q.learnt()
		return nil

	case frameClosed:
		return p.closed(f)

	case frameCredit:
		bytes := int64(le.Uint64(f[8:]))
		if bytes < 0 || bytes > p.granted-p.credit {
			return fmt.Errorf("gives %d bytes of credit back, and has %d", bytes, p.granted-p.credit)
		}
		p.credit += bytes
		return nil

	case frameWithdraw, frameWithdrawn:
		handle := le.Uint64(f[8:])
		if typ == frameWithdraw {
			m.withdraw(p, handle)
			return nil
		}
		r := m.lookup(handle)
		if r == nil || r.state != withdrawn || r.p.proc != p {
			return errors.New("withdrawal of no RTS")
		}
		r.canceled()
		return nil

	default:
		return fmt.Errorf("frame of unknown type %d", typ)
	}
}

// message finds the communicator of a message. f is the whole frame.
func (p *proc) message(in *inMessage, f []byte) error {
	if in.flags&flagExtended != 0 {
		return p.extended(in, f)
	}
	m := p.m
	if index := int(in.ctx.Index()); index < len(m.comms.ByIndex) {
		if c := m.comms.ByIndex[index]; c != nil && c.Spec.Local == in.ctx {
			return c.arrived(p, in)
		}
	}
	return p.unknown(in, f)
}

// from returns the peer that claims to be rank, which must be process p.
func (c *comm) from(p *proc, rank uint32) (*peer, error) {
	if int64(rank) >= int64(c.Len()) {
		return nil, fmt.Errorf("rank %d of %d in communicator %v", rank, c.Len(), c.Spec.ID)
	}
	if !c.IsProc(int(rank), p) || c.Proc(int(rank)) != p {
		return nil, fmt.Errorf("claims to be rank %d of communicator %v, and is not", rank, c.Spec.ID)
	}
	return c.peer(int(rank)), nil
}

// fromEndpoint is from for a frame with the endpoint of its sender.
func (c *comm) fromEndpoint(p *proc, rank uint32, endpoint uint16) (*peer, error) {
	q, err := c.from(p, rank)
	if err == nil && c.EndpointOf(int(rank)) != endpoint {
		return nil, fmt.Errorf("claims to be endpoint %d and rank %d of communicator %v, and is not", endpoint, rank, c.Spec.ID)
	}
	return q, err
}

// arrived matches a message of process p. Lock held.
func (c *comm) arrived(p *proc, in *inMessage) error {
	q, err := c.from(p, in.source)
	if err != nil {
		return err
	}
	if in.seq != q.recvSeq {
		return c.outOfOrder(q, in.seq)
	}
	q.recvSeq++
	if in.withdrawn {
		p.release(in.rts, in.payload)
		return nil
	}
	p.Stats.Received++
	p.Stats.RecvBytes += uint64(in.length)
	plane := in.plane()
	node := c.queues[plane].Arrive(&q.match[plane], int(in.tag))
	if node == nil {
		c.keep(q, plane, in)
		return nil
	}
	r := node.Owner
	r.p = q
	if in.rts {
		r.accept(&offer{length: in.length, handle: in.handle, whole: in.flags&flagRemote != 0, remote: in.remote, took: time.Duration(in.took), depth: in.depth(), part: in.payload}, int(in.tag))
	} else {
		r.deliver(in.payload, int(in.tag))
	}
	p.release(in.rts, in.payload)
	return nil
}

// extended takes a message that names its communicator by the extended id. f is
// the whole frame.
func (p *proc) extended(in *inMessage, f []byte) error {
	m := p.m
	id := cid.EndpointID{Extended: in.id, Endpoint: in.to}
	c := m.comms.ByID[id]
	if c == nil {
		if m.comms.Over(id) {
			if m.comms.Refused(id) { // first: otherwise its send went well
				p.confirmClosed(id, in.from)
			}
			p.drop(in)
			return nil
		}
		m.keepEarly(keyOf(id), p, f)
		return nil
	}
	q, err := c.fromEndpoint(p, in.source, in.from)
	if err != nil {
		return err
	}
	act := q.exchange.RecvExtended(in.local)
	if act&cid.Conflict != 0 {
		return fmt.Errorf("two indices for communicator %v", in.id)
	}
	q.learnt()
	if act&cid.Reply != 0 {
		p.control(q.cidFrame(frameCID))
	}
	return c.arrived(p, in)
}

// unknown takes a message whose index is no communicator's: one that is about to
// be made here, or one that has been closed.
func (p *proc) unknown(in *inMessage, f []byte) error {
	if p.m.awaited(in.ctx) {
		p.m.keepEarly(arrivalKey{local: in.ctx}, p, f)
	} else {
		p.drop(in)
	}
	return nil
}

// drop counts a message for a communicator that is gone. The sender of an RTS is notified.
func (p *proc) drop(in *inMessage) {
	p.release(in.rts, in.payload)
	if in.withdrawn {
		return
	}
	p.Stats.Dropped++
	if in.rts {
		p.control(droppedFrame(in.handle))
	}
}

// withdraw gives an RTS of process p back, if it has not matched. Lock held.
func (m *Module) withdraw(p *proc, handle uint64) {
	if msg := p.unmatched[handle]; msg != nil {
		if msg.unmatched == nil {
			msg.p.c.queues[msg.plane].Take(&msg.node)
			m.giveUp(msg)
		} else if !msg.p.c.takeBack(msg) {
			return
		}
		p.control(withdrawFrame(frameWithdrawn, handle))
		return
	}
	if m.early.withdraw(p, handle) {
		p.control(withdrawFrame(frameWithdrawn, handle))
	}
	// Otherwise it has matched, and the sender has been told, or will be.
}

// withdrawable makes an RTS one that its sender can withdraw.
func (msg *message) withdrawable() {
	p := msg.p.proc
	if p.unmatched == nil {
		p.unmatched = map[uint64]*message{}
	}
	p.unmatched[msg.handle] = msg
}

// matched says that an RTS is no longer among those that can be given back.
func (msg *message) matched() {
	if all := msg.p.proc.unmatched; all[msg.handle] == msg {
		delete(all, msg.handle)
	}
}
