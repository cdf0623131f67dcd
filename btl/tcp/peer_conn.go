package tcp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// peerConn is the connection with one incarnation of a peer.
type peerConn struct {
	module      *module
	incarnation framework.Life
	proc        framework.Proc
	// nil if unknown, so that only the peer can connect.
	card *businessCard

	state      stateIDs
	path       path
	sendBuffer sendBuffer
	// By slot.
	links        [maxLinks]*link
	peerLimits   limits
	wasConnected bool
	isClosed     bool

	outbound outboundPath
	inbound  inboundPath
	reorder  reorderBuffer
	batching batching
	acks     ackTimes

	// It is in module.pendingPeers.
	isPending bool
	// Ends the connection at the next poll.
	pendingFailure error
	stall          stallDetector
	reconnector
}

// stateIDs are the random numbers of the path state at both ends; remote is 0 if unknown.
type stateIDs struct{ local, remote uint64 }

// outboundPath is the path to the peer.
type outboundPath struct {
	// nil if closed.
	endpoint *endpoint
	// Number of the newest path.
	pathsOpened uint64
	// The protocol has the peer's limits, so that frames may leave.
	limitsReported bool
	// Reason of the peer for ending the path.
	refusal error
}

// inboundPath is the path from the peer.
type inboundPath struct {
	// nil if closed.
	handler btl.Inbound
	// nil if handler has no placement.
	placer     btl.Placer
	pathNumber uint64
	source     peerSource
}

// batching counts the writes that did not wait for a poll.
type batching struct {
	// Poll that immediateWrites counts from.
	pollCount       uint64
	immediateWrites int
}

// ackTimes are the acks that are outstanding in both directions.
type ackTimes struct {
	// Frames before it have been requested from the peer.
	requestedUpTo uint64
	// 0 if none is owed.
	owedSince time.Duration
}

// newPeerConn adds a peer to the module. card may be nil.
func (m *module) newPeerConn(peer framework.Life, card *businessCard) *peerConn {
	p := &peerConn{module: m, incarnation: peer, proc: m.env.Worlds.Proc(peer.ID), reorder: reorderBuffer{frames: map[uint64]bufferedFrame{}}}
	for p.state.local == 0 {
		p.state.local = randomState()
	}
	if card != nil {
		p.setCard(card)
	}
	p.path.limit = m.config.window
	p.sendBuffer.pool = &m.buffers
	p.inbound.source.peer = p
	p.reconnector.start(m.readClock())
	m.peers.byIncarnation[peer] = p
	m.pacer.countdown = 0
	return p
}

func randomState() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return le.Uint64(b[:])
}

// markPending schedules processPending for the next poll.
func (p *peerConn) markPending() {
	if !p.isPending && !p.isClosed {
		p.isPending = true
		p.module.pendingPeers = append(p.module.pendingPeers, p)
		p.module.env.Engine.Nudge()
	}
}

// addLink adds a link after its handshake, or closes it. The peer has received all frames before
// ackedUpTo.
func (p *peerConn) addLink(l *link, ackedUpTo uint64) error {
	now := p.module.readClock()
	if old := p.links[l.slot]; old != nil {
		old.close()
		p.stall.recordLoss(old)
		p.lastLoss = fmt.Sprintf("%v: the peer has connected again", old)
		p.notifyWatcher("lost: " + p.lastLoss)
	}
	err := setKeepalive(l.fd)
	if err == nil {
		err = p.module.watchSocket(l.fd, l)
	}
	if err == nil {
		err = p.path.linkUp(l.slot, ackedUpTo)
	}
	if err == nil {
		err = p.stallError(now)
	}
	if err != nil {
		p.module.closeSocket(l.fd)
		return err
	}
	p.path.maxAhead = maxFramesInFlight(p.peerWindow())
	// The peer buffers at most this (reorderLimit).
	p.path.limit = min(p.module.config.window, max(p.peerWindow(), maxDeclaredWindow))
	if p.links[l.slot] = l; p.linkedSlots&(1<<l.slot) != 0 {
		p.recordReconnect(l, now)
	}
	p.linkedSlots |= 1 << l.slot
	l.isEncrypted = p.module.tunnelOf(l.fd) != nil
	l.liveness.connectedAt, l.liveness.lastReadAt, p.wasConnected = now, now, true
	p.acks.requestedUpTo = 0
	p.reconnector.linkUp(l.slot, now, l.remoteAddr.Addr())
	l.enqueue()
	p.notifyWatcher("up: " + l.String())
	p.markPending()
	p.reportLimits()
	p.module.scheduleAt(now)
	return nil
}

