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
	// controlRequest has the sender's id of the communicator and asks for the receiver's.
	controlRequest = 1
	// controlReply has the sender's id of the communicator.
	controlReply = 2
	// controlClosed reports that the sender has closed the communicator, and the number
	// of messages that it has sent to the receiver there.
	controlClosed = 3
	// controlClosedAck acknowledges controlClosed, with the same numbers.
	controlClosedAck = 4
	// controlGoodbye reports that the sender has closed its last session, and the number
	// of messages that it has sent to the receiver on all communicators.
	controlGoodbye = 5
	// controlRefused answers a message for a communicator that the sender has not joined
	// and never will.
	controlRefused = 6
	// controlCTS clears the fragments of a message to be sent. local is their tag. sent
	// holds the number of the message, the bytes wanted, and the fragment size in bytes.
	controlCTS = 7
	// controlStop reports that the sender has closed the communicator and receives no more
	// point-to-point messages of the receiver.
	controlStop = 8
	// controlStopped acknowledges controlStop. sent[0] is the final number of messages.
	controlStopped = 9
	// controlDropped reports that the last sent[0] messages with the tag in local are
	// dropped. One such report follows for each of sent[1] tags.
	controlDropped = 10
)

var controlNames = [...]string{"", "request", "reply", "closed", "closed ack", "goodbye", "refused", "CTS", "stop", "stopped", "dropped"}

// controlSize is the size of every control message in bytes.
const controlSize = 72

// control is a decoded control message.
type control struct {
	typ byte
	// Only members of the job know the nonces.
	receiverNonce, senderNonce uint64
	// receiverHandle is the receiver's handle of the communicator.
	receiverHandle cid.EndpointID
	// endpoint is the sender's endpoint within its process.
	senderEndpoint uint16
	// senderRank is the sender's rank in the communicator, or anyRank.
	senderRank uint32
	// local is the sender's local id of the communicator, or a tag.
	local cid.Local
	// sent counts messages by plane. Its meaning depends on typ.
	sent cid.Counts
}

var le = binary.LittleEndian

// encode writes controlSize bytes.
func (f *control) encode(b []byte) {
	_ = b[controlSize-1]
	le.PutUint32(b[0:], uint32(f.typ)|WireVersion<<8)
	le.PutUint32(b[4:], f.senderRank)
	le.PutUint64(b[8:], f.receiverNonce)
	le.PutUint64(b[16:], f.senderNonce)
	le.PutUint64(b[24:], f.receiverHandle.Base)
	le.PutUint64(b[32:], f.receiverHandle.Sub)
	le.PutUint32(b[40:], uint32(f.local))
	le.PutUint16(b[44:], f.receiverHandle.Endpoint)
	le.PutUint16(b[46:], f.senderEndpoint)
	for i, n := range f.sent {
		le.PutUint64(b[48+8*i:], n)
	}
}

// parseControl decodes a control message. It rejects every message that encode cannot
// produce. Goodbyes, and only those, name no communicator.
func parseControl(b []byte) (f control, err error) {
	if len(b) != controlSize {
		return f, fmt.Errorf("control message of %d bytes, want %d", len(b), controlSize)
	}
	if head := le.Uint32(b); head>>8 != WireVersion || head&0xff < controlRequest || head&0xff > controlDropped {
		return f, fmt.Errorf("control message that begins with %#x", head)
	}
	f = control{typ: b[0], senderRank: le.Uint32(b[4:]), receiverNonce: le.Uint64(b[8:]), senderNonce: le.Uint64(b[16:]),
		receiverHandle: cid.EndpointID{Extended: cid.Extended{Base: le.Uint64(b[24:]), Sub: le.Uint64(b[32:])}, Endpoint: le.Uint16(b[44:])},
		senderEndpoint: le.Uint16(b[46:]), local: cid.Local(le.Uint32(b[40:]))}
	for i := range f.sent {
		f.sent[i] = le.Uint64(b[48+8*i:])
	}
	if goodbye := f.typ == controlGoodbye; goodbye != (f.receiverHandle.Extended == cid.Extended{}) || goodbye && (f.senderRank != anyRank || f.receiverHandle.Endpoint != 0 || f.senderEndpoint != 0) {
		return f, fmt.Errorf("control message of type %d for communicator %v, endpoint %d, from rank %d, endpoint %d", f.typ, f.receiverHandle.Extended, f.receiverHandle.Endpoint, f.senderRank, f.senderEndpoint)
	}
	return f, nil
}

