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

// The rendezvous protocol for messages that are longer than the network takes.
//
// The sender sends an RTS in place of the message. The RTS is matched and probed like the
// message itself, so that messages stay in order. After the match, the receiver posts
// receives for the fragments and sends a CTS with the number of bytes that its buffer takes
// (controlCTS). The fragments travel under the communicator's id on a plane of their own,
// in order, with a tag that the receiver has chosen. A receiver that drops the message
// clears it for zero bytes. The send completes with its last fragment, and so not before
// its message has matched.
//
// An RTS is recognized by its length and its prefix, which holds the nonces of both
// processes. A user message with an equal prefix and length is itself sent behind an RTS.
// A probe returns the length only. It therefore pulls a message of this length, and all
// earlier ones of its sender, out of the network to inspect it (pull.go). A receive whose
// buffer is shorter than an RTS uses the request's bounce buffer.
//
// Some programs receive a window of messages into one buffer. MPI forbids this (MPI-4.1,
// 3.7.2), and all implementations tolerate it. A network may complete several receives
// before the MTL reports the first one, so that an RTS is overwritten. An mtl.MessageSaver saves
// the prefix of each message. Without one, such receives fail or never complete, and so do
// their senders.
//
// Networks without a message limit use none of this, see Module.hasMessageLimit.

// rtsSize is the size of an RTS in bytes. Few user messages have this length.
const rtsSize = 61

const _ = uint(mtl.MaxSavedMessage - rtsSize) // The MTL can save an RTS.

// fragmentPlane is the plane of fragments.
const fragmentPlane = 1<<planeBits - 1

// unlimited is the smallest mtl.Caps.MaxMessage that means no limit.
const unlimited = 1 << 62

// rtsMagic is the first word of each RTS.
const rtsMagic = 0x66657272796c6f6e

// rts is the request to send a message in fragments.
type rts struct {
	receiverNonce, senderNonce uint64
	// messageNumber identifies the message among those of the sender.
	messageNumber uint64
	messageBytes  uint64
	// maxFragment is the longest fragment that the sender supports, in bytes.
	maxFragment uint64
}

// appendRTSPrefix appends the bytes that all RTS from one process to another begin with.
func appendRTSPrefix(b []byte, to, from uint64) []byte {
	b = le.AppendUint64(b, rtsMagic)
	b = le.AppendUint64(b, to)
	return le.AppendUint64(b, from)
}

// encode returns the RTS, rtsSize bytes, in b's memory.
func (h *rts) encode(b []byte) []byte {
	b = appendRTSPrefix(b[:0], h.receiverNonce, h.senderNonce)
	for _, v := range [...]uint64{h.messageNumber, h.messageBytes, h.maxFragment} {
		b = le.AppendUint64(b, v)
	}
	return append(b, make([]byte, rtsSize-len(b))...)
}

// parseRTS decodes an RTS. ok is false if b is none.
func parseRTS(b []byte) (h rts, ok bool) {
	if len(b) != rtsSize || le.Uint64(b) != rtsMagic {
		return h, false
	}
	h = rts{receiverNonce: le.Uint64(b[8:]), senderNonce: le.Uint64(b[16:]), messageNumber: le.Uint64(b[24:]), messageBytes: le.Uint64(b[32:]), maxFragment: le.Uint64(b[40:])}
	for _, x := range b[48:] {
		if x != 0 {
			return h, false
		}
	}
	return h, h.messageBytes <= math.MaxInt64 && h.maxFragment > 0 && h.maxFragment <= math.MaxInt64
}

// fragments is the state of a request whose message travels in fragments.
type fragments struct {
	// prefix has the RTS of a send, or the saved prefix of a receive.
	prefix [rtsSize]byte
	// messageNumber identifies the message among those of its sender.
	messageNumber uint64
	// isCleared is set once a send has its CTS. isDropped is set if the CTS is for none
	// of the message.
	isCleared bool
	isDropped bool
	// remainingBuf is the part of the buffer that is not sent or posted yet.
	remainingBuf []byte
	// maxFragment is the size of all fragments but the last, in bytes.
	maxFragment int64
	fragmentTag int32
	// recvResult is taken from the RTS.
	recvResult mtl.Result
	// postedBytes is the size of the fragment that a receive is posted for.
	postedBytes int64
}

// fragmentedMessages has the messages of a process that travel in fragments.
type fragmentedMessages struct {
	// lastNumber is the last message number assigned.
	sendsByNumber map[uint64]*request
	lastNumber    uint64
	// recvsByTag is keyed by the tag of the fragments, and lastTag is the last tag assigned.
	recvsByTag map[int32]*request
	lastTag    int32
	// recvOrigins has the messages that recvsByTag receives.
	recvOrigins map[origin]struct{}
}

