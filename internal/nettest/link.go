package nettest

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Link says what a link is like. The zero Link is a plain one: a pair of veth, as
// fast as the machine.
type Link struct {
	Rate    int      // bits per second, each way; 0: as fast as it goes
	MTU     int      // bytes of a packet; 0: 1500
	IPv6    bool     // addresses are IPv6's
	Weather *Weather // packets pass through a relay with this weather; nil: they don't
}

// link is link i between the hosts: interface eth<i> of each.
type link struct {
	Link
	index  int
	name   string
	shaped bool // its queues are ours: shaped, or cut
	cut    bool
	met    Met
}

// address is that of a host on the link.
func (l *link) address(host int) netip.Addr {
	if l.IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: 77, 7: byte(l.index), 15: byte(host + 1)})
	}
	return netip.AddrFrom4([4]byte{10, 77, byte(l.index), byte(host + 1)})
}

// hardware is the address of a host's interface beneath that.
func (l *link) hardware(host int) string {
	return fmt.Sprintf("02:fe:00:00:%02x:%02x", l.index, host+1)
}

// link makes link i.
func (h *Hosts) link(i int, like Link) (*link, error) {
	if like.MTU == 0 {
		like.MTU = 1500
	}
	l := &link{Link: like, index: i, name: fmt.Sprintf("eth%d", i)}
	var err error
	if l.Weather != nil {
		err = h.relay(l)
	} else {
		// The kernel looks at the carrier at once, and not a second later, if the indices
		// of both ends differ.
		err = h.sides[0].ns.run(fmt.Sprintf("ip link add %s index %d mtu %d address %s type veth peer name %s index %d mtu %d address %s netns /proc/self/fd/3",
			l.name, 100+i, l.MTU, l.hardware(0), l.name, 200+i, l.MTU, l.hardware(1)), h.sides[1].ns.File)
	}
	if err != nil {
		return nil, err
	}
	if err := h.up(l); err != nil {
		return nil, err
	}
	return l, h.queue(l)
}

// up sets both interfaces up, with their addresses: IPv6's go when an interface goes
// down. Neighbours need not ask for one another: when a wire is cut nobody notices, as
// if it were cut behind a router.
func (h *Hosts) up(l *link) error {
	bits, more := 24, ""
	if l.IPv6 {
		bits, more = 64, " nodad"
	}
	for me := range h.sides {
		commands := []string{
			fmt.Sprintf("ip link set %s up", l.name),
			fmt.Sprintf("ip addr replace %v/%d dev %s%s", l.address(me), bits, l.name, more),
		}
		if l.Weather == nil {
			commands = append(commands, fmt.Sprintf("ip neigh replace %v lladdr %s nud permanent dev %s", l.address(1-me), l.hardware(1-me), l.name))
		}
		for _, c := range commands {
			if err := h.sides[me].ns.run(c); err != nil {
				return err
			}
		}
	}
	for me := range h.sides {
		if err := h.sides[me].ns.do(func() error { return runs(l.name, true) }); err != nil {
			return err
		}
	}
	return nil
}

// runs waits until the kernel says that an interface has its carrier, or has it no
// more, which it finds out by and by. Libraries pass over one without.
func runs(name string, want bool) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		i, err := net.InterfaceByName(name)
		switch {
		case err != nil:
			return err
		case i.Flags&net.FlagRunning != 0 == want:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s: carrier %t expected: %v", name, want, i.Flags)
		}
	}
}

// Met counts the packets of a link that has Weather.
func (h *Hosts) Met(i int) *Met { return &h.links[i].met }

// Cut drops all that the link carries from now on, both ways, and nobody is told: no
// packet says so, and the interfaces stay up. Only silence tells.
func (h *Hosts) Cut(i int) {
	h.t.Helper()
	h.links[i].cut = true
	h.check(h.queue(h.links[i]))
}

// Join ends a Cut.
func (h *Hosts) Join(i int) {
	h.t.Helper()
	h.links[i].cut = false
	h.check(h.queue(h.links[i]))
}

// SetRate changes the rate of a link, in bits per second; 0 is as fast as it goes.
func (h *Hosts) SetRate(i, rate int) {
	h.t.Helper()
	h.links[i].Rate = rate
	h.check(h.queue(h.links[i]))
}

// Down takes a link's interface on a host down, as an administrator would; a veth's
// other end sees that its carrier has gone. Up ends it.
func (h *Hosts) Down(host, i int) {
	h.t.Helper()
	h.check(h.sides[host].ns.run("ip link set " + h.links[i].name + " down"))
}

// Up sets a link's interfaces up that Down took down.
func (h *Hosts) Up(i int) {
	h.t.Helper()
	h.check(h.up(h.links[i]))
}

// queue gives both ends the queue that the link's state asks for.
func (h *Hosts) queue(l *link) error {
	var how string
	switch {
	case l.cut:
		how = "replace dev " + l.name + " root blackhole"
	case l.Rate > 0:
		// In bursts of 10 ms, for which a busy machine may be late, and of a packet of
		// 64 KiB at least. Half a second may wait: what a few connections have under way
		// is never dropped.
		burst := max(64<<10, l.Rate/8/100)
		how = fmt.Sprintf("replace dev %s root tbf rate %dbit burst %d latency 500ms", l.name, l.Rate, burst)
	case l.shaped:
		how = "del dev " + l.name + " root"
	default:
		return nil
	}
	for me := range h.sides {
		if err := h.sides[me].ns.run("tc qdisc " + how); err != nil {
			return err
		}
	}
	l.shaped = l.cut || l.Rate > 0
	return nil
}