// controlSend is a control message in the MTL.
type controlSend struct {
	m  *Module
	op mtl.Op
	// requestTo is the receiver of a controlRequest, nil for other types.
	requestTo      *peer
	encodedControl [controlSize]byte
	nextFree       *controlSend
}

// Done implements mtl.Owner.
func (k *controlSend) Done(op *mtl.Op) { k.finish(op.Err) }

func (k *controlSend) finish(err error) {
	p := k.requestTo
	k.requestTo = nil
	k.nextFree = k.m.freeControls
	k.m.freeControls = k
	// Sends wait for the answer to a request. All other types may be lost, because a
	// receiver that has left does not need them.
	if err != nil && p != nil {
		p.handleRequestFailure(&framework.TransportError{Component: "pml cm", Peer: p.proc.String(), Op: "ask for a communicator id", Err: err})
	}
}

// sendControl sends a control message. requestTo is as in controlSend. Lock held.
func (p *proc) sendControl(f control, asks *peer) {
	m := p.m
	if m.isClosed || p.connect() != nil {
		return
	}
	p.hasContact = true
	f.receiverNonce, f.senderNonce = p.Incarnation.Nonce, m.env.Self.Nonce
	k := m.freeControls
	if k == nil {
		k = &controlSend{m: m}
		k.op.Owner = k
	} else {
		m.freeControls, k.nextFree = k.nextFree, nil
	}
	k.requestTo = asks
	f.encode(k.encodedControl[:])
	m.env.Event(pml.Event{Kind: pml.EventControl, Peer: p.Incarnation, Comm: f.receiverHandle.Extended, Note: controlNames[f.typ]})
	if done, err := m.mtl.SendControl(&k.op, p.mtlEndpoint, k.encodedControl[:]); done || err != nil {
		k.finish(err)
	}
}

// notify sends a control message about the communicator to a member.
func (p *peer) notify(typ byte) {
	c := p.c
	p.hasSentID = p.hasSentID || typ == controlRequest || typ == controlReply
	var asks *peer
	if typ == controlRequest {
		asks = p
	}
	p.proc.sendControl(control{typ: typ, receiverHandle: p.id(), senderEndpoint: c.Endpoint, senderRank: uint32(c.Spec.Rank), local: c.Spec.Local, sent: p.messageTally.Sent}, asks)
}

// handleRequestFailure fails the sends that wait for the answer to a request that the
// network has failed. The next send repeats the request. Lock held.
func (p *peer) handleRequestFailure(err error) {
	all := new(match.Order[request]) // Completion callbacks may start sends, which are not part of it.
	for e := p.heldSends.First(); e != nil; e = p.heldSends.First() {
		e.Owner.dequeue()
		e.Owner.enqueue(all)
	}
	p.hasSentID = p.idExchange.Known()
	for e := all.First(); e != nil; e = all.First() {
		e.Owner.dequeue()
		e.Owner.doubt(err)
	}
}

// Control implements mtl.Receiver. It drops messages without this process's nonce,
// which come from outside of the job.
func (m *Module) Control(data []byte) {
	f, err := parseControl(data)
	if err != nil || f.receiverNonce != m.env.Self.Nonce {
		if err == nil {
			err = errors.New("it is not for this process, or is from another job")
		}
		m.env.Logger.Debug("pml cm: a control message is dropped", "err", err)
		return
	}
	m.handleControl(&f)
}

