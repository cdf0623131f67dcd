package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/internal/netaddr"
)

func addrs(texts ...string) (all []netip.Addr) {
	for _, s := range texts {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// nic is an interface that is up, with these addresses.
func nic(name string, nets ...string) netaddr.Interface {
	i := netaddr.Interface{Name: name, Flags: net.FlagUp | net.FlagRunning}
	for _, s := range nets {
		i.Nets = append(i.Nets, netip.MustParsePrefix(s))
	}
	return i
}

// A network may have several addresses.
func TestNetworks_SeveralAddresses_OneLinkEach(t *testing.T) {
	ifs := []netaddr.Interface{
		nic("eth0", "10.1.0.1/16", "10.7.0.1/16", "fd01::1/64"), nic("eth1", "10.2.0.1/16"), nic("br-0123456789ab", "172.18.0.1/16"),
	}
	for _, c := range []struct {
		what string
		peer []netip.Addr
		list string
		own  int
	}{
		{"two networks, one of them with three addresses", addrs("10.1.0.2", "10.2.0.2", "10.7.0.2", "fd01::2"), "[10.1.0.2 10.7.0.2 fd01::2] [10.2.0.2]", 2},
		{"a routed address does not count as a network beside one", addrs("192.0.2.9", "10.2.0.2"), "[10.2.0.2]", 1},
		{"routed ones alone are", addrs("192.0.2.9", "198.51.100.9"), "[192.0.2.9] [198.51.100.9]", 1},
		{"containers have the same network in each host", addrs("10.1.0.2", "10.2.0.2", "172.18.0.1"), "[10.1.0.2] [10.2.0.2]", 2},
		{"this host", addrs("10.1.0.1", "10.2.0.1"), "[10.1.0.1] [10.2.0.1]", 1},
		{"none", nil, "", 1},
	} {
		n := findNetworks(ifs, c.peer)
		var list []string
		for _, w := range n.sharedNetworks {
			list = append(list, fmt.Sprint(w.remoteAddrs))
		}
		if got := strings.Join(list, " "); got != c.list || n.defaultLinks != c.own {
			t.Errorf("%s: %s, %d links; want %s, %d", c.what, got, n.defaultLinks, c.list, c.own)
		}
	}

	n := findNetworks(ifs, addrs("10.1.0.2", "10.2.0.2", "10.7.0.2"))
	for _, c := range []struct {
		links           []int
		preferred, want int
	}{{nil, 0, 0}, {nil, 1, 1}, {nil, anyNetwork, 0}, {[]int{0}, 0, 1}, {[]int{1}, 1, 0}, {[]int{0, 1, 0}, 0, 1}, {[]int{anyNetwork}, anyNetwork, 0}} {
		if got := n.leastUsed(c.links, c.preferred); got != c.want {
			t.Errorf("beside links by %v, %d preferred: %d, want %d", c.links, c.preferred, got, c.want)
		}
	}
	if got := (&networks{}).leastUsed(nil, 0); got != anyNetwork {
		t.Errorf("of no networks %d has the fewest", got)
	}
	for _, c := range []struct {
		near, far string
		want      int
	}{{"10.1.0.1", "10.7.0.2", 0}, {"10.2.0.1", "10.2.0.2", 1}, {"10.2.0.1", "192.0.2.1", 1}, {"192.0.2.2", "192.0.2.1", anyNetwork}} {
		if got := n.networkOf(netip.MustParseAddr(c.near), netip.MustParseAddr(c.far)); got != c.want {
			t.Errorf("%s to %s is network %d, want %d", c.near, c.far, got, c.want)
		}
	}
	if got := n.addrOrder(anyNetwork, addrs("10.7.0.2")[0]); !slices.Equal(got, addrs("10.7.0.2", "10.1.0.2", "10.2.0.2")) {
		t.Errorf("tried in the order %v", got)
	}
}

// listenAt has a process listen at these addresses of loopback.
func (p *process) listenAt(texts ...string) {
	p.j.t.Helper()
	p.closeSocket(p.inbound.listener.fd)
	p.host.publishedAddrs = addrs(texts...)
	fd, port, err := listen(p.j.t.Context(), p.host.publishedAddrs, 0, 0)
	if err == nil {
		p.host.listenPort, p.inbound.listener = port, &listener{module: p.module, fd: fd}
		err = p.watchSocket(fd, p.inbound.listener)
	}
	if err != nil {
		p.j.t.Fatal(err)
	}
	p.module.encodedCard = (&businessCard{security: p.config.security, listenPort: uint16(port), authKey: p.cardKey, publishedAddrs: p.host.publishedAddrs}).encode()
}

// twoNetworks returns two processes with two common networks. An address that b withdraws stands for a
// network that is down.
func twoNetworks(t *testing.T, change func(rank int, p *params)) (j *job, a, b *process) {
	j = newJob(t, 2, change)
	a, b = j.procs[0], j.procs[1]
	a.host.allowedInterfaces, a.host.listedAt = []netaddr.Interface{nic("x0", "127.0.1.1/24"), nic("x1", "127.0.2.1/24")}, time.Now().Add(time.Hour)
	b.listenAt("127.0.1.2", "127.0.2.2")
	return j, a, b
}

// busy keeps so much under way that several links are of use.
func (j *job) busy(a, b *process, done func() bool) {
	j.t.Helper()
	e, frame := a.peers.byIncarnation[b.incarnation].outboundPath.endpoint, make([]byte, 16<<10)
	j.until("links while much is under way", func() bool {
		for !done() {
			dst := e.Reserve(len(frame), btl.RingStart)
			if dst == nil {
				return false
			}
			e.Commit(copy(dst, frame))
		}
		return true
	})
}

// networksOf returns the network of each link that is up.
func (p *peerConn) networksOf() (all []int) {
	for _, l := range p.linksBySlot {
		if l != nil {
			all = append(all, p.networks.networkOf(l.localAddr.Addr(), l.remoteAddr.Addr()))
		}
	}
	return all
}

// The first link comes back by the only working network, and the second one by the other.
func TestNetworks_LinkMovesToOther_NoneStaysUnused(t *testing.T) {
	j, a, b := twoNetworks(t, nil)
	j.met()
	p := a.peers.byIncarnation[b.incarnation]
	j.busy(a, b, func() bool { return p.path.countUp() == 2 })
	if got := p.networksOf(); !slices.Equal(got, []int{0, 1}) {
		t.Fatalf("links by the networks %v", got)
	}
	all := b.host.publishedAddrs
	b.host.publishedAddrs = all[1:] // the first one leads nowhere
	a.cut()
	j.until("a link by the second network", func() bool { return p.linksBySlot[0] != nil && p.linksBySlot[0].remoteAddr.Addr() == all[1] })
	strangers := b.inbound.refusedCount
	j.busy(a, b, func() bool { return b.inbound.refusedCount > strangers }) // the second link is tried by the first one
	b.host.publishedAddrs = all
	j.busy(a, b, func() bool { return p.path.countUp() == 2 })
	if got := p.networksOf(); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("links by the networks %v", got)
	}
}

func TestReconnect_LastGoodAddress_IsTriedFirst(t *testing.T) {
	j, a, b := twoNetworks(t, nil)
	b.host.publishedAddrs = b.host.publishedAddrs[1:] // Other than in the card.
	j.met()
	p := a.peers.byIncarnation[b.incarnation]
	strangers := b.inbound.refusedCount
	for n := range 3 {
		a.cut()
		j.until("the link is there again", func() bool { return p.reconnectCount > n })
	}
	if b.inbound.refusedCount != strangers {
		t.Errorf("an address that had failed was tried %d times before the one that worked", b.inbound.refusedCount-strangers)
	}
}

func TestAttempt_LinkNotNeeded_IsCanceled(t *testing.T) {
	j, a, b := twoNetworks(t, nil)
	j.met()
	p := a.peers.byIncarnation[b.incarnation]
	p.dialLink(1, a.readClock(), 1)
	if d := p.dialersBySlot[1]; d == nil || len(d.runningAttempts) != 1 || d.runningAttempts[0].remoteAddr.Addr() != b.host.publishedAddrs[1] {
		t.Fatalf("%+v", p.dialersBySlot[1])
	}
	fd := p.dialersBySlot[1].runningAttempts[0].fd
	b.listenAt("127.0.0.1") // The other address is silent.
	a.cut()
	j.until("the link is lost", func() bool { return p.path.countUp() == 0 }, b)
	j.until("the attempt has ended", func() bool { return p.dialersBySlot[1] == nil && a.socketAt(fd) == nil || p.isClosed }, b)
	if p.isClosed {
		t.Error(a.lost)
	}
}

// The process was stopped, or computing.
func TestReconnect_ProcessResumes_TriesBeforeItFails(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, e := j.met()
	a.cut()
	a.timers.startedAt = a.timers.startedAt.Add(-time.Hour)
	j.send(e, []byte("awake"))
	j.until("the frame", func() bool { return len(b.got) == 2 || len(a.lost) > 0 })
	if len(a.lost) > 0 {
		t.Error(a.lost)
	}
	// And where it had just begun to connect.
	c := j.open(1, nil)
	j.procs = append(j.procs, c)
	e = a.connect(c)
	a.timers.startedAt = a.timers.startedAt.Add(-time.Hour)
	j.until("room", func() bool { return len(a.lost) > 0 || e.Reserve(1, btl.RingStart) != nil })
	if len(a.lost) > 0 {
		t.Error(a.lost)
	}
}

func TestReconnect_RarePolls_FailsEventually(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, _ := j.met()
	p := a.peers.byIncarnation[b.incarnation]
	b.closeSocket(b.inbound.listener.fd)
	b.inbound.listener = nil
	a.cut()
	p.peerAddrs = nil // No attempt is possible.
	for range 2 * maxResumes {
		a.timers.startedAt = a.timers.startedAt.Add(-time.Minute)
		a.PollAll()
		a.PollAll()
	}
	if len(a.lost) != 1 {
		t.Errorf("after %d minutes: lost %v", 2*maxResumes, a.lost)
	}
}

// Its host accepts connections, and its process does not answer.
func TestReconnect_PeerStopped_IsNotLost(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.RetryTimeout = 10 * time.Second })
	a, b, e := j.met()
	a.cut()
	p := a.peers.byIncarnation[b.incarnation]
	j.until("the link is lost", func() bool { return p.path.countUp() == 0 }, b)
	for range 25 { // seconds
		a.timers.startedAt = a.timers.startedAt.Add(-time.Second)
		for range 20 { // polls
			a.PollAll()
		}
		if len(a.lost) > 0 {
			t.Fatal(a.lost)
		}
	}
	if got := p.unreachableError(a.readClock()).Error(); !strings.Contains(got, "is it stopped?") {
		t.Error(got)
	}
	j.send(e, []byte("goes on"))
	j.until("the frame", func() bool { return len(b.got) == 2 })
}

