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

// revival is how a pair gets its links, and gets them back: at each place one after another
// of the peer's addresses is tried, with pauses that grow. If no link is up, and the peer's
// host is not heard of for too long, the pair is lost.
type revival struct {
	began   time.Duration // the pair
	counted time.Duration // the links were looked at
	alive   time.Duration // when the peer's host was heard of last, by what is gone
	dials   [mostLinks]*dial
	gone    string        // the link that was lost last, and why
	allLost time.Duration // Time of the loss of the last link.
	woke    time.Duration // as of the module, while no link is up
	wakes   int           // that were counted

	networks
	worked []netip.Addr // the peer's address of the last link at each place, as far as there was one
	tried  []failure    // the last one of each address, since all links were lost
}

// dial is the attempts to make the link at one place.
type dial struct {
	redial
	network  int           // of this round
	addrs    []netip.Addr  // of this round
	since    time.Duration // it goes on
	begun    int           // of addrs
	beside   time.Duration
	attempts []*attempt
	failures []failure // of this round
}

var (
	errNoAnswer = errors.New("no answer")
	errSilent   = errors.New("it accepts connections but does not answer (is it stopped?)")
)

// failure is what became of an attempt.
type failure struct {
	addr  netip.AddrPort
	err   error
	final bool // to try again soon would bring the same
}

func (f failure) String() string { return fmt.Sprintf("%v: %v", f.addr, f.err) }

// failed notes what became of an attempt at a place.
func (r *revival) failed(d *dial, f failure) {
	d.failures = append(d.failures, f)
	if i := slices.IndexFunc(r.tried, func(g failure) bool { return g.addr == f.addr }); i >= 0 {
		r.tried = slices.Delete(r.tried, i, i+1)
	}
	r.tried = append(r.tried, f)
}

// deserted reports whether an address by which a link was up has refused: nobody listens
// there any more, whatever becomes of the peer's other addresses.
func (r *revival) deserted(d *dial) bool {
	return slices.ContainsFunc(d.failures, func(f failure) bool {
		return errors.Is(f.err, unix.ECONNREFUSED) && slices.Contains(r.worked, f.addr.Addr())
	})
}

// redial is when the next round begins. It is pure.
type redial struct {
	at     time.Duration
	pause  time.Duration
	rounds int // that failed, in a row
	finals int // of them, and whose every attempt had an answer that would be the same again
}

const (
	firstPause = 10 * time.Millisecond
	mostPause  = time.Second

	// beside is how long one address has before the next is tried, too.
	besideAfter = 250 * time.Millisecond

	// finalRounds is how many rounds of refusals end a pair that was connected: nobody listens
	// there any more. They take a third of a second.
	finalRounds = 6
)

// failed says that a round has that went on since then. One that has waited for an answer
// has paused.
func (r *redial) failed(since, now time.Duration, final bool) {
	r.pause = min(max(2*r.pause, firstPause), mostPause)
	r.at = max(since+r.pause, now+firstPause)
	r.rounds++
	if r.finals++; !final {
		r.finals = 0
	}
}

// over reports whether more rounds would bring the same. A peer that was never met listens
// since before its card was there.
func (r *redial) over(met bool) bool {
	return r.finals >= finalRounds || !met && r.finals > 0
}

func (r *revival) begin(now time.Duration) { r.began, r.alive = now, now }

// up says that a link is there, with an address of the peer.
func (r *revival) up(place int, now time.Duration, far netip.Addr) {
	r.alive, r.wakes = now, 0
	for place >= len(r.worked) {
		r.worked = append(r.worked, netip.Addr{})
	}
	r.worked[place] = far
	r.tried = slices.DeleteFunc(r.tried, func(f failure) bool { return f.addr.Addr() == far })
	if d := r.dials[place]; d != nil {
		d.cancel(nil)
		r.dials[place] = nil
	}
}

// workedAt returns the peer's address of the last link at a place; the zero one: there was none.
func (r *revival) workedAt(place int) (a netip.Addr) {
	if place < len(r.worked) {
		a = r.worked[place]
	}
	return a
}

// down says that a link is lost, and when the peer's host was heard of by it; none: it was
// the only one.
func (r *revival) down(now, heard time.Duration, why string, none bool) {
	r.alive = max(r.alive, heard)
	r.gone = why
	if none {
		r.tried, r.allLost = nil, now
	}
}