// handleControl handles a control message of a member of the job. Its communicator may
// not exist here yet. Lock held.
func (m *Module) handleControl(f *control) {
	p := m.procs.ByNonce(f.senderNonce)
	if p != nil {
		p.hasContact = true
	}
	if f.typ == controlGoodbye {
		m.handleGoodbye(p, f)
		return
	}
	c := m.comms.ByID[f.receiverHandle]
	if c == nil {
		m.handleUnknownComm(f)
		return
	}
	if (f.typ == controlClosedAck || f.typ == controlRefused || f.typ == controlStopped) && f.senderRank == anyRank && p != nil {
		f.senderRank = uint32(c.RankOf(p, f.senderEndpoint))
	}
	if p == nil || p.HasEnded() || int64(f.senderRank) >= int64(c.Len()) || !c.IsProc(int(f.senderRank), p) || c.EndpointOf(int(f.senderRank)) != f.senderEndpoint {
		m.env.Logger.Debug("pml cm: a control message is dropped", "err", "its sender is not the member that it claims to be", "communicator", c.Spec.ID.String(), "rank", f.senderRank)
		return
	}
	m.env.Event(pml.Event{Kind: pml.EventControl, Peer: p.Incarnation, Comm: f.receiverHandle.Extended, Note: controlNames[f.typ]})
	q := c.peer(int(f.senderRank))
	switch f.typ {
	case controlRequest:
		if act := c.Closing.RecvRequest(&q.closeState, &q.messageTally); act != 0 {
			q.applyClosing(act)
		} else {
			q.applyExchange(q.idExchange.RecvExtended(f.local))
		}
	case controlReply:
		q.applyExchange(q.idExchange.RecvReply(f.local))
		q.applyClosing(c.Closing.RecvReply(&q.closeState)) // The member may have lost earlier messages, see deliverEarly.
	case controlClosed, controlClosedAck, controlRefused:
		q.handleClosed(f)
	case controlCTS:
		q.handleCTS(f)
	case controlStop:
		q.handleStop(f)
	case controlStopped:
		q.unreceivedMessages.hasStopped, q.unreceivedMessages.lastSent = true, f.sent[pml.PointToPoint]
		m.reaper.mustSettle = true
	case controlDropped:
		q.handleDropReport(f)
	}
}

// applyExchange performs the actions that the exchange returns.
func (p *peer) applyExchange(act cid.Action) {
	if act&cid.Conflict != 0 {
		p.proc.Fail(&framework.TransportError{Component: "pml cm", Peer: p.proc.String(), Op: "receive",
			Err: fmt.Errorf("two ids for communicator %v", p.c.Spec.ID)})
		return
	}
	p.updateReady()
	if act&cid.Reply != 0 {
		p.notify(controlReply)
	}
	if act&cid.Drain != 0 {
		p.drainHeld()
	}
}

// handleUnknownComm handles a control message for a communicator that does not exist
// here, because it has been closed or is not created yet.
func (m *Module) handleUnknownComm(f *control) {
	to := cid.EndpointID{Extended: f.receiverHandle.Extended, Endpoint: f.senderEndpoint}
	switch f.typ {
	case controlReply, controlClosedAck, controlRefused, controlCTS, controlStopped, controlDropped:
		return // The communicator was closed after this process's request.
	case controlStop:
		if p := m.procs.Incarnations[f.senderNonce]; p != nil { // No receive of this process is left there.
			p.sendControl(control{typ: controlStopped, receiverHandle: to, senderEndpoint: f.receiverHandle.Endpoint, senderRank: anyRank}, nil)
		}
		return
	}
	if !m.comms.IsEnded(f.receiverHandle) {
		m.queueEarly(f)
		return
	}
	if p := m.procs.Incarnations[f.senderNonce]; p != nil {
		p.Stats.Dropped++
		answer := control{typ: controlClosedAck, receiverHandle: to, senderEndpoint: f.receiverHandle.Endpoint, senderRank: anyRank}
		if m.comms.IsRefused(f.receiverHandle) {
			answer.typ = controlRefused
		}
		p.sendControl(answer, nil)
	}
}

// anyRank replaces the rank of a sender that has released the communicator.
const anyRank = 1<<32 - 1