// The process has ended, even if its other addresses are silent.
func TestReconnect_GoodAddressRefuses_IgnoresOthers(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, _ := j.met()
	p := a.peers.byIncarnation[b.incarnation]
	p.peerAddrs = append(p.peerAddrs, addrs("192.0.2.77")...) // Reserved for documentation.
	b.closeSocket(b.inbound.listener.fd)
	b.inbound.listener = nil
	start := time.Now()
	b.cut()
	j.until("the path is lost", func() bool { return len(a.lost) > 0 }, b)
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("after %v", d)
	}
}

// The last round may not have reached all of them.
func TestUnreachableError_SeveralRounds_HasEachAddress(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, _ := j.met()
	p := a.peers.byIncarnation[b.incarnation]
	d := &slotDialer{}
	fails := func(addr string, err error) {
		p.recordFailure(d, failure{remoteAddr: netip.AddrPortFrom(netip.MustParseAddr(addr), 7), err: err})
	}
	fails("192.0.2.1", unix.ECONNREFUSED)
	fails("192.0.2.2", unix.EHOSTUNREACH)
	d.roundFailures = nil
	fails("192.0.2.2", errNoAnswer)
	p.dialersBySlot[0] = d
	got := p.unreachableError(a.readClock()).Error()
	if !strings.HasSuffix(got, ": tried 192.0.2.1:7: connection refused; 192.0.2.2:7: no answer") {
		t.Error(got)
	}
	p.lastFailures, p.card = nil, nil
	if got := p.unreachableError(a.readClock()).Error(); !strings.Contains(got, "only the peer can reconnect") {
		t.Error(got)
	}
	p.close()
}