// origin identifies a message by its sender and the sender's number.
type origin struct {
	senderProc    *proc
	messageNumber uint64
}

// needsRTS reports whether a message to a member is sent behind an RTS, on a network with a message limit.
// A synchronous message of the length of an RTS is, because a probe that inspects it would complete its send.
func (p *peer) needsRTS(b []byte, mode pml.Mode) bool {
	m := p.proc.m
	switch {
	case len(b) != rtsSize:
		return int64(len(b)) > m.mtlCaps.MaxMessage
	case mode == pml.Synchronous:
		return true
	}
	var room [rtsSize]byte
	return bytes.HasPrefix(b, appendRTSPrefix(room[:0], p.proc.Incarnation.Nonce, m.env.Self.Nonce))
}

// sendRTS starts a send in fragments. Lock held.
func (r *request) sendRTS(b []byte) {
	m, p := r.m, r.p
	if r.fragments == nil {
		r.fragments = new(fragments)
	}
	l := &m.fragmentedMessages
	l.lastNumber++
	*r.fragments = fragments{messageNumber: l.lastNumber, remainingBuf: b}
	l.sendsByNumber[l.lastNumber] = r
	h := rts{receiverNonce: p.proc.Incarnation.Nonce, senderNonce: m.env.Self.Nonce, messageNumber: l.lastNumber, messageBytes: uint64(len(b)), maxFragment: uint64(m.mtlCaps.MaxMessage)}
	r.state, r.isOpBusy = awaitingCTS, true
	done, err := m.mtl.Send(&r.op, p.proc.mtlEndpoint, r.c.to(p, r.tag, uint32(r.plane)), h.encode(r.fragments.prefix[:]), mtl.Standard)
	if err != nil {
		r.isOpBusy = false
		r.forgetFragments()
		r.doubt(r.sendError(err))
		return
	}
	p.countSent(r.plane, r.tag)
	if done {
		r.isOpBusy = false
	}
	if m.mustCheckFailures {
		p.inquire()
	}
}

// rtsSent handles the completion of the RTS by the MTL.
func (r *request) rtsSent(err error) {
	if err != nil {
		r.forgetFragments()
		r.sendDone(err)
		return
	}
	if r.fragments.isCleared {
		r.sendFragment()
	}
}

// handleCTS starts the fragments of a send, or completes a send whose message is dropped. Lock held.
func (p *peer) handleCTS(f *control) {
	m := p.proc.m
	r := m.fragmentedMessages.sendsByNumber[f.sent[0]]
	if r == nil || r.p != p || r.state != awaitingCTS || r.fragments.isCleared {
		return // The send has ended.
	}
	n, part, tag := f.sent[1], f.sent[2], uint32(f.local)
	if n > uint64(len(r.fragments.remainingBuf)) || n > 0 && (part == 0 || part > uint64(m.mtlCaps.MaxMessage) || tag>>m.mtlCaps.TagBits != 0) {
		m.env.Logger.Debug("pml cm: CTS does not fit its message: dropping it", "bytes", n, "fragment", part, "tag", tag, "rank", p.rank)
		return
	}
	r.fragments.isCleared, r.fragments.remainingBuf, r.fragments.maxFragment, r.fragments.fragmentTag = true, r.fragments.remainingBuf[:n], int64(part), int32(tag)
	r.fragments.isDropped = part == 0
	if !r.isOpBusy {
		r.sendFragment()
	}
}

// nextFragment removes the next fragment from remaining and returns it.
func (x *fragments) nextFragment() []byte {
	n := min(int64(len(x.remainingBuf)), x.maxFragment)
	b := x.remainingBuf[:n]
	x.remainingBuf = x.remainingBuf[n:]
	return b
}

// sendFragment sends the next fragment, or completes the send. Lock held.
func (r *request) sendFragment() {
	m, p := r.m, r.p
	for len(r.fragments.remainingBuf) > 0 {
		r.state, r.isOpBusy = sendingFragment, true
		done, err := m.mtl.Send(&r.op, p.proc.mtlEndpoint, r.c.to(p, int(r.fragments.fragmentTag), fragmentPlane), r.fragments.nextFragment(), mtl.Standard)
		if err != nil {
			r.fragmentSent(err)
			return
		}
		if !done {
			return
		}
		r.isOpBusy = false
	}
	r.forgetFragments()
	if r.fragments.isDropped {
		r.finishDropped()
		return
	}
	r.finish()
}

