package cm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// Types of control messages. docs/wire.md is the reference.
const (
	controlRequest = 1  // this is my id of the communicator: tell me yours
	controlReply   = 2  // this is mine
	controlClosed  = 3  // I have closed it, and have sent you that many messages
	controlAnswer  = 4  // I heard that you have closed it, and have sent you that many messages
	controlGoodbye = 5  // my session is over, and I have sent you that many messages on all communicators
	controlRefused = 6  // an answer: I am not in it, nor will I be
	controlTake    = 7  // send me that much of the message with that number, in parts with that tag; local is the tag, sent are number, bytes, and bytes of a part
	controlStop    = 8  // I have closed the communicator, and receive none of your messages there, point to point
	controlStopped = 9  // An answer: I have sent you sent[0] of them, and send no more
	controlDropped = 10 // I drop your last sent[0] messages with the tag in local; there are sent[1] such messages, one for each tag
)

var controlNames = [...]string{"", "request", "reply", "closed", "closed, answered", "goodbye", "refused", "take", "stop", "stopped", "dropped"}

// controlSize is the size of every control message.
const controlSize = 72

// control is a control message.
type control struct {
	typ      byte
	to       uint64         // nonce of the receiving process, known to members of its job only
	from     uint64         // nonce of the sender
	id       cid.EndpointID // of the handle that it is for
	endpoint uint16         // of the sender's process, that it is from
	rank     uint32         // of the sender in the communicator
	local    cid.Local      // the sender's id of it
	sent     cid.Counts     // a goodbye's first is of all
}

var le = binary.LittleEndian

// put writes controlSize bytes.
func (f *control) put(b []byte) {
	_ = b[controlSize-1]
	le.PutUint32(b[0:], uint32(f.typ)|WireVersion<<8)
	le.PutUint32(b[4:], f.rank)
	le.PutUint64(b[8:], f.to)
	le.PutUint64(b[16:], f.from)
	le.PutUint64(b[24:], f.id.Base)
	le.PutUint64(b[32:], f.id.Sub)
	le.PutUint32(b[40:], uint32(f.local))
	le.PutUint16(b[44:], f.id.Endpoint)
	le.PutUint16(b[46:], f.endpoint)
	for i, n := range f.sent {
		le.PutUint64(b[48+8*i:], n)
	}
}

// parseControl is the inverse of put. It accepts exactly what put makes: a goodbye, and
// no other message, concerns no communicator.
func parseControl(b []byte) (f control, err error) {
	if len(b) != controlSize {
		return f, fmt.Errorf("control message of %d bytes, want %d", len(b), controlSize)
	}
	if head := le.Uint32(b); head>>8 != WireVersion || head&0xff < controlRequest || head&0xff > controlDropped {
		return f, fmt.Errorf("control message that begins with %#x", head)
	}
	f = control{typ: b[0], rank: le.Uint32(b[4:]), to: le.Uint64(b[8:]), from: le.Uint64(b[16:]),
		id:       cid.EndpointID{Extended: cid.Extended{Base: le.Uint64(b[24:]), Sub: le.Uint64(b[32:])}, Endpoint: le.Uint16(b[44:])},
		endpoint: le.Uint16(b[46:]), local: cid.Local(le.Uint32(b[40:]))}
	for i := range f.sent {
		f.sent[i] = le.Uint64(b[48+8*i:])
	}
	if goodbye := f.typ == controlGoodbye; goodbye != (f.id.Extended == cid.Extended{}) || goodbye && (f.rank != anyRank || f.id.Endpoint != 0 || f.endpoint != 0) {
		return f, fmt.Errorf("control message of type %d for communicator %v, endpoint %d, from rank %d, endpoint %d", f.typ, f.id.Extended, f.id.Endpoint, f.rank, f.endpoint)
	}
	return f, nil
}

// controlSend is a control message that the MTL has not sent yet.
type controlSend struct {
	m    *Module
	op   mtl.Op
	asks *peer // who is asked for its id of a communicator; nil: another message
	b    [controlSize]byte
	next *controlSend
}

// Done implements mtl.Owner.
func (k *controlSend) Done(op *mtl.Op) { k.done(op.Err) }

func (k *controlSend) done(err error) {
	p := k.asks
	k.asks = nil
	k.next = k.m.freeControls
	k.m.freeControls = k
	// Who does not get a request never answers. The others are answers, or tell of
	// a close: who has left does not need them.
	if err != nil && p != nil {
		p.unasked(&framework.TransportError{Component: "pml cm", Peer: p.proc.String(), Op: "ask for a communicator id", Err: err})
	}
}

// control sends a control message. asks is as in controlSend. Lock held.
func (p *proc) control(f control, asks *peer) {
	m := p.m
	if m.closed || p.connect() != nil {
		return
	}
	p.talked = true
	f.to, f.from = p.Life.Nonce, m.env.Self.Nonce
	k := m.freeControls
	if k == nil {
		k = &controlSend{m: m}
		k.op.Owner = k
	} else {
		m.freeControls, k.next = k.next, nil
	}
	k.asks = asks
	f.put(k.b[:])
	m.env.Event(pml.Event{Kind: pml.EventControl, Peer: p.Life, Comm: f.id.Extended, Note: controlNames[f.typ]})
	if done, err := m.mtl.SendControl(&k.op, p.to, k.b[:]); done || err != nil {
		k.done(err)
	}
}

