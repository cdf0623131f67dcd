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
	networkIndex int
	// nil between rounds.
	roundAddrs      []netip.Addr
	roundStartedAt  time.Duration
	addrsTried      int
	nextAddrAt      time.Duration
	runningAttempts []*dialAttempt
	roundFailures   []failure
}

// parallelDialDelay is the time after which the next address is tried beside an unanswered one.
const parallelDialDelay = 250 * time.Millisecond

// cancelExcept closes the attempts except one.
func (d *slotDialer) cancelExcept(kept *dialAttempt) {
	for _, a := range d.runningAttempts {
		if a != kept {
			a.close()
		}
	}
	d.runningAttempts = slices.DeleteFunc(d.runningAttempts, func(a *dialAttempt) bool { return a != kept })
}

// chooseNetwork returns the network for the link in a slot.
func (p *peerConn) chooseNetwork(slot, linksUp, preferred int) int {
	if linksUp == 0 {
		return anyNetwork
	}
	var others []int
	for i, l := range p.linksBySlot {
		if l != nil {
			others = append(others, p.networks.networkOf(l.localAddr.Addr(), l.remoteAddr.Addr()))
		} else if d := p.dialersBySlot[i]; d != nil && i != slot && d.roundAddrs != nil {
			others = append(others, d.networkIndex)
		}
	}
	return p.leastUsed(others, preferred)
}

// dialLink starts or continues attempts in a slot.
func (p *peerConn) dialLink(slot int, now time.Duration, linksUp int) {
	d := p.dialersBySlot[slot]
	if d == nil {
		d = &slotDialer{}
		if p.wasConnected && p.module.env.Self.Nonce > p.incarnation.Nonce {
			// The other end dials first.
			d.nextRoundAt = now + 5*minRedialPause
		}
		p.dialersBySlot[slot] = d
	}
	p.changeNetwork(d, slot, now, linksUp)
	if now < d.nextRoundAt {
		p.module.scheduleAt(d.nextRoundAt)
		return
	}
	if d.roundAddrs == nil {
		d.networkIndex = p.chooseNetwork(slot, linksUp, d.networkIndex)
		d.roundAddrs, d.roundStartedAt, d.addrsTried, d.roundFailures = p.addrOrder(d.networkIndex, p.lastGoodAddr(slot)), now, 0, nil
	}
	d.expireAttempts(now)
	p.startAttempts(d, slot, now, linksUp)
	switch {
	case len(d.runningAttempts) == 0 || p.hasNoListener(d):
		d.cancelExcept(nil)
		p.endRound(d, slot, now)
	case d.addrsTried < len(d.roundAddrs):
		p.module.scheduleAt(d.nextAddrAt)
	}
}

// changeNetwork adapts a running round to links that have come or gone. If the last link is lost, the
// round continues in all networks. If another link uses the network now, the next round starts at once.
func (p *peerConn) changeNetwork(d *slotDialer, slot int, now time.Duration, linksUp int) {
	if d.roundAddrs == nil {
		return
	}
	switch network := p.chooseNetwork(slot, linksUp, d.networkIndex); {
	case network == d.networkIndex:
	case network == anyNetwork:
		d.networkIndex = network
		more := p.addrOrder(network, p.lastGoodAddr(slot))
		d.roundAddrs = append(d.roundAddrs, slices.DeleteFunc(more, func(a netip.Addr) bool { return slices.Contains(d.roundAddrs, a) })...)
	default:
		d.cancelExcept(nil)
		d.roundAddrs, d.nextRoundAt = nil, now
	}
}

// expireAttempts fails the attempts that are past their deadline.
func (d *slotDialer) expireAttempts(now time.Duration) {
	for _, a := range slices.Clone(d.runningAttempts) {
		switch {
		case now < a.expiresAt:
			a.peer.module.scheduleAt(a.expiresAt)
		case a.hasSentHello():
			a.fail(errSilent, false)
		default:
			a.fail(errNoAnswer, false)
		}
	}
}

// startAttempts tries the next address, and more while no attempt is running.
func (p *peerConn) startAttempts(d *slotDialer, slot int, now time.Duration, linksUp int) {
	for d.addrsTried < len(d.roundAddrs) && (len(d.runningAttempts) == 0 || now >= d.nextAddrAt) {
		addr := netip.AddrPortFrom(d.roundAddrs[d.addrsTried], p.card.listenPort)
		d.addrsTried++
		d.nextAddrAt = now + parallelDialDelay
		if a, err := p.startAttempt(slot, addr); err != nil {
			p.recordFailure(d, failure{addr, err, linksUp == 0 && !p.wasConnected && err != unix.EADDRNOTAVAIL})
		} else {
			d.runningAttempts = append(d.runningAttempts, a)
		}
	}
}

// endRound ends a round without success.
func (p *peerConn) endRound(d *slotDialer, slot int, now time.Duration) {
	isFinal := (!p.wasConnected || len(d.roundFailures) > 0) && !slices.ContainsFunc(d.roundFailures, func(f failure) bool { return !f.isFinal }) || p.hasNoListener(d)
	d.roundAddrs = nil
	d.backoff.recordFailedRound(d.roundStartedAt, now, isFinal)
	p.module.scheduleAt(d.nextRoundAt)
	if slot == 0 && p.path.countUp() == 0 && d.isExhausted(p.wasConnected) {
		p.fail("connect", p.unreachableError(now))
	}
}
