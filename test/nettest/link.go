package nettest

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Link has the properties of a link. The zero Link is a veth pair at full speed.
type Link struct {
	// In each direction, 0 for no limit.
	BitsPerSecond int
	// Packet size in bytes, 0 for 1500.
	MTU int
	// Whether the addresses are those of IPv6.
	UsesIPv6 bool
	// Faults of a relay through which packets pass, nil for no relay.
	Faults *PacketFaults
}

// link is link i between the hosts. It is interface eth<i> of each.
type link struct {
	Link
	index int
	name  string
	// Whether a queue of this package is installed.
	hasQueue     bool
	isCut        bool
	packetCounts PacketCounts
}

// address returns the address of a host on the link.
func (l *link) address(host int) netip.Addr {
	if l.UsesIPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: 77, 7: byte(l.index), 15: byte(host + 1)})
	}
	return netip.AddrFrom4([4]byte{10, 77, byte(l.index), byte(host + 1)})
}

// hardwareAddress returns the hardware address of a host's interface.
func (l *link) hardwareAddress(host int) string {
	return fmt.Sprintf("02:fe:00:00:%02x:%02x", l.index, host+1)
}

// createLink creates link i.
func (h *Hosts) createLink(i int, like Link) (*link, error) {
	if like.MTU == 0 {
		like.MTU = 1500
	}
	l := &link{Link: like, index: i, name: fmt.Sprintf("eth%d", i)}
	var err error
	if l.Faults != nil {
		err = h.createRelay(l)
	} else {
		// With different indices of the ends, the kernel updates the carrier at once instead of a
		// second later.
		err = h.hosts[0].namespace.run(fmt.Sprintf("ip link add %s index %d mtu %d address %s type veth peer name %s index %d mtu %d address %s netns /proc/self/fd/3",
			l.name, 100+i, l.MTU, l.hardwareAddress(0), l.name, 200+i, l.MTU, l.hardwareAddress(1)), h.hosts[1].namespace.File)
	}
	if err != nil {
		return nil, err
	}
	if err := h.setUp(l); err != nil {
		return nil, err
	}
	return l, h.setQueue(l)
}

// setUp sets both interfaces up with their addresses, since IPv6 addresses are lost when an interface
// goes down. Permanent neighbor entries hide a cut from the kernel, as if it were behind a router.
func (h *Hosts) setUp(l *link) error {
	bits, more := 24, ""
	if l.UsesIPv6 {
		bits, more = 64, " nodad"
	}
	for me := range h.hosts {
		commands := []string{
			fmt.Sprintf("ip link set %s up", l.name),
			fmt.Sprintf("ip addr replace %v/%d dev %s%s", l.address(me), bits, l.name, more),
		}
		if l.Faults == nil {
			commands = append(commands, fmt.Sprintf("ip neigh replace %v lladdr %s nud permanent dev %s", l.address(1-me), l.hardwareAddress(1-me), l.name))
		}
		for _, c := range commands {
			if err := h.hosts[me].namespace.run(c); err != nil {
				return err
			}
		}
	}
	for me := range h.hosts {
		if err := h.hosts[me].namespace.do(func() error { return awaitCarrier(l.name, true) }); err != nil {
			return err
		}
	}
	return nil
}

// awaitCarrier waits until an interface has, or has not, its carrier, which the kernel detects with a
// delay. Libraries ignore an interface without a carrier.
func awaitCarrier(name string, want bool) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		i, err := net.InterfaceByName(name)
		switch {
		case err != nil:
			return err
		case i.Flags&net.FlagRunning != 0 == want:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s: timeout: want carrier %t, got flags %v", name, want, i.Flags)
		}
	}
}

// Counts returns the packet counts of a link with Faults.
func (h *Hosts) Counts(i int) *PacketCounts { return &h.links[i].packetCounts }

// Cut drops all packets of the link in both directions from now on. The interfaces stay up, and no
// error reaches either host.
func (h *Hosts) Cut(i int) {
	h.t.Helper()
	h.links[i].isCut = true
	h.check(h.setQueue(h.links[i]))
}

// Join ends a Cut.
func (h *Hosts) Join(i int) {
	h.t.Helper()
	h.links[i].isCut = false
	h.check(h.setQueue(h.links[i]))
}

// SetRate changes the rate of a link in bits per second. 0 removes the limit.
func (h *Hosts) SetRate(i, rate int) {
	h.t.Helper()
	h.links[i].BitsPerSecond = rate
	h.check(h.setQueue(h.links[i]))
}

// Down sets a link's interface on a host down, as an administrator would. The other end of a veth
// pair loses its carrier. Up reverts it.
func (h *Hosts) Down(host, i int) {
	h.t.Helper()
	h.check(h.hosts[host].namespace.run("ip link set " + h.links[i].name + " down"))
}

// Up sets the interfaces of a link up again after Down.
func (h *Hosts) Up(i int) {
	h.t.Helper()
	h.check(h.setUp(h.links[i]))
}

// setQueue installs the queue for the state of a link at both ends.
func (h *Hosts) setQueue(l *link) error {
	var how string
	switch {
	case l.isCut:
		how = "replace dev " + l.name + " root blackhole"
	case l.BitsPerSecond > 0:
		// Bursts of 10 ms, for which a busy machine may be late, and of at least a packet of 64
		// KiB. The queue holds half a second, so that it never drops the packets of a few
		// connections.
		burst := max(64<<10, l.BitsPerSecond/8/100)
		how = fmt.Sprintf("replace dev %s root tbf rate %dbit burst %d latency 500ms", l.name, l.BitsPerSecond, burst)
	case l.hasQueue:
		how = "del dev " + l.name + " root"
	default:
		return nil
	}
	for me := range h.hosts {
		if err := h.hosts[me].namespace.run("tc qdisc " + how); err != nil {
			return err
		}
	}
	l.hasQueue = l.isCut || l.BitsPerSecond > 0
	return nil
}
