package tcp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// peerConn is the connection with one incarnation of a peer.
type peerConn struct {
	module      *module
	incarnation framework.Incarnation
	proc        framework.Proc
	// nil if unknown, so that only the peer can connect.
	card *businessCard

	stateIDs     stateIDs
	path         path
	sendBuffer   sendBuffer
	linksBySlot  [maxLinks]*link
	peerLimits   limits
	wasConnected bool
	isClosed     bool

	outboundPath  outboundPath
	inboundPath   inboundPath
	reorderBuffer reorderBuffer
	batching      batching
	acks          ackTimes

	isPending      bool
	pendingFailure error
	stallDetector  stallDetector
	reconnector
}

// stateIDs are the random numbers of the path state at both ends; remote is 0 if unknown.
type stateIDs struct{ local, remote uint64 }

// outboundPath is the path to the peer.
type outboundPath struct {
	endpoint          *endpoint
	pathsOpened       uint64
	hasReportedLimits bool
	endedByPeerErr    error
}

// inboundPath is the path from the peer.
type inboundPath struct {
	handler    btl.Inbound
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
	requestedUpTo uint64
	// 0 if none is owed.
	owedSince time.Duration
}

// newPeerConn adds a peer to the module. card may be nil.
func (m *module) newPeerConn(peer framework.Incarnation, card *businessCard) *peerConn {
	p := &peerConn{module: m, incarnation: peer, proc: m.env.Worlds.Proc(peer.ID), reorderBuffer: reorderBuffer{framesByNumber: map[uint64]bufferedFrame{}}}
	for p.stateIDs.local == 0 {
		p.stateIDs.local = randomState()
	}
	if card != nil {
		p.setCard(card)
	}
	p.path.byteLimit = m.config.windowBytes
	p.sendBuffer.pool = &m.bufferPool
	p.inboundPath.source.peer = p
	p.reconnector.start(m.readClock())
	m.peers.byIncarnation[peer] = p
	m.pacer.pollsUntilSockets = 0
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
	if old := p.linksBySlot[l.slot]; old != nil {
		old.close()
		p.stallDetector.recordLoss(old)
		p.lastLossReason = fmt.Sprintf("%v: the peer has reconnected", old)
		p.notifyProtocol("lost: " + p.lastLossReason)
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
	p.path.maxFramesAhead = maxFramesInFlight(p.peerWindow())
	// The peer buffers at most this (reorderLimit).
	p.path.byteLimit = min(p.module.config.windowBytes, max(p.peerWindow(), maxDeclaredWindow))
	if p.linksBySlot[l.slot] = l; p.linkedSlots&(1<<l.slot) != 0 {
		p.recordReconnect(l, now)
	}
	p.linkedSlots |= 1 << l.slot
	l.isEncrypted = p.module.tunnelOf(l.fd) != nil
	l.liveness.connectedAt, l.liveness.lastReadAt, p.wasConnected = now, now, true
	p.acks.requestedUpTo = 0
	p.reconnector.linkUp(l.slot, now, l.remoteAddr.Addr())
	l.enqueue()
	p.notifyProtocol("up: " + l.String())
	p.markPending()
	p.reportLimits()
	p.module.scheduleAt(now)
	return nil
}

// recordReconnect counts a link that replaces a lost one. It logs the first one.
func (p *peerConn) recordReconnect(l *link, now time.Duration) {
	p.stallDetector.recordReconnect(&p.path, now)
	if p.reconnectCount++; p.reconnectCount == 1 && p.path.damagedLinks == 0 {
		p.module.env.Logger.Warn("btl tcp: lost a connection and reconnected; further reconnects are only counted", "peer", p.proc.String(), "link", l.String(), "lost", p.lastLossReason)
	}
}

// reportLimits passes the peer's limits to the protocol, once for each path. Frames leave only after that.
func (p *peerConn) reportLimits() {
	if p.outboundPath.hasReportedLimits || !p.wasConnected || p.outboundPath.endpoint == nil {
		return
	}
	p.outboundPath.hasReportedLimits = true
	if frame := int(p.peerLimits.frameLimit); frame < p.module.config.frameLimit {
		p.module.env.Upcall.Limits(p.incarnation, min(p.module.config.eagerLimit, frame), frame)
	}
}

// peerWindow returns the window of the peer in bytes.
func (p *peerConn) peerWindow() int { return int(min(p.peerLimits.windowBytes, 1<<30)) }

// loseLink closes a failed link.
func (p *peerConn) loseLink(l *link) {
	err, now := l.lossErr, p.module.readClock()
	l.close()
	p.stallDetector.recordLoss(l)
	p.reconnector.linkDown(now, l.updateLiveness(now), fmt.Sprintf("%v: %v", l, err), p.path.countUp() == 0)
	p.reorderBuffer.isBuffering = true
	if errors.Is(err, errDamaged) && p.path.damagedLinks == 1 {
		p.module.env.Logger.Warn("btl tcp: closed a connection with damaged data and reconnects; further ones are only counted", "peer", p.proc.String(), "link", l.String(), "error", err)
	}
	p.module.scheduleAt(now)
	p.notifyProtocol(fmt.Sprintf("lost: %v: %v", l, err))
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
	mustReport, neverOpened := p.outboundPath.endpoint != nil || p.inboundPath.handler != nil, p.outboundPath.endpoint != nil && !p.outboundPath.endpoint.wasUsed && p.inboundPath.handler == nil
	if errors.Is(err, framework.ErrPeerClosed) {
		mustReport, neverOpened = p.outboundPath.endpoint != nil, false
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
	for _, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
		if l != nil {
			l.close()
		}
	}
	p.reconnector.cancelAll()
	if p.module.peers.byIncarnation[p.incarnation] == p {
		delete(p.module.peers.byIncarnation, p.incarnation)
	}
	e := p.outboundPath.endpoint
	if p.inboundPath.handler, p.outboundPath.endpoint, p.reorderBuffer.framesByNumber = nil, nil, nil; e != nil {
		e.peer = nil
	}
	p.path.ackedUpTo = p.path.nextNumber
	for n := p.path.firstUnacked; n < p.path.nextNumber; n++ {
		if done := p.path.frameAt(n).completion; done != nil {
			done.LocallyComplete()
		}
	}
	p.path.frameRing, p.path.firstUnacked = nil, p.path.nextNumber
	p.sendBuffer.release()
}
