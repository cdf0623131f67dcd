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
	startedAt      time.Duration
	peerAliveAt    time.Duration // Last sign of life of the peer's host.
	disconnectedAt time.Duration // Loss of the last link.
	resumedAt      time.Duration // module.timers.resumedAt when it was last counted.
	resumeCount    int

	dialers     [maxLinks]*slotDialer
	linkedSlots uint16 // Bit set of slots that had a link.
	reconnects  int
	lastLoss    string // The last lost link, with the reason.

	networks
	lastGoodAddrs       []netip.Addr // The peer's address of the last link, by slot.
	failures            []failure    // The last one of each address since the path lost all links.
	lastLivenessCheckAt time.Duration
}

// slotDialer is the dialing of the link in one slot. A round tries each address once.
type slotDialer struct {
	backoff
	network        int
	addrs          []netip.Addr // Addresses of this round; nil between rounds.
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

// failure is what became of an attempt.
type failure struct {
	addr    netip.AddrPort
	err     error
	isFinal bool // to try again soon would bring the same
}

func (f failure) String() string { return fmt.Sprintf("%v: %v", f.addr, f.err) }

// recordFailure notes what became of an attempt at a place.
func (r *reconnector) recordFailure(d *slotDialer, f failure) {
	d.failures = append(d.failures, f)
	if i := slices.IndexFunc(r.failures, func(g failure) bool { return g.addr == f.addr }); i >= 0 {
		r.failures = slices.Delete(r.failures, i, i+1)
	}
	r.failures = append(r.failures, f)
}

// hasNoListener reports whether an address by which a link was up has refused: nobody listens
// there any more, whatever becomes of the peer's other addresses.
func (r *reconnector) hasNoListener(d *slotDialer) bool {
	return slices.ContainsFunc(d.failures, func(f failure) bool {
		return errors.Is(f.err, unix.ECONNREFUSED) && slices.Contains(r.lastGoodAddrs, f.addr.Addr())
	})
}

// backoff is when the next round begins. It is pure.
type backoff struct {
	nextRoundAt  time.Duration
	pause        time.Duration
	failedRounds int // that failed, in a row
	finalRounds  int // of them, and whose every attempt had an answer that would be the same again
}

const (
	minRedialPause = 10 * time.Millisecond
	maxRedialPause = time.Second

	// beside is how long one address has before the next is tried, too.
	parallelDialDelay = 250 * time.Millisecond

	// maxFinalRounds is how many rounds of refusals end a pair that was connected: nobody listens
	// there any more. They take a third of a second.
	maxFinalRounds = 6
)

// recordFailedRound says that a round has that went on since then. One that has waited for an answer
// has paused.
func (r *backoff) recordFailedRound(since, now time.Duration, final bool) {
	r.pause = min(max(2*r.pause, minRedialPause), maxRedialPause)
	r.nextRoundAt = max(since+r.pause, now+minRedialPause)
	r.failedRounds++
	if r.finalRounds++; !final {
		r.finalRounds = 0
	}
}

// isExhausted reports whether more rounds would bring the same. A peer that was never met listens
// since before its card was there.
func (r *backoff) isExhausted(met bool) bool {
	return r.finalRounds >= maxFinalRounds || !met && r.finalRounds > 0
}

func (r *reconnector) start(now time.Duration) { r.startedAt, r.peerAliveAt = now, now }

// linkUp says that a link is there, with an address of the peer.
func (r *reconnector) linkUp(place int, now time.Duration, far netip.Addr) {
	r.peerAliveAt, r.resumeCount = now, 0
	for place >= len(r.lastGoodAddrs) {
		r.lastGoodAddrs = append(r.lastGoodAddrs, netip.Addr{})
	}
	r.lastGoodAddrs[place] = far
	r.failures = slices.DeleteFunc(r.failures, func(f failure) bool { return f.addr.Addr() == far })
	if d := r.dialers[place]; d != nil {
		d.cancelExcept(nil)
		r.dialers[place] = nil
	}
}

// lastGoodAddr returns the peer's address of the last link at a place; the zero one: there was none.
func (r *reconnector) lastGoodAddr(place int) (a netip.Addr) {
	if place < len(r.lastGoodAddrs) {
		a = r.lastGoodAddrs[place]
	}
	return a
}

// linkDown says that a link is lost, and when the peer's host was heard of by it; none: it was
// the only one.
func (r *reconnector) linkDown(now, heard time.Duration, why string, none bool) {
	r.peerAliveAt = max(r.peerAliveAt, heard)
	r.lastLoss = why
	if none {
		r.failures, r.disconnectedAt = nil, now
	}
}

// cancelAll ends all attempts.
func (r *reconnector) cancelAll() {
	for i, d := range r.dialers {
		if d != nil {
			d.cancelExcept(nil)
			r.dialers[i] = nil
		}
	}
}

// cancelExcept ends the attempts but one.
func (d *slotDialer) cancelExcept(but *dialAttempt) {
	for _, a := range d.attempts {
		if a != but {
			a.close()
		}
	}
	d.attempts = slices.DeleteFunc(d.attempts, func(a *dialAttempt) bool { return a != but })
}

// runTimers does what is due for a pair.
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
			} else { // no link is between two frames
				p.acks.owedSince = now
				p.module.scheduleAt(now + ackDelay)
			}
		}
	}
	ups := p.path.countUp()
	for place := range p.links {
		if p.links[place] == nil && p.needsLink(place, ups) {
			p.dialLink(place, now, ups)
		} else if d := p.dialers[place]; d != nil {
			d.cancelExcept(nil)
			p.dialers[place] = nil
		}
		if p.isClosed {
			return
		}
	}
	if ups > 0 {
		return
	}
	patience, end, tries := p.module.config.retryTimeout, p.peerAliveAt, p.disconnectedAt+minReconnectTime
	if !p.wasConnected {
		patience, end, tries = p.module.config.connectTimeout, p.startedAt, 0
	}
	// A process that was stopped, or computed, has tried nothing meanwhile.
	if p.module.timers.resumedAt > p.resumedAt && p.resumeCount < maxResumes {
		p.resumedAt = p.module.timers.resumedAt
		p.resumeCount++
	}
	end = max(end+patience, tries, p.resumedAt+min(patience, resumeGrace))
	if now < end {
		p.module.scheduleAt(end)
		return
	}
	p.fail("connect", p.unreachableError(now))
}

