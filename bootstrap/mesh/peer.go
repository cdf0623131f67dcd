package mesh

import (
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// breakGrace is the time between the loss of one of several connections to a process and the
// failure of the calls on it. The other connections may be about to break too.
const breakGrace = time.Second

// peerState is the condition of another process, as this client observes it.
type peerState uint8

const (
	// This client had no connection with the process yet.
	peerUnmet peerState = iota
	// There is at least one connection.
	peerConnected
	// The last connection broke.
	peerUnreachable
	// The last connection broke, and the process does not answer on its socket, which still exists.
	peerUnresponsive
	// The process has closed its client, or is stopped. It may connect again.
	peerAbsent
	// The process never returns.
	peerEnded
)

var peerStateNames = [...]string{"peerUnmet", "peerConnected", "peerUnreachable", "peerUnresponsive", "peerAbsent", "peerEnded"}

func (s peerState) String() string { return peerStateNames[s] }

// isSuspect reports whether a broken connection is being restored.
func (s peerState) isSuspect() bool { return s == peerUnreachable || s == peerUnresponsive }

// peer is the state of another process in this client. Guarded by endpoint.mu.
type peer struct {
	rank  uint32
	state peerState
	// All frames are sent on the first link.
	links []*link

	// Nonce of the last incarnation, 0 if none is known.
	incarnation uint64
	// That incarnation has left.
	hasLeft      bool
	hasConnected bool
	// The last connection broke, and events on it may be lost.
	mayLackEvents  bool
	suspicionCount int

	// Calls that wait for a connection.
	waitingCalls []*call
	// Calls whose connection broke before the reply.
	uncertainCalls []*call
	// Frames for the next connection, at most maxLossyFrames.
	lossyFrames [][]byte
	// A join that this process coordinates lacks the peer.
	isAwaited bool
	// Until then a connection is useful in itself.
	wantedUntil time.Time

	hostSigns
	dialer
}

// peerOf returns the state of rank. The caller holds endpoint.mu.
func (c *client) peerOf(rank uint32) *peer {
	p := c.peers[rank]
	if p == nil {
		p = &peer{rank: rank, dialer: dialer{wake: make(chan struct{}, 1)}}
		if _, hasFailed := c.failures[rank]; hasFailed || c.isolationError() != nil {
			p.state = peerEnded
		}
		c.peers[rank] = p
	}
	return p
}

// addLink adds l to the links of p, and sends on it all that waited for a connection. The caller
// holds endpoint.mu.
func (c *client) addLink(p *peer, l *link) {
	p.links = append(p.links, l)
	wasSuspect := p.state.isSuspect()
	p.state, p.hasConnected, p.hasLeft, p.consecutiveRefusals, p.lastDialErr = peerConnected, true, false, 0, nil
	c.links[l], c.connectedRanks[p.rank] = struct{}{}, struct{}{}
	if _, isTCP := l.conn.(*net.TCPConn); isTCP {
		p.usesTCP, p.lastSignAt = true, time.Now()
		c.hostWatch.recheck()
	}
	c.sendOwnEntry(l)
	if p.mayLackEvents {
		p.mayLackEvents = false
		c.resendKnownEvents(l)
	} else {
		c.sendKnownEvents(l)
	}
	for _, frame := range p.lossyFrames {
		l.send(frame)
	}
	p.lossyFrames = nil
	if wasSuspect {
		c.log.Info("bootstrap mesh: a lost connection was restored", "peer", c.procName(p.rank))
		c.failCalls(&p.uncertainCalls, c.lostConnectionError(p.rank))
	}
	waiting := p.waitingCalls
	p.waitingCalls = nil
	for _, call := range waiting {
		c.sendCallOn(l, call)
	}
}

// removeLink removes l after its reader has returned. The caller holds endpoint.mu.
func (c *client) removeLink(l *link) {
	p := c.peerOf(l.rank)
	l.isLost = true
	p.recordSign(l, time.Now())
	delete(c.links, l)
	p.links = slices.DeleteFunc(p.links, func(x *link) bool { return x == l })
	c.withdrawRequests(l)
	l.pendingRequests = nil
	if c.isClosed {
		return
	}
	for r, one := range c.relays {
		if r.link == l {
			c.cancelCall(one, false)
		}
	}
	unanswered := c.pendingCalls.Select(func(one *call) bool { return one.link == l })
	for _, one := range unanswered {
		one.link = nil
	}
	switch {
	case p.state == peerEnded:
	case l.receivedGoodbye: // Unanswered calls can be repeated, because the peer has not completed them.
		for _, call := range unanswered {
			c.resendCall(p, call)
		}
		if len(p.links) == 0 {
			p.state = peerAbsent
			c.failCalls(&p.uncertainCalls, c.lostConnectionError(p.rank))
			c.reportLeft(p, p.incarnation)
			c.recordEndOfLeft(p.rank)
		}
	case len(p.links) > 0:
		c.resendKnownEvents(p.links[0]) // Events on the lost connection may be lost.
		p.uncertainCalls = append(p.uncertainCalls, unanswered...)
		c.runAfter(breakGrace, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !p.state.isSuspect() && p.state != peerEnded {
				c.failCalls(&p.uncertainCalls, c.lostConnectionError(p.rank))
			}
		})
	default:
		c.suspectPeer(p, unanswered)
	}
	c.scheduleUpkeep()
	c.updateDialing(p)
}

// lostConnectionError is the error of a call that the peer may have completed.
func (c *client) lostConnectionError(rank uint32) error {
	return c.peerError(rank, "receive", fmt.Errorf("the connection broke during the call: %w", io.ErrUnexpectedEOF))
}

// suspectPeer starts to restore the connection of p after it broke. A refused connection is a
// death, and so is the loss of the host (host_signs.go). A process whose socket exists but that
// does not answer is alive. It has closed its client, or is stopped. The caller holds endpoint.mu.
func (c *client) suspectPeer(p *peer, calls []*call) {
	p.state, p.mayLackEvents = peerUnreachable, true
	p.suspicionCount++
	p.uncertainCalls = append(p.uncertainCalls, calls...)
	if p.lastSignAt.IsZero() {
		p.lastSignAt = time.Now()
	}
	c.hostWatch.recheck()
	this := p.suspicionCount
	c.runAfter(handshakeTimeout, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case !p.state.isSuspect() || p.suspicionCount != this:
		case p.state == peerUnresponsive:
			p.state = peerAbsent
			c.failCalls(&p.uncertainCalls, c.lostConnectionError(p.rank))
			c.scheduleUpkeep()
			c.updateDialing(p)
		case !c.isRemote(p):
			c.concludeEnded(p, "connection lost, and the process can't be reached")
		}
	})
}