// fragmentSent handles the completion of a fragment's send by the MTL.
func (r *request) fragmentSent(err error) {
	if r.isOpBusy = false; err != nil {
		r.forgetFragments()
		r.doubt(r.sendError(err))
		return
	}
	r.sendFragment()
}

// forgetFragments removes a request from Module.fragmentedMessages.
func (r *request) forgetFragments() {
	l := &r.m.fragmentedMessages
	if r.isSend {
		delete(l.sendsByNumber, r.fragments.messageNumber)
	} else {
		delete(l.recvsByTag, r.fragments.fragmentTag)
		delete(l.recvOrigins, origin{r.p.proc, r.fragments.messageNumber})
	}
	r.fragments.remainingBuf = nil
}

// parseRTSFrom decodes an RTS from p to this process.
func (m *Module) parseRTSFrom(p *peer, b []byte) (rts, bool) {
	h, ok := parseRTS(b)
	return h, ok && h.receiverNonce == m.env.Self.Nonce && h.senderNonce == p.proc.Incarnation.Nonce
}

// acceptReceived reports whether r.target() holds the message itself. If it holds an RTS, the
// rendezvous starts.
func (r *request) acceptReceived(p *peer, res *mtl.Result) bool {
	b := r.target()
	if res.Bytes == rtsSize {
		if h, ok := r.m.parseRTSFrom(p, r.receivedPrefix(b)); ok {
			r.startFragments(p, h, res.Tag)
			return false
		}
	}
	if r.hasBounceTarget() {
		copy(r.userBuf.Bytes, b[:min(res.Bytes, rtsSize)])
	}
	return true
}

// receivedPrefix returns the first rtsSize bytes of a message that was received into b.
func (r *request) receivedPrefix(b []byte) []byte {
	if !r.hasPrefix {
		return b[:rtsSize]
	}
	r.hasPrefix = false // b may hold a later message.
	return r.fragments.prefix[:]
}

// savePrefix copies the prefix of a received message, which the MTL keeps until Done returns.
func (r *request) savePrefix() {
	if kept := r.m.prefixKeeper.SavedMessage(&r.op); kept != nil {
		if r.fragments == nil {
			r.fragments = new(fragments)
		}
		r.hasPrefix = copy(r.fragments.prefix[:], kept) == rtsSize
	}
}

// hasBounceTarget reports whether a receive uses the bounce buffer because buf is shorter than an RTS.
func (r *request) hasBounceTarget() bool {
	return r.userBuf.Layout() == nil && len(r.userBuf.Bytes) < rtsSize
}

// startFragments starts the receive of the message of an RTS that was matched with this tag. Lock held.
func (r *request) startFragments(p *peer, h rts, tag int32) {
	m, l := r.m, &r.m.fragmentedMessages
	r.p = p
	if p.proc.Err != nil {
		r.fail(r.c.MemberError(p.proc.Err, p.rank))
		return
	}
	if len(l.recvsByTag) >= 1<<(m.mtlCaps.TagBits-1) {
		r.fail(fmt.Errorf("%w: pml cm: %d receives of long messages are in progress: no tag is left for the fragments of another", framework.ErrUnsupported, len(l.recvsByTag)))
		return
	}
	if _, isReceiving := l.recvOrigins[origin{p.proc, h.messageNumber}]; isReceiving && m.prefixKeeper == nil {
		p.countReceived(r.plane, 0)
		r.fail(fmt.Errorf("%w: pml cm: RTS of a long message was overwritten before it was read: receives in progress share memory, and mtl %s saves no prefixes: use one buffer for each receive", framework.ErrUnsupported, m.mtlName))
		return
	}
	if r.fragments == nil {
		r.fragments = new(fragments)
	}
	r.endCause = nil // The message had matched before the withdrawal.
	for {
		if l.lastTag = (l.lastTag + 1) & (1<<m.mtlCaps.TagBits - 1); l.recvsByTag[l.lastTag] == nil {
			break
		}
	}
	l.recvsByTag[l.lastTag] = r
	l.recvOrigins[origin{p.proc, h.messageNumber}] = struct{}{}
	n := min(int64(h.messageBytes), r.userBuf.Len())
	*r.fragments = fragments{messageNumber: h.messageNumber, fragmentTag: l.lastTag, recvResult: mtl.Result{Source: int32(p.rank), Tag: tag, Bytes: int64(h.messageBytes)}, maxFragment: min(int64(h.maxFragment), m.mtlCaps.MaxMessage)}
	if n > 0 {
		b := r.userBuf.Bytes
		if r.userBuf.Layout() != nil {
			b = r.bounceBuffer(n)
		}
		r.fragments.remainingBuf = b[:n]
	}
	p.sendCTS(h.messageNumber, n, r.fragments)
	r.receiveFragment()
}

