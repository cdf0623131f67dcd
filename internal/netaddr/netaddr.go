// Package netaddr decides which addresses of a host its peers are told, and in which
// order a peer's addresses are tried. It is logic over a list of interfaces, so that
// every transport of a process answers alike.
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

// Interface is a network interface, as far as it matters here.
type Interface struct {
	Name  string
	Flags net.Flags
	Nets  []netip.Prefix // Its addresses, with the network of each.
	Empty bool           // It is a bridge without members.

	HasDefault bool // It has a default route. Set by HostWithRoutes.
	Speed      int  // In Mb/s, 0 if unknown. Set by HostWithRoutes.
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
			continue // it has just gone
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

// emptyBridge reports whether the interface is a bridge without members: it leads nowhere.
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

// Most is how many addresses of a host are worth telling.
const Most = 16

// Publish returns the addresses that peers are to be told, the most useful first, at most
// Most: of networks between hosts first, then of networks that are inside hosts as a rule,
// and may have the same addresses in each. Link-local ones are left out, because they say
// nothing without an interface of the reader's. Loopback is told only if there is nothing
// else: then all peers are on this host.
func Publish(ifs []Interface) []netip.Addr {
	var out, loop []found
	for _, i := range ifs {
		if !i.isUp() {
			continue
		}
		for _, n := range i.Nets {
			a := n.Addr()
			switch {
			case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast():
			case a.IsLoopback() || i.isLoopback():
				loop = append(loop, found{a, 0})
			default:
				out = append(out, found{a, rank(i, a)})
			}
		}
	}
	if len(out) == 0 {
		out = loop
	}
	return sorted(out)
}

// Untold returns the addresses of interfaces that Publish has left out, and why.
func Untold(ifs []Interface, told []netip.Addr) (left []LeftOut) {
	for _, i := range ifs {
		for _, n := range i.Nets {
			a, why := n.Addr(), ""
			switch {
			case slices.Contains(told, a):
				continue
			case a.IsLoopback() || i.isLoopback():
				why = "loopback leads to this host only"
			case a.IsLinkLocalUnicast():
				why = "a link-local address means nothing on another host"
			case !a.IsValid() || a.IsUnspecified() || a.IsMulticast():
				why = "no address of one host"
			default:
				why = fmt.Sprintf("%d others come before it", Most)
			}
			left = append(left, LeftOut{fmt.Sprintf("%s (%s)", a, i.Name), why})
		}
	}
	return left
}

// found is an address, and how late it comes.
type found struct {
	netip.Addr
	rank int
}

func sorted(list []found) []netip.Addr {
	slices.SortStableFunc(list, func(a, b found) int { return a.rank - b.rank })
	var out []netip.Addr
	for _, f := range list {
		if !slices.Contains(out, f.Addr) && len(out) < Most {
			out = append(out, f.Addr)
		}
	}
	return out
}

// inside are how interfaces begin whose networks end at the host, or are laid over the others:
// of containers and virtual machines.
var inside = []string{"docker", "virbr", "vboxnet", "vmnet", "veth", "cni", "flannel", "cali", "vxlan.calico", "tunl", "cilium", "weave",
	"kube-", "podman", "lxc", "lxd"}

// isInside reports whether an interface has such a name. Docker's own bridges are br- and 12
// hexadecimal digits; others (br-ex, br-lan) are as good as what they bridge.
func isInside(name string) bool {
	if id, ok := strings.CutPrefix(name, "br-"); ok {
		return len(id) == 12 && strings.Trim(id, "0123456789abcdef") == ""
	}
	return slices.ContainsFunc(inside, func(p string) bool { return strings.HasPrefix(name, p) })
}

// rank is less for what is more likely to reach this host.
func rank(i Interface, a netip.Addr) int {
	r := 0
	if isInside(i.Name) {
		r += 4
	}
	if i.Flags&net.FlagPointToPoint != 0 { // a VPN, mostly
		r += 2
	}
	if a.Is6() {
		r++
	}
	return r
}

// Order returns a peer's addresses in the order in which a host with these interfaces
// best tries them: those of a network that both are in, then the others as they stand, and
// loopback last, for which the peer must be on this host. What can't be a peer's address
// is left out.
func Order(ifs []Interface, peer []netip.Addr) []netip.Addr {
	var list []found
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
		list = append(list, found{a, r})
	}
	return sorted(list)
}

// reaches reports whether a is in a network between hosts that i is in.
func reaches(i Interface, a netip.Addr) bool {
	if !i.isUp() || rank(i, a) >= 4 {
		return false
	}
	return slices.ContainsFunc(i.Nets, func(n netip.Prefix) bool { return n.Contains(a) })
}
