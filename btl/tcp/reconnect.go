package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/netaddr"
)

// reconnector dials the missing links of a peer, one address after another in each slot, with pauses that grow.
type reconnector struct {
	startedAt time.Duration
	// Last sign of life of the peer's host.
	peerAliveAt time.Duration
	// Loss of the last link.
	disconnectedAt time.Duration
	// module.timers.resumedAt when it was last counted.
	resumedAt   time.Duration
	resumeCount int

	dialers [maxLinks]*slotDialer
	// Bit set of slots that had a link.
	linkedSlots uint16
	reconnects  int
	// The last lost link, with the reason.
	lastLoss string

	networks
	// The peer's address of the last link, by slot.
	lastGoodAddrs []netip.Addr
	// The last one of each address since the path lost all links.
	failures            []failure
	lastLivenessCheckAt time.Duration
}

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

var (
	errNoAnswer = errors.New("no answer")
	errSilent   = errors.New("it accepts connections but does not answer (is it stopped?)")
)

// failure is the result of a failed attempt.
type failure struct {
	addr netip.AddrPort
	err  error
	// A retry soon has the same result.
	isFinal bool
}

func (f failure) String() string { return fmt.Sprintf("%v: %v", f.addr, f.err) }

// recordFailure records the failure of an attempt, and replaces an earlier one of the address.
func (r *reconnector) recordFailure(d *slotDialer, f failure) {
	d.failures = append(d.failures, f)
	if i := slices.IndexFunc(r.failures, func(c failure) bool { return c.addr == f.addr }); i >= 0 {
		r.failures = slices.Delete(r.failures, i, i+1)
	}
	r.failures = append(r.failures, f)
}

// hasNoListener reports whether an address that once had a link refuses connections. The peer's process
// has ended then, whatever its other addresses do.
func (r *reconnector) hasNoListener(d *slotDialer) bool {
	return slices.ContainsFunc(d.failures, func(f failure) bool {
		return errors.Is(f.err, unix.ECONNREFUSED) && slices.Contains(r.lastGoodAddrs, f.addr.Addr())
	})
}

// backoff schedules the rounds of a dialer. It is pure.
type backoff struct {
	nextRoundAt time.Duration
	pause       time.Duration
	// Consecutive failed rounds.
	failedRounds int
	// Consecutive failed rounds with final failures only.
	finalRounds int
}

const (
	minRedialPause = 10 * time.Millisecond
	maxRedialPause = time.Second

	parallelDialDelay = 250 * time.Millisecond

	// maxFinalRounds is the number of refused rounds that end an established connection. They take a third
	// of a second.
	maxFinalRounds = 6
)

// recordFailedRound schedules the next round. The time of the failed round counts as pause.
func (r *backoff) recordFailedRound(since, now time.Duration, isFinal bool) {
	r.pause = min(max(2*r.pause, minRedialPause), maxRedialPause)
	r.nextRoundAt = max(since+r.pause, now+minRedialPause)
	r.failedRounds++
	if r.finalRounds++; !isFinal {
		r.finalRounds = 0
	}
}

// isExhausted reports whether further rounds are useless. A peer listens before it publishes its card.
func (r *backoff) isExhausted(wasConnected bool) bool {
	return r.finalRounds >= maxFinalRounds || !wasConnected && r.finalRounds > 0
}

func (r *reconnector) start(now time.Duration) { r.startedAt, r.peerAliveAt = now, now }