// afterPause is how long a peer is tried at least by a process that has not looked after its
// links for a while, whatever the time; so often, because some look now and then only.
const (
	resumeGrace = 5 * time.Second
	maxResumes  = 4
)

// minReconnectTime is the time for attempts to reconnect even if the host was silent for the whole
// patience already when the link was lost. A network that is fine answers sooner.
const minReconnectTime = 300 * time.Millisecond

// needsLink reports whether a link is to be at a place.
func (p *peerConn) needsLink(place, ups int) bool {
	switch {
	case p.card == nil:
		return false
	case place == 0:
		return true
	}
	return ups > 0 && place < p.targetLinks() && (p.needsMoreLinks() || p.dialers[place] != nil)
}

// needsMoreLinks reports whether more than one link is of use: much is under way.
func (p *peerConn) needsMoreLinks() bool {
	bytes := p.path.bytesUsed - frameOverhead*int(p.path.nextNumber-p.path.firstUnacked)
	return bytes > min(multiLinkThreshold, p.module.config.window/4) && p.targetLinks() > 1
}

// multiLinkThreshold is how much is on its way, in bytes, when further links are made.
const multiLinkThreshold = 256 << 10

// targetLinks is how many links the pair is to have.
func (p *peerConn) targetLinks() int {
	switch {
	case p.card == nil:
		return 1
	case p.module.config.linkCount > 0:
		return min(p.module.config.linkCount, maxLinks)
	}
	return p.defaultLinks
}

// setCard says where the peer is reached.
func (p *peerConn) setCard(card *businessCard) {
	if p.card == nil {
		p.card, p.networks = card, findNetworks(p.module.hostInterfaces(), card.addrs)
	}
}

// hostInterfaces returns this host's, as far as the user lets them be used. To ask the system
// takes some time, and many peers may be reached at once.
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

