package tcp

import (
	"fmt"
	"net/netip"
	"time"
)

// stallDetector counts connections that come up and deliver no frame. A handshake fits into small
// packets. A network that drops large packets without notice (an MTU black hole) therefore
// allows any number of reconnects. It is pure.
type stallDetector struct {
	ackedUpTo             uint64        // path.told at the last reconnect.
	nextExpected          uint64        // path.due then.
	startedAt             time.Duration // First reconnect after which no pending frame was confirmed; 0: none.
	reconnectsUnacked     int           // Reconnects since then.
	reconnectsUndelivered int           // Reconnects since the last frame from the peer.
	localAddr, remoteAddr netip.Addr    // Ends of the last lost link.
	pathMTU               int           // Path MTU of that link in bytes, as the system assumed it; 0: not known.
}

// recordReconnect counts a link that came up in place of a lost one.
func (s *stallDetector) recordReconnect(p *path, now time.Duration) {
	if p.ackedUpTo != s.ackedUpTo || p.isIdle() {
		s.startedAt, s.reconnectsUnacked = 0, 0
	}
	if p.nextExpected != s.nextExpected {
		s.reconnectsUndelivered = 0
	}
	s.ackedUpTo, s.nextExpected = p.ackedUpTo, p.nextExpected
	s.reconnectsUndelivered++
	if p.isIdle() {
		return
	}
	if s.reconnectsUnacked++; s.startedAt == 0 {
		s.startedAt = now
	}
}

// recordLoss records the link that reconnects replace.
func (s *stallDetector) recordLoss(l *link) {
	s.localAddr, s.remoteAddr, s.pathMTU = l.localAddr.Addr(), l.remoteAddr.Addr(), l.liveness.pathMTU
}

// isExpired reports whether no frame was confirmed within a time after the first of several
// reconnects. An idle path never expires. A peer that is stopped makes no second handshake.
func (s *stallDetector) isExpired(p *path, now, patience time.Duration) bool {
	return s.reconnectsUnacked >= minStalledReconnects && p.ackedUpTo == s.ackedUpTo && now >= s.startedAt+patience
}

// remedy names the likely cause of a stall.
func (s *stallDetector) remedy() string {
	if s.pathMTU == 0 {
		return "check the path MTU: large packets may be lost on the way"
	}
	headers := 28 // IPv4 and ICMP
	if s.remoteAddr.Is6() {
		headers = 48
	}
	return fmt.Sprintf("check the path MTU: packets of %d bytes may be lost on the way (try ping -M do -s %d %s)", s.pathMTU, s.pathMTU-headers, s.remoteAddr)
}

// stallError returns the error of a path without progress, or nil.
func (p *peerConn) stallError(now time.Duration) error {
	s := &p.stall
	if !s.isExpired(&p.path, now, p.module.config.retryTimeout) {
		return nil
	}
	return fmt.Errorf("from %v: no frame was confirmed for %v, reconnects meanwhile: %d (%v to %v); %s",
		p.module.env.Identity.Proc, (now - s.startedAt).Round(time.Millisecond), s.reconnectsUnacked, s.localAddr, s.remoteAddr, s.remedy())
}

// endedByPeerError returns the error of a path that the peer has ended, with the remedy of a stall
// that only the peer could notice.
func (p *peerConn) endedByPeerError(what string) error {
	n := max(p.stall.reconnectsUnacked, p.stall.reconnectsUndelivered)
	if n < minStalledReconnects {
		return fmt.Errorf("the peer has ended the path%s", what)
	}
	return fmt.Errorf("the peer has ended the path%s; reconnects without a frame before: %d (%v to %v); %s", what, n, p.stall.localAddr, p.stall.remoteAddr, p.stall.remedy())
}

// minStalledReconnects is the number of reconnects without a frame that make a stall.
const minStalledReconnects = 2
