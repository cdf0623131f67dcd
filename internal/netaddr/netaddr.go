// Package netaddr selects the addresses that a host publishes and orders the addresses of a
// peer for dialing. It works on a list of interfaces, so that all transports of a process
// make the same choice.
package netaddr

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Interface is a network interface.
type Interface struct {
	Name  string
	Flags net.Flags
	// Its addresses, with the network of each.
	Nets []netip.Prefix
	// It is a bridge without members.
	Empty bool

	// It has a default route. Set by HostWithRoutes.
	HasDefault bool
	// In Mb/s, 0 if unknown. Set by HostWithRoutes.
	Speed int
}

func (i Interface) isUp() bool       { return i.Flags&net.FlagUp != 0 }
func (i Interface) isLoopback() bool { return i.Flags&net.FlagLoopback != 0 }

// Host returns the interfaces of this host, or of this process's network namespace.
func Host() ([]Interface, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("network interfaces: %w", err)
	}
	var out []Interface
	for _, i := range ifs {
		addrs, err := i.Addrs()
		if err != nil {
			continue // The interface was removed after the listing.
		}
		one := Interface{Name: i.Name, Flags: i.Flags, Empty: emptyBridge(i.Name)}
		for _, a := range addrs {
			if p, ok := prefix(a); ok {
				one.Nets = append(one.Nets, p)
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// emptyBridge reports whether the interface is a bridge without members.
func emptyBridge(name string) bool {
	members, err := os.ReadDir(filepath.Join("/sys/class/net", name, "brif"))
	return err == nil && len(members) == 0
}

func prefix(a net.Addr) (netip.Prefix, bool) {
	n, ok := a.(*net.IPNet)
	if !ok {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	ip = ip.Unmap()
	return netip.PrefixFrom(ip, min(bits, ip.BitLen())), ok
}

// MaxPublished is the largest number of published addresses of a host.
const MaxPublished = 16

// Publish returns at most MaxPublished addresses for peers, the most useful first. Networks
// between hosts precede networks that are usually internal to a host, whose addresses repeat
// on other hosts. Link-local addresses are omitted, since they need an interface of the reader.
// Loopback is published only without any alternative; all peers are then on this host.
func Publish(ifs []Interface) []netip.Addr {
	var out, loop []candidate
	for _, i := range ifs {
		if !i.isUp() {
			continue
		}
		for _, n := range i.Nets {
			a := n.Addr()
			switch {
			case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast():
			case a.IsLoopback() || i.isLoopback():
				loop = append(loop, candidate{a, 0})
			default:
				out = append(out, candidate{a, rank(i, a)})
			}
		}
	}
	if len(out) == 0 {
		out = loop
	}
	return sortByRank(out)
}

// Unpublished returns the addresses that are not in published, with the reasons.
func Unpublished(ifs []Interface, published []netip.Addr) (left []LeftOut) {
	for _, i := range ifs {
		for _, n := range i.Nets {
			a, why := n.Addr(), ""
			switch {
			case slices.Contains(published, a):
				continue
			case a.IsLoopback() || i.isLoopback():
				why = "loopback leads to this host only"
			case a.IsLinkLocalUnicast():
				why = "a link-local address means nothing on another host"
			case !a.IsValid() || a.IsUnspecified() || a.IsMulticast():
				why = "no address of one host"
			default:
				why = fmt.Sprintf("%d others come before it", MaxPublished)
			}
			left = append(left, LeftOut{fmt.Sprintf("%s (%s)", a, i.Name), why})
		}
	}
	return left
}

// candidate is an address with its rank; lower ranks come first.
type candidate struct {
	netip.Addr
	rank int
}

func sortByRank(list []candidate) []netip.Addr {
	slices.SortStableFunc(list, func(a, b candidate) int { return a.rank - b.rank })
	var out []netip.Addr
	for _, f := range list {
		if !slices.Contains(out, f.Addr) && len(out) < MaxPublished {
			out = append(out, f.Addr)
		}
	}
	return out
}

// insidePrefixes are name prefixes of interfaces of containers and virtual machines. Their
// networks end at the host or are overlays.
var insidePrefixes = []string{"docker", "virbr", "vboxnet", "vmnet", "veth", "cni", "flannel", "cali", "vxlan.calico", "tunl", "cilium", "weave",
	"kube-", "podman", "lxc", "lxd"}

// isInside reports whether the name is that of a network inside a host. Bridges of Docker are
// named br- and 12 hexadecimal digits. Other bridges (br-ex, br-lan) connect to real networks.
func isInside(name string) bool {
	if id, ok := strings.CutPrefix(name, "br-"); ok {
		return len(id) == 12 && strings.Trim(id, "0123456789abcdef") == ""
	}
	return slices.ContainsFunc(insidePrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// rank returns a lower number for an address that is more likely to be reachable.
func rank(i Interface, a netip.Addr) int {
	r := 0
	if isInside(i.Name) {
		r += 4
	}
	if i.Flags&net.FlagPointToPoint != 0 { // Usually a VPN.
		r += 2
	}
	if a.Is6() {
		r++
	}
	return r
}

// Order returns a peer's addresses in dialing order: addresses in a network of ifs first, then
// the others in their given order, loopback last. Unspecified, multicast and link-local
// addresses are dropped.
func Order(ifs []Interface, peer []netip.Addr) []netip.Addr {
	var list []candidate
	for _, a := range peer {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() {
			continue
		}
		r := 1
		switch {
		case a.IsLoopback():
			r = 2
		case slices.ContainsFunc(ifs, func(i Interface) bool { return reaches(i, a) }):
			r = 0
		}
		list = append(list, candidate{a, r})
	}
	return sortByRank(list)
}

// reaches reports whether i is in a network between hosts that contains a.
func reaches(i Interface, a netip.Addr) bool {
	if !i.isUp() || rank(i, a) >= 4 {
		return false
	}
	return slices.ContainsFunc(i.Nets, func(n netip.Prefix) bool { return n.Contains(a) })
}
