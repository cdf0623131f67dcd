package tcp

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// slotDialer is the dialing of the link in one slot. A round tries each address once.
type slotDialer struct {
	backoff
	network int
	// Addresses of this round; nil between rounds.
	addrs          []netip.Addr
	roundStartedAt time.Duration
	addrsTried     int
	nextAddrAt     time.Duration
	attempts       []*dialAttempt
	failures       []failure
}

// parallelDialDelay is the time after which the next address is tried beside an unanswered one.
const parallelDialDelay = 250 * time.Millisecond

// cancelExcept closes the attempts except one.
func (d *slotDialer) cancelExcept(kept *dialAttempt) {
	for _, a := range d.attempts {
		if a != kept {
			a.close()
		}
	}
	d.attempts = slices.DeleteFunc(d.attempts, func(a *dialAttempt) bool { return a != kept })
}

// chooseNetwork returns the network for the link in a slot.
func (p *peerConn) chooseNetwork(slot, linksUp, preferred int) int {
	if linksUp == 0 {
		return anyNetwork
	}
	var others []int
	for i, l := range p.links {
		if l != nil {
			others = append(others, p.networks.networkOf(l.localAddr.Addr(), l.remoteAddr.Addr()))
		} else if d := p.dialers[i]; d != nil && i != slot && d.addrs != nil {
			others = append(others, d.network)
		}
	}
	return p.leastUsed(others, preferred)
}

// dialLink starts or continues attempts in a slot.
func (p *peerConn) dialLink(slot int, now time.Duration, linksUp int) {
	d := p.dialers[slot]
	if d == nil {
		d = &slotDialer{}
		if p.wasConnected && p.module.env.Self.Nonce > p.incarnation.Nonce {
			// The other end dials first.
			d.nextRoundAt = now + 5*minRedialPause
		}
		p.dialers[slot] = d
	}
	p.changeNetwork(d, slot, now, linksUp)
	if now < d.nextRoundAt {
		p.module.scheduleAt(d.nextRoundAt)
		return
	}
	if d.addrs == nil {
		d.network = p.chooseNetwork(slot, linksUp, d.network)
		d.addrs, d.roundStartedAt, d.addrsTried, d.failures = p.addrOrder(d.network, p.lastGoodAddr(slot)), now, 0, nil
	}
	d.expireAttempts(now)
	p.startAttempts(d, slot, now, linksUp)
	switch {
	case len(d.attempts) == 0 || p.hasNoListener(d):
		d.cancelExcept(nil)
		p.endRound(d, slot, now)
	case d.addrsTried < len(d.addrs):
		p.module.scheduleAt(d.nextAddrAt)
	}
}

// changeNetwork adapts a running round to links that have come or gone. If the last link is lost, the
// round continues in all networks. If another link uses the network now, the next round starts at once.
func (p *peerConn) changeNetwork(d *slotDialer, slot int, now time.Duration, linksUp int) {
	if d.addrs == nil {
		return
	}
	switch network := p.chooseNetwork(slot, linksUp, d.network); {
	case network == d.network:
	case network == anyNetwork:
		d.network = network
		more := p.addrOrder(network, p.lastGoodAddr(slot))
		d.addrs = append(d.addrs, slices.DeleteFunc(more, func(a netip.Addr) bool { return slices.Contains(d.addrs, a) })...)
	default:
		d.cancelExcept(nil)
		d.addrs, d.nextRoundAt = nil, now
	}
}

// expireAttempts fails the attempts that are past their deadline.
func (d *slotDialer) expireAttempts(now time.Duration) {
	for _, a := range slices.Clone(d.attempts) {
		switch {
		case now < a.deadline:
			a.peer.module.scheduleAt(a.deadline)
		case a.hasSentHello():
			a.fail(errSilent, false)
		default:
			a.fail(errNoAnswer, false)
		}
	}
}

// startAttempts tries the next address, and more while no attempt is running.
func (p *peerConn) startAttempts(d *slotDialer, slot int, now time.Duration, linksUp int) {
	for d.addrsTried < len(d.addrs) && (len(d.attempts) == 0 || now >= d.nextAddrAt) {
		addr := netip.AddrPortFrom(d.addrs[d.addrsTried], p.card.port)
		d.addrsTried++
		d.nextAddrAt = now + parallelDialDelay
		if a, err := p.startAttempt(slot, addr); err != nil {
			p.recordFailure(d, failure{addr, err, linksUp == 0 && !p.wasConnected && err != unix.EADDRNOTAVAIL})
		} else {
			d.attempts = append(d.attempts, a)
		}
	}
}

// endRound ends a round without success.
func (p *peerConn) endRound(d *slotDialer, slot int, now time.Duration) {
	isFinal := (!p.wasConnected || len(d.failures) > 0) && !slices.ContainsFunc(d.failures, func(f failure) bool { return !f.isFinal }) || p.hasNoListener(d)
	d.addrs = nil
	d.backoff.recordFailedRound(d.roundStartedAt, now, isFinal)
	p.module.scheduleAt(d.nextRoundAt)
	if slot == 0 && p.path.countUp() == 0 && d.isExhausted(p.wasConnected) {
		p.fail("connect", p.unreachableError(now))
	}
}