// linkUp records a new link to an address of the peer.
func (r *reconnector) linkUp(slot int, now time.Duration, addr netip.Addr) {
	r.peerAliveAt, r.resumeCount = now, 0
	for slot >= len(r.lastGoodAddrs) {
		r.lastGoodAddrs = append(r.lastGoodAddrs, netip.Addr{})
	}
	r.lastGoodAddrs[slot] = addr
	r.failures = slices.DeleteFunc(r.failures, func(f failure) bool { return f.addr.Addr() == addr })
	if d := r.dialers[slot]; d != nil {
		d.cancelExcept(nil)
		r.dialers[slot] = nil
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
	r.lastLoss = reason
	if isLast {
		r.failures, r.disconnectedAt = nil, now
	}
}

// cancelAll closes all attempts.
func (r *reconnector) cancelAll() {
	for i, d := range r.dialers {
		if d != nil {
			d.cancelExcept(nil)
			r.dialers[i] = nil
		}
	}
}

// cancelExcept closes the attempts except one.
func (d *slotDialer) cancelExcept(kept *dialAttempt) {
	for _, a := range d.attempts {
		if a != kept {
			a.close()
		}
	}
	d.attempts = slices.DeleteFunc(d.attempts, func(a *dialAttempt) bool { return a != kept })
}

// runTimers runs everything that is due for a peer.
func (p *peerConn) runTimers(now time.Duration) {
	p.checkReorderTimeout(now)
	if !p.path.isIdle() {
		if now >= p.lastLivenessCheckAt+busyLivenessPeriod {
			p.checkLiveness(now)
		}
		if p.path.countUp() > 1 {
			p.module.scheduleAt(p.lastLivenessCheckAt + busyLivenessPeriod)
		}
	}
	if p.acks.owedSince > 0 {
		if due := p.acks.owedSince + ackDelay; now < due {
			p.module.scheduleAt(due)
		} else if p.acks.owedSince = 0; p.path.ackOwedBytes > 0 && p.path.countUp() > 0 {
			if p.path.queueAck(false) {
				p.writeLinks()
				// No link is between two frames.
			} else {
				p.acks.owedSince = now
				p.module.scheduleAt(now + ackDelay)
			}
		}
	}
	linksUp := p.path.countUp()
	for slot := range p.links {
		if p.links[slot] == nil && p.needsLink(slot, linksUp) {
			p.dialLink(slot, now, linksUp)
		} else if d := p.dialers[slot]; d != nil {
			d.cancelExcept(nil)
			p.dialers[slot] = nil
		}
		if p.isClosed {
			return
		}
	}
	if linksUp > 0 {
		return
	}
	timeout, deadline, earliest := p.module.config.retryTimeout, p.peerAliveAt, p.disconnectedAt+minReconnectTime
	if !p.wasConnected {
		timeout, deadline, earliest = p.module.config.connectTimeout, p.startedAt, 0
	}
	// A process that was stopped or computing has had no time to reconnect.
	if p.module.timers.resumedAt > p.resumedAt && p.resumeCount < maxResumes {
		p.resumedAt = p.module.timers.resumedAt
		p.resumeCount++
	}
	deadline = max(deadline+timeout, earliest, p.resumedAt+min(timeout, resumeGrace))
	if now < deadline {
		p.module.scheduleAt(deadline)
		return
	}
	p.fail("connect", p.unreachableError(now))
}

// resumeGrace is the least time for attempts after the process resumes polling. maxResumes bounds its use
// by a process that polls rarely.
const (
	resumeGrace = 5 * time.Second
	maxResumes  = 4
)

// minReconnectTime is the least time for attempts to reconnect, even if the host was silent for the whole
// timeout when the link was lost.
const minReconnectTime = 300 * time.Millisecond

// needsLink reports whether a slot is to have a link.
func (p *peerConn) needsLink(slot, linksUp int) bool {
	switch {
	case p.card == nil:
		return false
	case slot == 0:
		return true
	}
	return linksUp > 0 && slot < p.targetLinks() && (p.needsMoreLinks() || p.dialers[slot] != nil)
}

// needsMoreLinks reports whether enough is in flight for more than one link.
func (p *peerConn) needsMoreLinks() bool {
	bytes := p.path.bytesUsed - frameOverhead*int(p.path.nextNumber-p.path.firstUnacked)
	return bytes > min(multiLinkThreshold, p.module.config.window/4) && p.targetLinks() > 1
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
		p.card, p.networks = card, findNetworks(p.module.hostInterfaces(), card.addrs)
	}
}

// hostInterfaces returns the interfaces that the parameters allow. The result is cached for
// interfacesMaxAge, because many peers may connect at once.
func (m *module) hostInterfaces() []netaddr.Interface {
	if now := time.Now(); now.Sub(m.host.listedAt) > interfacesMaxAge {
		m.host.listedAt = now
		if ifs, err := netaddr.Host(); err == nil {
			m.host.interfaces, _ = m.config.addressRules.Apply(ifs)
		}
	}
	return m.host.interfaces
}

const interfacesMaxAge = time.Second

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
	switch to := p.chooseNetwork(slot, linksUp, d.network); {
	case d.addrs == nil:
	case to == anyNetwork && d.network != anyNetwork:
		d.network = to
		d.addrs = append(d.addrs, slices.DeleteFunc(p.addrOrder(to, p.lastGoodAddr(slot)), func(a netip.Addr) bool { return slices.Contains(d.addrs, a) })...)
	case to != d.network:
		d.cancelExcept(nil)
		d.addrs, d.nextRoundAt = nil, now
	}
	if now < d.nextRoundAt {
		p.module.scheduleAt(d.nextRoundAt)
		return
	}
	if d.addrs == nil {
		d.network = p.chooseNetwork(slot, linksUp, d.network)
		d.addrs, d.roundStartedAt, d.addrsTried, d.failures = p.addrOrder(d.network, p.lastGoodAddr(slot)), now, 0, nil
	}
	for _, a := range slices.Clone(d.attempts) {
		switch {
		case now < a.deadline:
			p.module.scheduleAt(a.deadline)
		case a.hasSentHello():
			a.fail(errSilent, false)
		default:
			a.fail(errNoAnswer, false)
		}
	}
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
	switch {
	case len(d.attempts) == 0 || p.hasNoListener(d):
		d.cancelExcept(nil)
		p.endRound(d, slot, now)
	case d.addrsTried < len(d.addrs):
		p.module.scheduleAt(d.nextAddrAt)
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

// unreachableError returns the error of a failed reconnect or connect, with the failure of each address.
func (p *peerConn) unreachableError(now time.Duration) error {
	var results []string
	for _, f := range p.failures {
		results = append(results, f.String())
	}
	for _, d := range p.dialers {
		if d == nil {
			continue
		}
		for _, a := range d.attempts {
			if !slices.ContainsFunc(p.failures, func(f failure) bool { return f.addr == a.addr }) {
				results = append(results, failure{addr: a.addr, err: errNoAnswer}.String())
			}
		}
	}
	from := fmt.Sprintf("from %v", p.module.env.Identity.Proc)
	attempts := "tried " + strings.Join(results, "; ")
	switch {
	case len(results) > 0:
	case p.card == nil:
		attempts = "only the peer could connect again, because this process does not have its card"
	default:
		attempts = "none of the peer's addresses could be tried"
	}
	if !p.wasConnected {
		return fmt.Errorf("%s: no connection after %v: %s", from, (now - p.startedAt).Round(time.Millisecond), attempts)
	}
	return fmt.Errorf("%s: the connection was lost (%s) and nothing was heard from the peer for %v: %s", from, p.lastLoss, (now - p.peerAliveAt).Round(time.Millisecond), attempts)
}