// stop ends all attempts.
func (r *revival) stop() {
	for i, d := range r.dials {
		if d != nil {
			d.cancel(nil)
			r.dials[i] = nil
		}
	}
}

// cancel ends the attempts but one.
func (d *dial) cancel(but *attempt) {
	for _, a := range d.attempts {
		if a != but {
			a.close()
		}
	}
	d.attempts = slices.DeleteFunc(d.attempts, func(a *attempt) bool { return a != but })
}

// tick does what is due for a pair.
func (p *pair) tick(now time.Duration) {
	p.hurry(now)
	if !p.path.idle() {
		if now >= p.counted+countPeriod {
			p.count(now)
		}
		if p.path.ups() > 1 {
			p.m.at(p.counted + countPeriod)
		}
	}
	if p.owedSince > 0 {
		if due := p.owedSince + confirmAfter; now < due {
			p.m.at(due)
		} else if p.owedSince = 0; p.path.owed > 0 && p.path.ups() > 0 {
			if p.path.say(false) {
				p.write()
			} else { // no link is between two frames
				p.owedSince = now
				p.m.at(now + confirmAfter)
			}
		}
	}
	ups := p.path.ups()
	for place := range p.links {
		if p.links[place] == nil && p.wants(place, ups) {
			p.dial(place, now, ups)
		} else if d := p.dials[place]; d != nil {
			d.cancel(nil)
			p.dials[place] = nil
		}
		if p.over {
			return
		}
	}
	if ups > 0 {
		return
	}
	patience, end, tries := p.m.retryTimeout, p.alive, p.allLost+leastTries
	if !p.met {
		patience, end, tries = p.m.connectTimeout, p.began, 0
	}
	// A process that was stopped, or computed, has tried nothing meanwhile.
	if p.m.woke > p.woke && p.wakes < mostWakes {
		p.woke = p.m.woke
		p.wakes++
	}
	end = max(end+patience, tries, p.woke+min(patience, afterPause))
	if now < end {
		p.m.at(end)
		return
	}
	p.fail("connect", p.unreachable(now))
}

// afterPause is how long a peer is tried at least by a process that has not looked after its
// links for a while, whatever the time; so often, because some look now and then only.
const (
	afterPause = 5 * time.Second
	mostWakes  = 4
)

// leastTries is the time for attempts to reconnect even if the host was silent for the whole
// patience already when the link was lost. A network that is fine answers sooner.
const leastTries = 300 * time.Millisecond

// wants reports whether a link is to be at a place.
func (p *pair) wants(place, ups int) bool {
	switch {
	case p.card == nil:
		return false
	case place == 0:
		return true
	}
	return ups > 0 && place < p.wantedLinks() && (p.stripes() || p.dials[place] != nil)
}

// stripes reports whether more than one link is of use: much is under way.
func (p *pair) stripes() bool {
	bytes := p.path.used - frameRecord*int(p.path.end-p.path.first)
	return bytes > min(stripeFrom, p.m.window/4) && p.wantedLinks() > 1
}

// stripeFrom is how much is on its way, in bytes, when further links are made.
const stripeFrom = 256 << 10

// wantedLinks is how many links the pair is to have.
func (p *pair) wantedLinks() int {
	switch {
	case p.card == nil:
		return 1
	case p.m.wanted > 0:
		return min(p.m.wanted, mostLinks)
	}
	return p.own
}

// knows says where the peer is reached.
func (p *pair) knows(card *blob) {
	if p.card == nil {
		p.card, p.networks = card, findNetworks(p.m.interfaces(), card.addrs)
	}
}

// interfaces returns this host's, as far as the user lets them be used. To ask the system
// takes some time, and many peers may be reached at once.
func (m *module) interfaces() []netaddr.Interface {
	if now := time.Now(); now.Sub(m.asked) > interfacesLast {
		m.asked = now
		if ifs, err := netaddr.Host(); err == nil {
			m.ifs, _ = m.rules.Apply(ifs)
		}
	}
	return m.ifs
}

const interfacesLast = time.Second