// sendCTS requests the first n bytes of a message. x is nil if the message is dropped.
func (p *peer) sendCTS(number uint64, n int64, x *fragments) {
	c := p.c
	f := control{typ: controlCTS, receiverHandle: p.id(), senderEndpoint: c.Endpoint, senderRank: uint32(c.Spec.Rank), sent: cid.Counts{number, uint64(n)}}
	if x != nil {
		f.local, f.sent[2] = cid.Local(x.fragmentTag), uint64(x.maxFragment)
	}
	p.proc.sendControl(f, nil)
}

// receiveFragment posts the receive of the next fragment, or completes the receive. Lock held.
func (r *request) receiveFragment() {
	r.state = receivingFragment
	if len(r.fragments.remainingBuf) == 0 {
		r.forgetFragments()
		r.recvDone(&r.fragments.recvResult)
		return
	}
	r.isOpBusy = true
	e := r.c.from(r.p, int(r.fragments.fragmentTag), fragmentPlane)
	b := r.fragments.nextFragment()
	r.fragments.postedBytes = int64(len(b))
	if err := r.m.mtl.Recv(&r.op, r.p.proc.mtlEndpoint, e, b); err != nil {
		r.isOpBusy = false
		r.forgetFragments()
		r.doubt(err)
	}
}

// fragmentReceived handles the completion of a fragment's receive by the MTL.
func (r *request) fragmentReceived(res *mtl.Result) {
	switch {
	case (res.Canceled || len(r.fragments.remainingBuf) > 0 && res.Err == nil) && r.endCause != nil:
		r.forgetFragments()
		r.fail(r.endCause)
	case res.Err != nil || res.Canceled || res.Bytes != r.fragments.postedBytes:
		err := res.Err
		if err == nil && res.Canceled {
			err = errors.New("the network canceled the receive of a fragment")
		} else if err == nil {
			err = fmt.Errorf("fragment of %d bytes, want %d", res.Bytes, r.fragments.postedBytes)
		}
		if !errors.Is(err, framework.ErrTransport) {
			err = &framework.TransportError{Component: "pml cm", Peer: r.p.proc.String(), Op: "receive", Err: err}
		}
		r.forgetFragments()
		r.doubt(err)
	default:
		r.receiveFragment()
	}
}

// mustInspect reports whether a claimed message may be an RTS, whose contents are not inspected yet.
func (msg *message) mustInspect() bool {
	return msg.c.m.hasMessageLimit && msg.op.Bytes == rtsSize && msg.from != nil && !msg.isInspected
}

// inspect receives the contents of a claimed message. Done continues when they have come. Lock held.
func (msg *message) inspect() {
	msg.isInspecting, msg.probeResult = true, msg.op.Result
	if err := msg.c.m.mtl.RecvClaimed(&msg.op, msg.contents[:]); err != nil {
		msg.op.Err = err
		msg.Done(&msg.op)
	}
}

// inspected handles the contents, or the error of their receive.
func (msg *message) inspected() {
	msg.isInspecting, msg.isInspected, msg.receiveErr = false, true, msg.op.Err
	msg.op.Result = msg.probeResult
	if msg.receiveErr != nil {
		return
	}
	if h, ok := msg.c.m.parseRTSFrom(msg.from, msg.contents[:]); ok {
		msg.isRTS, msg.rts, msg.op.Bytes = true, h, int64(h.messageBytes)
	}
}

// deliverInspected delivers an inspected message to its receive.
func (msg *message) deliverInspected() {
	r, res, from, h := msg.matchedRequest, msg.op.Result, msg.from, msg.rts
	switch {
	case msg.receiveErr != nil:
		res = mtl.Result{Err: msg.receiveErr}
	case msg.isRTS:
		msg.c.m.freeMessage(msg)
		from.proc.Claimed--
		r.startFragments(from, h, res.Tag)
		return
	default:
		copy(r.target(), msg.contents[:])
	}
	msg.c.m.freeMessage(msg)
	r.receivedClaimed(&res)
}

// dropInspected drops an inspected message. The sender of an RTS is notified.
func (msg *message) dropInspected() {
	if msg.isRTS && msg.from.proc.Err == nil {
		msg.from.sendCTS(msg.rts.messageNumber, 0, nil)
	}
	msg.c.countDropped(msg)
	msg.c.m.freeMessage(msg)
}
