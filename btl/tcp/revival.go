package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/internal/netaddr"
)

// revival is how a pair gets its links, and gets them back: at each place one after another
// of the peer's addresses is tried, with pauses that grow. If no link is up, and the peer's
// host is not heard of for too long, the pair is lost.
type revival struct {
	began time.Duration // the pair
	alive time.Duration // when the peer's host was heard of last, by a link that is gone
	dials [mostLinks]*dial
	gone  string // the link that was lost last, and why

	networks int          // that both are in; 0: not counted yet
	ways     []netip.Addr // the peer's addresses, in order
}

// dial is the attempts to make the link at one place.
type dial struct {
	redial
	addrs    []netip.Addr // of this round
	begun    int          // of them
	beside   time.Duration
	attempts []*attempt
	failures []failure // of this round
	worked   netip.Addr
}

var errNoAnswer = errors.New("no answer")

// failure is what became of an attempt.
type failure struct {
	addr  netip.AddrPort
	err   error
	final bool // to try again soon would bring the same
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

// failed says that a round has.
func (r *redial) failed(now time.Duration, final bool) {
	r.pause = min(max(2*r.pause, firstPause), mostPause)
	r.at = now + r.pause
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

// up says that a link is there.
func (r *revival) up(place int, now time.Duration) {
	r.alive = now
	if d := r.dials[place]; d != nil {
		d.cancel(nil)
		r.dials[place] = nil
	}
}

// down says that a link is lost, and when the peer's host was heard of by it.
func (r *revival) down(place int, now, heard time.Duration, why string) {
	r.alive = max(r.alive, heard)
	r.gone = why
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
	if p.owedSince > 0 {
		if due := p.owedSince + confirmAfter; now < due {
			p.m.at(due)
		} else if p.owedSince = 0; p.path.owed > 0 && p.path.say(false) {
			p.write()
		}
	}
	ups := p.path.ups()
	for place := range p.links {
		if p.links[place] == nil && p.wants(place, ups) {
			p.dial(place, now, ups)
		}
		if p.over {
			return
		}
	}
	if ups > 0 {
		return
	}
	end := p.alive + p.m.retryTimeout
	if !p.met {
		end = p.began + p.m.connectTimeout
	}
	if now < end {
		p.m.at(end)
		return
	}
	p.fail("connect", p.unreachable(now))
}

// wants reports whether a link is to be at a place.
func (p *pair) wants(place, ups int) bool {
	switch {
	case p.card == nil:
		return false
	case place == 0:
		return ups == 0 || p.met
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

// mostOfOwn is how many links a pair gets by itself.
const mostOfOwn = 4

// wantedLinks is how many links the pair is to have.
func (p *pair) wantedLinks() int {
	switch {
	case p.m.wanted > 0:
		return min(p.m.wanted, mostLinks)
	case p.card == nil:
		return 1
	case p.networks == 0:
		p.networks = max(1, min(mostOfOwn, p.m.networks(p.card.addrs)))
	}
	return p.networks
}

// networks counts the networks between hosts that both are in. A peer on this host is
// reached by none of them.
func (m *module) networks(addrs []netip.Addr) int {
	ifs := m.interfaces()
	in := map[int]bool{}
	for _, a := range addrs {
		if netaddr.Own(ifs, a) {
			return 1
		}
		if i := netaddr.Common(ifs, a); i >= 0 {
			in[i] = true
		}
	}
	return len(in)
}

// knows says where the peer is reached. The order of its addresses stays, so that networks
// that are cut keep their place.
func (p *pair) knows(card *blob) {
	if p.card == nil {
		p.card, p.ways = card, netaddr.Order(p.m.interfaces(), card.addrs)
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

// order returns the addresses that a link tries, in turn. Each place has an address of its
// own where it begins, and where it stays if another link is up: two links by one network
// are no gain.
func (p *pair) order(place, ups int, worked netip.Addr) []netip.Addr {
	all := p.ways
	if len(all) == 0 {
		return nil
	}
	home := place % len(all)
	if ups > 0 {
		return all[home : home+1]
	}
	all = slices.Concat(all[home:], all[:home]) // a copy
	if i := slices.Index(all, worked); i > 0 && place == 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, worked)
	}
	return all
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
	if now < d.at {
		p.m.at(d.at)
		return
	}
	if d.addrs == nil {
		d.addrs, d.begun, d.failures = p.order(place, ups, d.worked), 0, nil
	}
	for _, a := range slices.Clone(d.attempts) {
		if now >= a.until {
			a.fail(errNoAnswer, false)
		} else {
			p.m.at(a.until)
		}
	}
	for d.begun < len(d.addrs) && (len(d.attempts) == 0 || now >= d.beside) {
		addr := netip.AddrPortFrom(d.addrs[d.begun], p.card.port)
		d.begun++
		d.beside = now + besideAfter
		if a, err := p.call(place, addr); err != nil {
			d.failures = append(d.failures, failure{addr, err, ups == 0 && !p.met})
		} else {
			d.attempts = append(d.attempts, a)
		}
	}
	switch {
	case len(d.attempts) > 0 && d.begun < len(d.addrs):
		p.m.at(d.beside)
	case len(d.attempts) == 0:
		p.failedRound(d, place, now)
	}
}

// failedRound ends a round of which no attempt is left.
func (p *pair) failedRound(d *dial, place int, now time.Duration) {
	final := (!p.met || len(d.failures) > 0) && !slices.ContainsFunc(d.failures, func(f failure) bool { return !f.final })
	d.addrs = nil
	d.failed(now, final)
	p.m.at(d.at)
	if place == 0 && p.path.ups() == 0 && d.over(p.met) {
		p.fail("connect", p.unreachable(now))
	}
}

// unreachable says why the peer can't be reached, and what was tried.
func (p *pair) unreachable(now time.Duration) error {
	var tried []string
	for place, d := range p.dials {
		if d == nil {
			continue
		}
		for _, f := range d.failures {
			tried = append(tried, fmt.Sprintf("%v: %v", f.addr, f.err))
		}
		for _, a := range d.attempts {
			tried = append(tried, fmt.Sprintf("%v: no answer", a.addr))
		}
		if place == 0 && len(d.failures)+len(d.attempts) == 0 {
			tried = append(tried, "no address could be tried")
		}
	}
	from := fmt.Sprintf("from %v", p.m.env.Identity.Proc)
	if len(tried) == 0 {
		tried = append(tried, "nothing: its card is not known here, and only the peer can connect")
	}
	if !p.met {
		return fmt.Errorf("%s: no connection within %v: tried %s", from, (now - p.began).Round(time.Millisecond), strings.Join(tried, "; "))
	}
	return fmt.Errorf("%s: the connection is lost (%s), and the peer was not heard of for %v: tried %s", from, p.gone, (now - p.alive).Round(time.Millisecond), strings.Join(tried, "; "))
}