// choose returns the network in which the link at a place is to be.
func (p *pair) choose(place, ups, preferred int) int {
	if ups == 0 {
		return everywhere
	}
	var others []int
	for i, l := range p.links {
		if l != nil {
			others = append(others, p.networks.of(l.near.Addr(), l.far.Addr()))
		} else if d := p.dials[i]; d != nil && i != place && d.addrs != nil {
			others = append(others, d.network)
		}
	}
	return p.fewest(others, preferred)
}

// dial begins attempts at a place, or more of them.
func (p *pair) dial(place int, now time.Duration, ups int) {
	d := p.dials[place]
	if d == nil {
		d = &dial{}
		if p.met && p.m.env.Self.Nonce > p.peer.Nonce {
			d.at = now + 5*firstPause // the other end calls first
		}
		p.dials[place] = d
	}
	switch to := p.choose(place, ups, d.network); {
	case d.addrs == nil:
	case to == everywhere && d.network != everywhere: // the other links are lost meanwhile
		d.network = to
		d.addrs = append(d.addrs, slices.DeleteFunc(p.order(to, p.workedAt(place)), func(a netip.Addr) bool { return slices.Contains(d.addrs, a) })...)
	case to != d.network: // a link has come up that leaves this one another network
		d.cancel(nil)
		d.addrs, d.at = nil, now
	}
	if now < d.at {
		p.m.at(d.at)
		return
	}
	if d.addrs == nil {
		d.network = p.choose(place, ups, d.network)
		d.addrs, d.since, d.begun, d.failures = p.order(d.network, p.workedAt(place)), now, 0, nil
	}
	for _, a := range slices.Clone(d.attempts) {
		switch {
		case now < a.until:
			p.m.at(a.until)
		case a.called():
			a.fail(errSilent, false)
		default:
			a.fail(errNoAnswer, false)
		}
	}
	for d.begun < len(d.addrs) && (len(d.attempts) == 0 || now >= d.beside) {
		addr := netip.AddrPortFrom(d.addrs[d.begun], p.card.port)
		d.begun++
		d.beside = now + besideAfter
		if a, err := p.call(place, addr); err != nil {
			p.failed(d, failure{addr, err, ups == 0 && !p.met && err != unix.EADDRNOTAVAIL})
		} else {
			d.attempts = append(d.attempts, a)
		}
	}
	switch {
	case len(d.attempts) == 0 || p.deserted(d):
		d.cancel(nil)
		p.failedRound(d, place, now)
	case d.begun < len(d.addrs):
		p.m.at(d.beside)
	}
}

// failedRound ends a round whose attempts have all failed.
func (p *pair) failedRound(d *dial, place int, now time.Duration) {
	final := (!p.met || len(d.failures) > 0) && !slices.ContainsFunc(d.failures, func(f failure) bool { return !f.final }) || p.deserted(d)
	d.addrs = nil
	d.redial.failed(d.since, now, final)
	p.m.at(d.at)
	if place == 0 && p.path.ups() == 0 && d.over(p.met) {
		p.fail("connect", p.unreachable(now))
	}
}

// unreachable says why the peer can't be reached, and what was tried.
func (p *pair) unreachable(now time.Duration) error {
	var tried []string
	for _, f := range p.tried {
		tried = append(tried, f.String())
	}
	for _, d := range p.dials {
		if d == nil {
			continue
		}
		for _, a := range d.attempts {
			if !slices.ContainsFunc(p.tried, func(f failure) bool { return f.addr == a.addr }) {
				tried = append(tried, failure{addr: a.addr, err: errNoAnswer}.String())
			}
		}
	}
	from := fmt.Sprintf("from %v", p.m.env.Identity.Proc)
	what := "tried " + strings.Join(tried, "; ")
	switch {
	case len(tried) > 0:
	case p.card == nil:
		what = "only the peer could connect again, because this process does not have its card"
	default:
		what = "none of the peer's addresses could be tried"
	}
	if !p.met {
		return fmt.Errorf("%s: no connection after %v: %s", from, (now - p.began).Round(time.Millisecond), what)
	}
	return fmt.Errorf("%s: the connection was lost (%s) and nothing was heard from the peer for %v: %s", from, p.gone, (now - p.alive).Round(time.Millisecond), what)
}
