package tcp

import (
	"fmt"
	"net/netip"
	"time"
)

// stall counts connections that come up and deliver no frame. A handshake fits into small
// packets. A network that drops large packets without notice (an MTU black hole) therefore
// allows any number of reconnects. It is pure.
type stall struct {
	confirmed   uint64        // path.told at the last reconnect.
	due         uint64        // path.due then.
	since       time.Duration // First reconnect after which no pending frame was confirmed; 0: none.
	unconfirmed int           // Reconnects since then.
	undelivered int           // Reconnects since the last frame from the peer.
	near, far   netip.Addr    // Ends of the last lost link.
	pathMTU     int           // Path MTU of that link in bytes, as the system assumed it; 0: not known.
}

// reconnected counts a link that came up in place of a lost one.
func (s *stall) reconnected(p *path, now time.Duration) {
	if p.told != s.confirmed || p.idle() {
		s.since, s.unconfirmed = 0, 0
	}
	if p.due != s.due {
		s.undelivered = 0
	}
	s.confirmed, s.due = p.told, p.due
	s.undelivered++
	if p.idle() {
		return
	}
	if s.unconfirmed++; s.since == 0 {
		s.since = now
	}
}

// lost records the link that reconnects replace.
func (s *stall) lost(l *link) {
	s.near, s.far, s.pathMTU = l.near.Addr(), l.far.Addr(), l.pathMTU
}

// isExpired reports whether no frame was confirmed within a time after the first of several
// reconnects. An idle path never expires. A peer that is stopped makes no second handshake.
func (s *stall) isExpired(p *path, now, patience time.Duration) bool {
	return s.unconfirmed >= fewestStalled && p.told == s.confirmed && now >= s.since+patience
}

// remedy names the likely cause of a stall.
func (s *stall) remedy() string {
	if s.pathMTU == 0 {
		return "check the path MTU: large packets may be lost on the way"
	}
	headers := 28 // IPv4 and ICMP
	if s.far.Is6() {
		headers = 48
	}
	return fmt.Sprintf("check the path MTU: packets of %d bytes may be lost on the way (try ping -M do -s %d %s)", s.pathMTU, s.pathMTU-headers, s.far)
}

// stalled returns the error of a path without progress, or nil.
func (p *pair) stalled(now time.Duration) error {
	s := &p.stall
	if !s.isExpired(&p.path, now, p.m.retryTimeout) {
		return nil
	}
	return fmt.Errorf("from %v: no frame was confirmed for %v, reconnects meanwhile: %d (%v to %v); %s",
		p.m.env.Identity.Proc, (now - s.since).Round(time.Millisecond), s.unconfirmed, s.near, s.far, s.remedy())
}

// endedByPeer returns the error of a path that the peer has ended, with the remedy of a stall
// that only the peer could notice.
func (p *pair) endedByPeer(what string) error {
	n := max(p.stall.unconfirmed, p.stall.undelivered)
	if n < fewestStalled {
		return fmt.Errorf("the peer has ended the path%s", what)
	}
	return fmt.Errorf("the peer has ended the path%s; reconnects without a frame before: %d (%v to %v); %s", what, n, p.stall.near, p.stall.far, p.stall.remedy())
}

// fewestStalled is the number of reconnects without a frame that make a stall.
const fewestStalled = 2