// They are those of the peer and of this host.
func TestDescribe_UnusedAddresses_HaveReasons(t *testing.T) {
	j, a, b := twoNetworks(t, nil)
	b.listenAt("127.0.1.2", "127.0.1.3", "127.0.2.2")
	a.host.unpublishedAddrs = []netaddr.LeftOut{{What: "docker0", Why: "such a network ends at its host"}}
	want := func(when string, addrs ...string) {
		t.Helper()
		d := a.Describe(b.card())
		reasons := map[string]string{}
		for _, u := range d.Unused {
			reasons[u.Name] = u.Reason
		}
		for i := 0; i < len(addrs); i += 2 {
			if !strings.Contains(reasons[addrs[i]], addrs[i+1]) || addrs[i+1] == "" && reasons[addrs[i]] != "" {
				t.Errorf("%s: %s is not used because %q, want %q; %s", when, addrs[i], reasons[addrs[i]], addrs[i+1], d.Device)
			}
		}
	}
	want("before", "127.0.2.2", "tried if 127.0.1.2 does not answer", "127.0.1.2", "", "docker0", "not published: such a network ends")
	j.met()
	p := a.peers.byIncarnation[b.incarnation]
	p.peerAddrs = append(p.peerAddrs, addrs("192.0.2.9")...)
	b.module.encodedCard = (&businessCard{security: b.config.security, listenPort: uint16(b.host.listenPort), authKey: b.cardKey, publishedAddrs: p.peerAddrs}).encode()
	want("with one link", "127.0.1.2", "", "127.0.1.3", "another address in its network", "127.0.2.2", "more data is in flight", "192.0.2.9", "no network that both hosts share")
	a.config.linkCount = 1
	want("with one link wanted", "127.0.2.2", "one link is enough")
	a.config.linkCount = 0
	j.busy(a, b, func() bool { return p.path.countUp() == 2 })
	want("with two links", "127.0.1.2", "", "127.0.2.2", "")
	p.recordFailure(&slotDialer{}, failure{remoteAddr: netip.MustParseAddrPort("192.0.2.9:7"), err: unix.ECONNREFUSED})
	want("after a failure", "192.0.2.9", "connection refused")
	// b has no card of a, because it only accepted.
	if d := b.Describe(a.card()); len(d.Notes) != 2 || len(d.Unused) > 0 && d.Unused[0].Name == a.host.publishedAddrs[0].String() {
		t.Errorf("%+v", d)
	}
}

