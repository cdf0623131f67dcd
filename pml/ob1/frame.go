package ob1

import (
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// Frame implements btl.Inbound. It handles one frame from the process. The content is
// untrusted, and an error ends the path. Each byte is read once, since the peer may change it
// at any time. Lock held.
//
// A small message costs three loads of the header, a few comparisons, the match, and the
// copy of the payload.
func (p *proc) Frame(f []byte) error {
	if len(f) < matchSize {
		return p.handleFrame(f)
	}
	word, tagAndSource, seq := parseEager((*[matchSize]byte)(f))
	plane := word >> 8 & flagPlane
	q := p.lastPeer
	if q == nil || word&^(flagPlane<<8) != q.recvWord || tagAndSource>>32 != uint64(q.rank) || plane >= uint64(pml.Planes) {
		if q = p.eagerSender(word, tagAndSource>>32); q == nil {
			return p.handleFrame(f)
		}
		p.lastPeer = q
	}
	c := q.c
	if seq != q.recvSeq {
		return c.sequenceError(q, seq)
	}
	q.recvSeq++
	payload, tag := f[matchSize:], int(int32(tagAndSource))
	p.Stats.Received++
	p.Stats.RecvBytes += uint64(len(payload))
	node := c.queues[plane].Arrive(&q.match[plane], tag)
	if node == nil {
		c.queueUnexpected(q, pml.Plane(plane), &parsedMessage{header: header{tag: int32(tag)}, payload: payload, length: int64(len(payload))})
		return nil
	}
	r := node.Owner
	r.p = q
	r.deliver(payload, tag)
	p.oweCredit(int64(len(payload)))
	return nil
}

// eagerSender returns the sender of an eager message with a compact header, or nil if the
// frame is of another type, the communicator does not exist, or the rank has no state or is
// another process.
func (p *proc) eagerSender(word, source uint64) *peer {
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

func (c *comm) sequenceError(q *peer, seq uint32) error {
	return fmt.Errorf("message from rank %d of communicator %v with sequence number %d instead of %d", q.rank, c.Spec.ID, seq, q.recvSeq)
}

// handleFrame handles all frames but eager messages with an eagerSender.
func (p *proc) handleFrame(f []byte) error {
	if len(f) == 0 {
		return errors.New("empty frame")
	}
	typ := f[0]
	if int(typ) < len(frameSizes) && len(f) < frameSizes[typ] {
		return shortFrameError(f)
	}
	switch typ {
	case frameMatch, frameRTS:
		in, err := parseMessage(f)
		if err != nil {
			return err
		}
		if in.isRTS {
			p.incoming.canPut = in.flags&flagPut != 0
		}
		return p.handleMessage(&in, f)
	case frameData:
		return p.handleData(f)
	case frameCTS:
		return p.handleCTS(parseCTS(f))
	case frameShare:
		return p.handleShare(parseShare(f))
	case frameCID:
		return p.handleCID(f)
	case frameClosed:
		return p.handleClosed(f)
	case frameCredit:
		return p.addCredit(parseCredit(f))
	case frameWithdraw:
		p.withdrawRTS(parseWithdraw(f))
		return nil
	case frameWithdrawn:
		return p.handleWithdrawn(parseWithdraw(f))
	default:
		return fmt.Errorf("frame of unknown type %d", typ)
	}
}

// handleCTS checks the answer to an RTS, and passes it to the send.
func (p *proc) handleCTS(a cts) error {
	r := p.m.lookup(a.send)
	if r == nil || !r.isOffered() && r.state != statePutting && r.state != statePutDone || r.p.proc != p {
		return fmt.Errorf("CTS for unknown rendezvous %#x", a.send)
	}
	if a.isDropped {
		return r.handleDropped()
	}
	r.applyAdvice(a.advice)
	if a.limit < 0 || a.limit > r.buf.Len() {
		return fmt.Errorf("CTS for %d bytes of a message of %d", a.limit, r.buf.Len())
	}
	r.acceptCTS(a.receive, a.limit)
	return nil
}

// handleCID handles the index of a communicator at a member. A CID for a communicator that is
// closed here is ignored, and an inquiry for one that is not created yet is an early arrival.
func (p *proc) handleCID(f []byte) error {
	m, in := p.m, parseMemberFrame(f)
	c := m.comms.ByID[in.to]
	if c == nil {
		switch {
		case in.flags&cidInquiry == 0:
		case m.comms.IsEnded(in.to):
			p.confirmClosed(in.to, in.from)
		default:
			m.keepEarly(keyOf(in.to), p, f)
		}
		return nil
	}
	q, err := c.memberAtEndpoint(p, in.rank, in.from)
	if err != nil {
		return err
	}
	m.env.Event(pml.Event{Kind: pml.EventControl, Peer: p.Incarnation, Comm: in.to.Extended, Note: "cid"})
	if q.exchange.RecvReply(in.local)&cid.Conflict != 0 {
		return conflictError(in.to.Extended)
	}
	q.updateSendWord()
	return nil
}

func conflictError(id cid.Extended) error {
	return fmt.Errorf("two indices of one member for communicator %v", id)
}

// handleWithdrawn completes a withdrawn send.
func (p *proc) handleWithdrawn(handle uint64) error {
	r := p.m.lookup(handle)
	if r == nil || r.state != stateWithdrawing || r.p.proc != p {
		return fmt.Errorf("return of unknown RTS %#x", handle)
	}
	r.completeCanceled()
	return nil
}

// handleMessage finds the communicator of a message. f is the whole frame.
func (p *proc) handleMessage(in *parsedMessage, f []byte) error {
	if in.flags&flagExtended != 0 {
		return p.handleExtended(in, f)
	}
	m := p.m
	if index := int(in.ctx.Index()); index < len(m.comms.ByIndex) {
		if c := m.comms.ByIndex[index]; c != nil && c.Spec.Local == in.ctx {
			return c.matchMessage(p, in)
		}
	}
	return p.handleUnknownIndex(in, f)
}

// memberAt returns the peer of a rank, which must belong to process p.
func (c *comm) memberAt(p *proc, rank uint32) (*peer, error) {
	if int64(rank) >= int64(c.Len()) {
		return nil, fmt.Errorf("unknown rank %d of communicator %v with %d members", rank, c.Spec.ID, c.Len())
	}
	if !c.IsProc(int(rank), p) || c.Proc(int(rank)) != p {
		return nil, fmt.Errorf("sender is not rank %d of communicator %v", rank, c.Spec.ID)
	}
	return c.peer(int(rank)), nil
}

// memberAtEndpoint is memberAt for a frame with the endpoint of its sender.
func (c *comm) memberAtEndpoint(p *proc, rank uint32, endpoint uint16) (*peer, error) {
	q, err := c.memberAt(p, rank)
	if err == nil && c.EndpointOf(int(rank)) != endpoint {
		return nil, fmt.Errorf("sender is not endpoint %d and rank %d of communicator %v", endpoint, rank, c.Spec.ID)
	}
	return q, err
}

// matchMessage matches a message from process p. Lock held.
func (c *comm) matchMessage(p *proc, in *parsedMessage) error {
	q, err := c.memberAt(p, in.source)
	if err != nil {
		return err
	}
	if in.seq != q.recvSeq {
		return c.sequenceError(q, in.seq)
	}
	q.recvSeq++
	if in.isWithdrawn {
		p.releaseCredit(in.isRTS, in.payload)
		return nil
	}
	p.Stats.Received++
	p.Stats.RecvBytes += uint64(in.length)
	plane := in.plane()
	node := c.queues[plane].Arrive(&q.match[plane], int(in.tag))
	if node == nil {
		c.queueUnexpected(q, plane, in)
		return nil
	}
	r := node.Owner
	r.p = q
	if in.isRTS {
		r.acceptRTS(&matchedRTS{length: in.length, handle: in.handle, isDescribed: in.flags&flagRemote != 0, remote: in.remote, packTime: time.Duration(in.packTime), pattern: in.pattern(), fragment: in.payload}, int(in.tag))
	} else {
		r.deliver(in.payload, int(in.tag))
	}
	p.releaseCredit(in.isRTS, in.payload)
	return nil
}

// handleExtended handles a message with an extended header. f is the whole frame.
func (p *proc) handleExtended(in *parsedMessage, f []byte) error {
	m := p.m
	id := cid.EndpointID{Extended: in.id, Endpoint: in.to}
	c := m.comms.ByID[id]
	if c == nil {
		if m.comms.IsEnded(id) {
			// Before the CTS, which would complete the send successfully.
			if m.comms.IsRefused(id) {
				p.confirmClosed(id, in.from)
			}
			p.refuseArrival(in)
			return nil
		}
		m.keepEarly(keyOf(id), p, f)
		return nil
	}
	q, err := c.memberAtEndpoint(p, in.source, in.from)
	if err != nil {
		return err
	}
	act := q.exchange.RecvExtended(in.local)
	if act&cid.Conflict != 0 {
		return conflictError(in.id)
	}
	q.updateSendWord()
	if act&cid.Reply != 0 {
		p.sendControl(q.memberFrame(frameCID, 0))
	}
	return c.matchMessage(p, in)
}

// handleUnknownIndex handles a message for an index without a communicator. It is an
// early arrival if one is about to be created, and is dropped otherwise.
func (p *proc) handleUnknownIndex(in *parsedMessage, f []byte) error {
	if p.m.expectsComm(in.ctx) {
		p.m.keepEarly(arrivalKey{local: in.ctx}, p, f)
	} else {
		p.refuseArrival(in)
	}
	return nil
}

// refuseArrival drops a message for a communicator that is closed or unknown, and notifies the sender of an RTS.
func (p *proc) refuseArrival(in *parsedMessage) {
	p.releaseCredit(in.isRTS, in.payload)
	if in.isWithdrawn {
		return
	}
	p.Stats.Dropped++
	if in.isRTS {
		p.sendControl(newDroppedCTS(in.handle))
	}
}
