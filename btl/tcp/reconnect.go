package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reconnector dials the missing links of a peer, one address after another in each slot, with pauses that grow.
type reconnector struct {
	startedAt      time.Duration
	peerAliveAt    time.Duration
	disconnectedAt time.Duration
	// module.timers.resumedAt when it was last counted.
	resumedAt   time.Duration
	resumeCount int

	dialersBySlot [maxLinks]*slotDialer
	// Bit set of slots that had a link.
	linkedSlots    uint16
	reconnectCount int
	lastLossReason string

	networks
	// The peer's address of the last link, by slot.
	lastGoodAddrs []netip.Addr
	// One for each address, since the path lost all links.
	lastFailures        []failure
	lastLivenessCheckAt time.Duration
}

var (
	errNoAnswer = errors.New("no answer")
	errSilent   = errors.New("it accepts connections but does not answer (is it stopped?)")
)

// failure is the result of a failed attempt.
type failure struct {
	remoteAddr netip.AddrPort
	err        error
	// A retry soon has the same result.
	isFinal bool
}

func (f failure) String() string { return fmt.Sprintf("%v: %v", f.remoteAddr, f.err) }

// recordFailure records the failure of an attempt, and replaces an earlier one of the address.
func (r *reconnector) recordFailure(d *slotDialer, f failure) {
	d.roundFailures = append(d.roundFailures, f)
	if i := slices.IndexFunc(r.lastFailures, func(c failure) bool { return c.remoteAddr == f.remoteAddr }); i >= 0 {
		r.lastFailures = slices.Delete(r.lastFailures, i, i+1)
	}
	r.lastFailures = append(r.lastFailures, f)
}

// hasNoListener reports whether an address that once had a link refuses connections. Such a
// peer has ended, independently of its other addresses.
func (r *reconnector) hasNoListener(d *slotDialer) bool {
	return slices.ContainsFunc(d.roundFailures, func(f failure) bool {
		return errors.Is(f.err, unix.ECONNREFUSED) && slices.Contains(r.lastGoodAddrs, f.remoteAddr.Addr())
	})
}

func (r *reconnector) start(now time.Duration) { r.startedAt, r.peerAliveAt = now, now }

// linkUp records a new link to an address of the peer.
func (r *reconnector) linkUp(slot int, now time.Duration, addr netip.Addr) {
	r.peerAliveAt, r.resumeCount = now, 0
	for slot >= len(r.lastGoodAddrs) {
		r.lastGoodAddrs = append(r.lastGoodAddrs, netip.Addr{})
	}
	r.lastGoodAddrs[slot] = addr
	r.lastFailures = slices.DeleteFunc(r.lastFailures, func(f failure) bool { return f.remoteAddr.Addr() == addr })
	if d := r.dialersBySlot[slot]; d != nil {
		d.cancelExcept(nil)
		r.dialersBySlot[slot] = nil
	}
}

// lastGoodAddr returns the peer's address of the last link in a slot, or the zero value.
func (r *reconnector) lastGoodAddr(slot int) (a netip.Addr) {
	if slot < len(r.lastGoodAddrs) {
		a = r.lastGoodAddrs[slot]
	}
	return a
}

// linkDown records the loss of a link, and the last sign of life on it. isLast is set for the only link.
func (r *reconnector) linkDown(now, aliveAt time.Duration, reason string, isLast bool) {
	r.peerAliveAt = max(r.peerAliveAt, aliveAt)
	r.lastLossReason = reason
	if isLast {
		r.lastFailures, r.disconnectedAt = nil, now
	}
}

// cancelAll closes all attempts.
func (r *reconnector) cancelAll() {
	for i, d := range r.dialersBySlot {
		if d != nil {
			d.cancelExcept(nil)
			r.dialersBySlot[i] = nil
		}
	}
}

// needsLink reports whether a slot is to have a link.
func (p *peerConn) needsLink(slot, linksUp int) bool {
	switch {
	case p.card == nil:
		return false
	case slot == 0:
		return true
	}
	return linksUp > 0 && slot < p.targetLinks() && (p.needsMoreLinks() || p.dialersBySlot[slot] != nil)
}

// needsMoreLinks reports whether enough is in flight for more than one link.
func (p *peerConn) needsMoreLinks() bool {
	bytes := p.path.bytesUsed - frameOverhead*int(p.path.nextNumber-p.path.firstUnacked)
	return bytes > min(multiLinkThreshold, p.module.config.windowBytes/4) && p.targetLinks() > 1
}

// multiLinkThreshold is the number of bytes in flight that opens further links.
const multiLinkThreshold = 256 << 10

// targetLinks returns the number of links of a busy peer.
func (p *peerConn) targetLinks() int {
	switch {
	case p.card == nil:
		return 1
	case p.module.config.linkCount > 0:
		return min(p.module.config.linkCount, maxLinks)
	}
	return p.defaultLinks
}

// setCard sets the addresses of the peer, once.
func (p *peerConn) setCard(card *businessCard) {
	if p.card == nil {
		p.card, p.networks = card, findNetworks(p.module.hostInterfaces(), card.publishedAddrs)
	}
}

// unreachableError returns the error of a failed reconnect or connect, with the failure of each address.
func (p *peerConn) unreachableError(now time.Duration) error {
	var results []string
	for _, f := range p.lastFailures {
		results = append(results, f.String())
	}
	for _, d := range p.dialersBySlot {
		if d == nil {
			continue
		}
		for _, a := range d.runningAttempts {
			if !slices.ContainsFunc(p.lastFailures, func(f failure) bool { return f.remoteAddr == a.remoteAddr }) {
				results = append(results, failure{remoteAddr: a.remoteAddr, err: errNoAnswer}.String())
			}
		}
	}
	from := fmt.Sprintf("from %v", p.module.env.Identity.Proc)
	attempts := "tried " + strings.Join(results, "; ")
	switch {
	case len(results) > 0:
	case p.card == nil:
		attempts = "only the peer can reconnect, because its card is not here"
	default:
		attempts = "none of the peer's addresses could be tried"
	}
	if !p.wasConnected {
		return fmt.Errorf("%s: no connection after %v: %s", from, (now - p.startedAt).Round(time.Millisecond), attempts)
	}
	return fmt.Errorf("%s: the connection was lost (%s) and the peer was silent for %v: %s", from, p.lastLossReason, (now - p.peerAliveAt).Round(time.Millisecond), attempts)
}