func TestDescribe_LinkNeverUp_IsNotLost(t *testing.T) {
	j, a, b := twoNetworks(t, nil)
	j.met()
	p := a.peers.byIncarnation[b.incarnation]
	p.dialersBySlot[1] = &slotDialer{backoff: backoff{consecutiveFailures: 1}}
	if d := a.Describe(b.card()); !slices.Contains(d.Notes, "link 1: not up yet, 1 failed attempt") {
		t.Errorf("%q", d.Notes)
	}
	p.linkedSlots |= 1 << 1
	p.dialersBySlot[1].consecutiveFailures++
	if d := a.Describe(b.card()); !slices.Contains(d.Notes, "link 1: lost, 2 failed attempts") {
		t.Errorf("%q", d.Notes)
	}
}

func TestPublishable_OnlyLoopback_IsLeftOutOfASpreadJob(t *testing.T) {
	lo := []netaddr.Interface{{Name: "lo", Flags: net.FlagUp | net.FlagLoopback, Nets: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}}
	for isSpread, want := range map[bool]int{false: 1, true: 0} {
		addrs, left := new(params).publishable(lo, nil, isSpread)
		if len(addrs) != want || len(left) != 1-want {
			t.Errorf("spread %v: %v, left out %v", isSpread, addrs, left)
		}
	}
}

// A crossed handshake does not make the caller try another address.
func TestConnect_BothDialAtOnce_UsesTheBestNetwork(t *testing.T) {
	j, a, b := twoNetworks(t, nil)
	e := a.connect(b)
	j.until("the hello", func() bool {
		d := a.peers.byIncarnation[b.incarnation].dialersBySlot[0]
		return d != nil && len(d.runningAttempts) == 1 && d.runningAttempts[0].hasSentHello()
	}, b)
	j.until("the answer", func() bool {
		return len(b.inbound.handshakingConns) == 1 && b.inbound.handshakingConns[0].handshake != nil
	}, a)
	b.connect(a)
	b.peers.byIncarnation[a.incarnation].peerAddrs = nil // it does not come through
	j.send(e, []byte("first"))
	j.until("the frame", func() bool { return len(b.got) == 1 })
	if p := a.peers.byIncarnation[b.incarnation]; p.linksBySlot[0].remoteAddr.Addr() != p.peerAddrs[0] {
		t.Errorf("%v, and not to %v: %v", p.linksBySlot[0], p.peerAddrs[0], p.lastFailures)
	}
}