// chooseNetwork returns the network in which the link at a place is to be.
func (p *peerConn) chooseNetwork(place, ups, preferred int) int {
	if ups == 0 {
		return anyNetwork
	}
	var others []int
	for i, l := range p.links {
		if l != nil {
			others = append(others, p.networks.networkOf(l.localAddr.Addr(), l.remoteAddr.Addr()))
		} else if d := p.dialers[i]; d != nil && i != place && d.addrs != nil {
			others = append(others, d.network)
		}
	}
	return p.leastUsed(others, preferred)
}

// dialLink begins attempts at a place, or more of them.
func (p *peerConn) dialLink(place int, now time.Duration, ups int) {
	d := p.dialers[place]
	if d == nil {
		d = &slotDialer{}
		if p.wasConnected && p.module.env.Self.Nonce > p.incarnation.Nonce {
			d.nextRoundAt = now + 5*minRedialPause // the other end calls first
		}
		p.dialers[place] = d
	}
	switch to := p.chooseNetwork(place, ups, d.network); {
	case d.addrs == nil:
	case to == anyNetwork && d.network != anyNetwork: // the other links are lost meanwhile
		d.network = to
		d.addrs = append(d.addrs, slices.DeleteFunc(p.addrOrder(to, p.lastGoodAddr(place)), func(a netip.Addr) bool { return slices.Contains(d.addrs, a) })...)
	case to != d.network: // a link has come up that leaves this one another network
		d.cancelExcept(nil)
		d.addrs, d.nextRoundAt = nil, now
	}
	if now < d.nextRoundAt {
		p.module.scheduleAt(d.nextRoundAt)
		return
	}
	if d.addrs == nil {
		d.network = p.chooseNetwork(place, ups, d.network)
		d.addrs, d.roundStartedAt, d.addrsTried, d.failures = p.addrOrder(d.network, p.lastGoodAddr(place)), now, 0, nil
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
		if a, err := p.startAttempt(place, addr); err != nil {
			p.recordFailure(d, failure{addr, err, ups == 0 && !p.wasConnected && err != unix.EADDRNOTAVAIL})
		} else {
			d.attempts = append(d.attempts, a)
		}
	}
	switch {
	case len(d.attempts) == 0 || p.hasNoListener(d):
		d.cancelExcept(nil)
		p.endRound(d, place, now)
	case d.addrsTried < len(d.addrs):
		p.module.scheduleAt(d.nextAddrAt)
	}
}

// endRound ends a round whose attempts have all failed.
func (p *peerConn) endRound(d *slotDialer, place int, now time.Duration) {
	final := (!p.wasConnected || len(d.failures) > 0) && !slices.ContainsFunc(d.failures, func(f failure) bool { return !f.isFinal }) || p.hasNoListener(d)
	d.addrs = nil
	d.backoff.recordFailedRound(d.roundStartedAt, now, final)
	p.module.scheduleAt(d.nextRoundAt)
	if place == 0 && p.path.countUp() == 0 && d.isExhausted(p.wasConnected) {
		p.fail("connect", p.unreachableError(now))
	}
}

// unreachableError says why the peer can't be reached, and what was tried.
func (p *peerConn) unreachableError(now time.Duration) error {
	var tried []string
	for _, f := range p.failures {
		tried = append(tried, f.String())
	}
	for _, d := range p.dialers {
		if d == nil {
			continue
		}
		for _, a := range d.attempts {
			if !slices.ContainsFunc(p.failures, func(f failure) bool { return f.addr == a.addr }) {
				tried = append(tried, failure{addr: a.addr, err: errNoAnswer}.String())
			}
		}
	}
	from := fmt.Sprintf("from %v", p.module.env.Identity.Proc)
	what := "tried " + strings.Join(tried, "; ")
	switch {
	case len(tried) > 0:
	case p.card == nil:
		what = "only the peer could connect again, because this process does not have its card"
	default:
		what = "none of the peer's addresses could be tried"
	}
	if !p.wasConnected {
		return fmt.Errorf("%s: no connection after %v: %s", from, (now - p.startedAt).Round(time.Millisecond), what)
	}
	return fmt.Errorf("%s: the connection was lost (%s) and nothing was heard from the peer for %v: %s", from, p.lastLoss, (now - p.peerAliveAt).Round(time.Millisecond), what)
}