// recordReconnect counts a link that replaces a lost one. It logs the first one.
func (p *peerConn) recordReconnect(l *link, now time.Duration) {
	p.stall.recordReconnect(&p.path, now)
	if p.reconnects++; p.reconnects == 1 && p.path.damagedLinks == 0 {
		p.module.env.Logger.Warn("btl tcp: lost a connection and reconnected; further reconnects are only counted", "peer", p.proc.String(), "link", l.String(), "lost", p.lastLoss)
	}
}

// reportLimits passes the peer's limits to the protocol, once for each path. Frames leave only after that.
func (p *peerConn) reportLimits() {
	if p.outbound.limitsReported || !p.wasConnected || p.outbound.endpoint == nil {
		return
	}
	p.outbound.limitsReported = true
	if frame := int(p.peerLimits.frame); frame < p.module.config.frameLimit {
		p.module.env.Upcall.Limits(p.incarnation, min(p.module.config.eagerLimit, frame), frame)
	}
}

// recordInOrder records an in-order frame of size bytes, header included, and schedules the ack.
func (p *peerConn) recordInOrder(size int) {
	p.path.recordReceived(size)
	p.reorder.lastInOrderAt = p.module.timers.now
	if p.path.mustAck(p.peerWindow()) {
		p.markPending()
	} else if p.acks.owedSince == 0 {
		p.acks.owedSince = p.module.timers.now + 1
		p.module.scheduleAt(p.module.timers.now + ackDelay)
	}
}

// ackDelay is the longest delay of an ack without outgoing frames.
const ackDelay = 10 * time.Millisecond

// peerWindow returns the window of the peer in bytes.
func (p *peerConn) peerWindow() int { return int(min(p.peerLimits.window, 1<<30)) }

// deliver passes a frame to the protocol, or handles a control frame.
func (p *peerConn) deliver(h header, b []byte) {
	switch h.kind {
	case kindOpen:
		p.inbound.pathNumber = le.Uint64(b)
		p.inbound.handler = p.module.env.Upcall.Accept(p.incarnation)
		p.inbound.placer, _ = framework.As[btl.Placer](p.inbound.handler)
	case kindFrame:
		if p.inbound.handler != nil {
			p.handleDeliveryError(p.inbound.handler.Frame(b))
		}
	case kindLeave:
		p.inbound.handler, p.inbound.placer = nil, nil
	case kindRefuse:
		if p.outbound.endpoint != nil && le.Uint64(b) == p.outbound.pathsOpened {
			p.outbound.refusal = fmt.Errorf("the peer has ended the path: %.*q", maxReasonSize, b[8:])
			p.markPending()
		}
	case kindBye:
		p.recordClosed()
		p.fail("receive", framework.ErrPeerClosed)
	}
}

// handleDeliveryError ends the path from the peer if the protocol rejects a frame.
func (p *peerConn) handleDeliveryError(err error) {
	if err == nil || p.isClosed {
		return
	}
	p.inbound.handler, p.inbound.placer = nil, nil
	reason := err.Error()
	p.sendControl(kindRefuse, append(le.AppendUint64(nil, p.inbound.pathNumber), reason[:min(len(reason), maxReasonSize)]...))
	p.module.env.Ended("btl tcp", p.incarnation, "receive", err)
}

// sendControl sends a control frame, for which the window always has room. A peer that acks none of many
// control frames fails at the next poll.
func (p *peerConn) sendControl(k kind, body []byte) {
	b := make([]byte, headerSize, headerSize+len(body))
	h := header{bodySize: len(body), kind: k}
	h.encode(b)
	p.path.push(frame{bytes: append(b, body...)})
	if p.path.isOverfull() {
		p.pendingFailure = fmt.Errorf("too many unconfirmed messages about paths that were opened and closed")
	}
	p.markPending()
}

// processPending closes failed links, completes acked frames, and writes. It makes upcalls.
func (p *peerConn) processPending() {
	for _, l := range p.links[:len(p.path.queues)] {
		if l != nil && l.state >= connFailed && !l.hasBufferedFrame() {
			p.loseLink(l)
		}
	}
	if p.pendingFailure != nil && !p.isClosed {
		p.fail("send", p.pendingFailure)
	}
	p.releaseAcked()
	p.reportLimits()
	if refused := p.outbound.refusal; refused != nil {
		p.outbound.refusal = nil
		if p.outbound.endpoint != nil {
			p.outbound.endpoint.Close()
			p.module.env.Ended("btl tcp", p.incarnation, "send", refused)
		}
	}
	if p.isClosed {
		return
	}
	p.writeLinks()
	if p.path.mustAck(p.peerWindow()) && !p.path.queueAck(false) {
		// Retry at the next timer.
		p.acks.owedSince = 1
	} else {
		if p.path.ackOwedBytes == 0 {
			p.acks.owedSince = 0
		}
		p.writeLinks()
	}
	if p.needsMoreLinks() {
		p.module.scheduleAt(p.module.timers.now)
	}
}

