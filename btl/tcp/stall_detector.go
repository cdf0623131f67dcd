package tcp

import (
	"fmt"
	"net/netip"
	"time"
)

// stallDetector counts reconnects that deliver no frame. Handshakes fit into small packets. A network that
// drops large packets without notice (an MTU black hole) therefore allows any number of reconnects. It is
// pure.
type stallDetector struct {
	// State of the path at the last reconnect.
	ackedUpTo    uint64
	nextExpected uint64
	// First reconnect after which no pending frame was acked. 0 if none.
	stalledSince                  time.Duration
	reconnectsUnacked             int
	reconnectsUndelivered         int
	lostLocalAddr, lostRemoteAddr netip.Addr
	// In bytes. 0 if unknown.
	lostPathMTU int
}

// recordReconnect records a link that replaces a lost one.
func (s *stallDetector) recordReconnect(p *path, now time.Duration) {
	if p.ackedUpTo != s.ackedUpTo || p.isIdle() {
		s.stalledSince, s.reconnectsUnacked = 0, 0
	}
	if p.nextExpected != s.nextExpected {
		s.reconnectsUndelivered = 0
	}
	s.ackedUpTo, s.nextExpected = p.ackedUpTo, p.nextExpected
	s.reconnectsUndelivered++
	if p.isIdle() {
		return
	}
	if s.reconnectsUnacked++; s.stalledSince == 0 {
		s.stalledSince = now
	}
}

// recordLoss records a lost link.
func (s *stallDetector) recordLoss(l *link) {
	s.lostLocalAddr, s.lostRemoteAddr, s.lostPathMTU = l.localAddr.Addr(), l.remoteAddr.Addr(), l.liveness.pathMTU
}

// isExpired reports whether no frame was acked within a timeout from the first of several reconnects. An
// idle path never expires. A stopped peer makes no second handshake.
func (s *stallDetector) isExpired(p *path, now, timeout time.Duration) bool {
	return s.reconnectsUnacked >= minStalledReconnects && p.ackedUpTo == s.ackedUpTo && now >= s.stalledSince+timeout
}

// remedy names the likely cause of a stall.
func (s *stallDetector) remedy() string {
	if s.lostPathMTU == 0 {
		return "check the path MTU: large packets may be lost on the way"
	}
	// IPv4 and ICMP.
	headers := 28
	if s.lostRemoteAddr.Is6() {
		headers = 48
	}
	return fmt.Sprintf("check the path MTU: packets of %d bytes may be lost on the way (try ping -M do -s %d %s)", s.lostPathMTU, s.lostPathMTU-headers, s.lostRemoteAddr)
}

// stallError returns the error of a path without progress, or nil.
func (p *peerConn) stallError(now time.Duration) error {
	s := &p.stallDetector
	if !s.isExpired(&p.path, now, p.module.config.retryTimeout) {
		return nil
	}
	return fmt.Errorf("from %v: no frame was acked for %v, reconnects meanwhile: %d (%v to %v); %s",
		p.module.env.Identity.Proc, (now - s.stalledSince).Round(time.Millisecond), s.reconnectsUnacked, s.lostLocalAddr, s.lostRemoteAddr, s.remedy())
}

// endedByPeerError returns the error of a path that the peer has ended. It includes the remedy of a stall,
// which only the peer may detect.
func (p *peerConn) endedByPeerError(detail string) error {
	n := max(p.stallDetector.reconnectsUnacked, p.stallDetector.reconnectsUndelivered)
	if n < minStalledReconnects {
		return fmt.Errorf("the peer has ended the path%s", detail)
	}
	return fmt.Errorf("the peer has ended the path%s; reconnects without a frame before: %d (%v to %v); %s", detail, n, p.stallDetector.lostLocalAddr, p.stallDetector.lostRemoteAddr, p.stallDetector.remedy())
}

// minStalledReconnects is the number of reconnects without a frame that make a stall.
const minStalledReconnects = 2