// tell sends a control message about the communicator to a member.
func (p *peer) tell(typ byte) {
	c := p.c
	p.asked = p.asked || typ == controlRequest || typ == controlReply
	var asks *peer
	if typ == controlRequest {
		asks = p
	}
	p.proc.control(control{typ: typ, id: p.id(), endpoint: c.Endpoint, rank: uint32(c.Spec.Rank), local: c.Spec.Local, sent: p.tally.Sent}, asks)
}

// unasked fails the sends that wait for the answer to a request which the network has
// failed. The next send asks again. Lock held.
func (p *peer) unasked(err error) {
	all := new(match.Order[request]) // without those that somebody sends who hears of an end
	for e := p.held.First(); e != nil; e = p.held.First() {
		e.Owner.unhold()
		e.Owner.hold(all)
	}
	p.asked = p.exchange.Known()
	for e := all.First(); e != nil; e = all.First() {
		e.Owner.unhold()
		e.Owner.doubt(err)
	}
}

// Control implements mtl.Receiver. Whoever knows the address may send; a message
// that does not name this process's nonce is a stranger's.
func (m *Module) Control(data []byte) {
	f, err := parseControl(data)
	if err != nil || f.to != m.env.Self.Nonce {
		if err == nil {
			err = errors.New("it is not for this process, or is from another job")
		}
		m.env.Logger.Debug("pml cm: a control message is dropped", "err", err)
		return
	}
	m.takeControl(&f)
}

// takeControl takes a control message of a member of the job, which may name a
// communicator that is not here yet. Lock held.
func (m *Module) takeControl(f *control) {
	p := m.procs.ByNonce(f.from)
	if p != nil {
		p.talked = true
	}
	if f.typ == controlGoodbye {
		m.goodbye(p, f)
		return
	}
	c := m.comms.ByID[f.id]
	if c == nil {
		m.unknown(f)
		return
	}
	if (f.typ == controlAnswer || f.typ == controlRefused || f.typ == controlStopped) && f.rank == anyRank && p != nil {
		f.rank = uint32(c.RankOf(p, f.endpoint))
	}
	if p == nil || p.Gone() || int64(f.rank) >= int64(c.Len()) || !c.IsProc(int(f.rank), p) || c.EndpointOf(int(f.rank)) != f.endpoint {
		m.env.Logger.Debug("pml cm: a control message is dropped", "err", "its sender is not the member that it claims to be", "communicator", c.Spec.ID.String(), "rank", f.rank)
		return
	}
	m.env.Event(pml.Event{Kind: pml.EventControl, Peer: p.Life, Comm: f.id.Extended, Note: controlNames[f.typ]})
	q := c.peer(int(f.rank))
	switch f.typ {
	case controlRequest:
		if act := c.Rest.RecvRequest(&q.closing, &q.tally); act != 0 {
			q.end(act)
		} else {
			q.act(q.exchange.RecvExtended(f.local))
		}
	case controlReply:
		q.act(q.exchange.RecvReply(f.local))
		q.end(c.Rest.RecvReply(&q.closing)) // it may have lost what it was told, see takeEarly
	case controlClosed, controlAnswer, controlRefused:
		q.closed(f)
	case controlTake:
		q.take(f)
	case controlStop:
		q.stop(f)
	case controlStopped:
		q.unwanted.hasStopped, q.unwanted.lastSent = true, f.sent[pml.PointToPoint]
		m.reaper.mustSettle = true
	case controlDropped:
		q.takeReport(f)
	}
}

// act carries out what the exchange says.
func (p *peer) act(act cid.Action) {
	if act&cid.Conflict != 0 {
		p.proc.Fail(&framework.TransportError{Component: "pml cm", Peer: p.proc.String(), Op: "receive",
			Err: fmt.Errorf("two ids for communicator %v", p.c.Spec.ID)})
		return
	}
	p.learnt()
	if act&cid.Reply != 0 {
		p.tell(controlReply)
	}
	if act&cid.Drain != 0 {
		p.drain()
	}
}

// unknown takes a control message of a communicator that is not here: one that is
// about to be made, or one that has been closed.
func (m *Module) unknown(f *control) {
	to := cid.EndpointID{Extended: f.id.Extended, Endpoint: f.endpoint}
	switch f.typ {
	case controlReply, controlAnswer, controlRefused, controlTake, controlStopped, controlDropped:
		return // an answer to what was closed meanwhile
	case controlStop:
		if p := m.procs.Lives[f.from]; p != nil { // nothing of this process waits there any more
			p.control(control{typ: controlStopped, id: to, endpoint: f.id.Endpoint, rank: anyRank}, nil)
		}
		return
	}
	if !m.comms.Over(f.id) {
		m.keepEarly(f)
		return
	}
	if p := m.procs.Lives[f.from]; p != nil {
		p.Stats.Dropped++
		answer := control{typ: controlAnswer, id: to, endpoint: f.id.Endpoint, rank: anyRank}
		if m.comms.Refused(f.id) {
			answer.typ = controlRefused
		}
		p.control(answer, nil)
	}
}

// anyRank is the rank of a process that has forgotten the communicator, and with it its rank.
const anyRank = 1<<32 - 1