// releaseAcked frees acked frames, and completes their payloads.
func (p *peerConn) releaseAcked() {
	freed := false
	for {
		f, ok := p.path.popAcked()
		if !ok {
			break
		}
		freed = true
		if f.completion != nil {
			f.completion.LocallyComplete()
		}
	}
	if freed {
		p.sendBuffer.freeBefore(p.path.firstUnacked)
		p.path.shrinkRing()
	}
}

// writeLinks writes until the sockets are full. It makes no upcalls.
func (p *peerConn) writeLinks() {
	for {
		i := p.path.assignFrames()
		if i < 0 {
			return
		}
		l, c := p.links[i], &p.path.queues[i]
		pieces := p.path.appendPieces(i, p.module.scratch.writeVec[:0])
		var n, size int
		var err error
		for _, b := range pieces {
			size += len(b)
		}
		n, err = p.module.writeSocket(l.fd, pieces...)
		clear(pieces)
		p.module.scratch.writeVec = pieces[:0]
		switch {
		case n > 0:
			p.path.recordWritten(i, n)
			c.isBlocked = n < size
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			c.isBlocked = true
		default:
			c.isBlocked = true
			l.failAfterDrain(err)
		}
	}
}

// loseLink closes a failed link.
func (p *peerConn) loseLink(l *link) {
	err, now := l.err, p.module.readClock()
	l.close()
	p.stall.recordLoss(l)
	p.reconnector.linkDown(now, l.updateLiveness(now), fmt.Sprintf("%v: %v", l, err), p.path.countUp() == 0)
	p.reorder.isBuffering = true
	if errors.Is(err, errDamaged) && p.path.damagedLinks == 1 {
		p.module.env.Logger.Warn("btl tcp: a connection carried damaged data and is made again; further ones are only counted", "peer", p.proc.String(), "link", l.String(), "error", err)
	}
	p.module.scheduleAt(now)
	p.notifyWatcher(fmt.Sprintf("lost: %v: %v", l, err))
	p.resumeLinks()
	if p.path.damagedLinks > maxDamagedLinks {
		p.fail("receive", err)
	} else if err := p.stallError(now); err != nil {
		p.fail("send", err)
	}
}

// maxDamagedLinks is the number of links that may end because of damaged data. The next one fails the
// peer.
const maxDamagedLinks = 8

// fail closes the connection, and reports the error to the protocol once.
func (p *peerConn) fail(op string, err error) {
	mustReport, neverOpened := p.outbound.endpoint != nil || p.inbound.handler != nil, p.outbound.endpoint != nil && !p.outbound.endpoint.wasUsed && p.inbound.handler == nil
	if errors.Is(err, framework.ErrPeerClosed) {
		mustReport, neverOpened = p.outbound.endpoint != nil, false
	}
	p.close()
	if neverOpened {
		op, err = "connect", fmt.Errorf("%w: %w", btl.ErrNeverOpened, err)
	}
	if mustReport {
		p.module.env.Ended("btl tcp", p.incarnation, op, err)
	}
}

// close closes the connection and completes all payloads, without a report to the protocol.
func (p *peerConn) close() {
	if p.isClosed {
		return
	}
	p.isClosed = true
	for _, l := range p.links[:len(p.path.queues)] {
		if l != nil {
			l.close()
		}
	}
	p.reconnector.cancelAll()
	if p.module.peers.byIncarnation[p.incarnation] == p {
		delete(p.module.peers.byIncarnation, p.incarnation)
	}
	e := p.outbound.endpoint
	if p.inbound.handler, p.inbound.placer, p.outbound.endpoint, p.reorder.frames = nil, nil, nil, nil; e != nil {
		e.peer = nil
	}
	p.path.ackedUpTo = p.path.nextNumber
	for n := p.path.firstUnacked; n < p.path.nextNumber; n++ {
		if done := p.path.frameAt(n).completion; done != nil {
			done.LocallyComplete()
		}
	}
	p.path.ring, p.path.firstUnacked = nil, p.path.nextNumber
	p.sendBuffer.release()
}
