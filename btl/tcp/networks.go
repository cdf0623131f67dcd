package tcp

import (
	"net/netip"
	"slices"

	"github.com/ferrympi/ferry/internal/netaddr"
)

// network is a network of both this host and a peer.
type network struct {
	// In the order of attempts.
	remoteAddrs []netip.Addr
	localAddrs  []netip.Addr
}

// networks are the networks between this host and a peer. A second link in a network has no benefit, so a
// missing link is dialed in the network with the fewest links. Without any link all networks are tried.
// The networks of a peer never change, also while an interface is down. Sockets and clocks are not used.
type networks struct {
	// All addresses of the peer in the order of attempts.
	addrs []netip.Addr
	// One for each address if the hosts share none.
	shared       []network
	defaultLinks int
}

// maxDefaultLinks is the largest default of btl.tcp.links.
const maxDefaultLinks = 4

// findNetworks computes the networks for a peer with these addresses.
func findNetworks(ifs []netaddr.Interface, addrs []netip.Addr) (n networks) {
	n.addrs = netaddr.Order(ifs, addrs)
	at := map[int]int{}
	for _, a := range n.addrs {
		i := netaddr.Common(ifs, a)
		if i < 0 {
			continue
		}
		k, there := at[i]
		if !there {
			k, at[i] = len(n.shared), len(n.shared)
			var near []netip.Addr
			for _, net := range ifs[i].Nets {
				near = append(near, net.Addr())
			}
			n.shared = append(n.shared, network{localAddrs: near})
		}
		n.shared[k].remoteAddrs = append(n.shared[k].remoteAddrs, a)
	}
	// A peer on this host needs no network. Networks of containers repeat on many hosts, so they come
	// last.
	n.defaultLinks = max(1, min(maxDefaultLinks, len(n.shared)))
	if len(n.addrs) > 0 && netaddr.Own(ifs, n.addrs[0]) {
		n.defaultLinks = 1
	}
	if len(n.shared) == 0 {
		for _, a := range n.addrs {
			n.shared = append(n.shared, network{remoteAddrs: []netip.Addr{a}})
		}
	}
	return n
}

// anyNetwork stands for all networks.
const anyNetwork = -1

// networkOf returns the network of a link between two addresses, or anyNetwork.
func (n *networks) networkOf(localAddr, remoteAddr netip.Addr) int {
	if i := slices.IndexFunc(n.shared, func(w network) bool { return slices.Contains(w.remoteAddrs, remoteAddr) }); i >= 0 {
		return i
	}
	return slices.IndexFunc(n.shared, func(w network) bool { return slices.Contains(w.localAddrs, localAddr) })
}

// leastUsed returns the network with the fewest links, which are given by their networks. Among equals the
// preferred one wins, and then the first.
func (n *networks) leastUsed(links []int, preferred int) int {
	count := make([]int, len(n.shared))
	for _, i := range links {
		if i != anyNetwork {
			count[i]++
		}
	}
	best := anyNetwork
	for i, k := range count {
		if best == anyNetwork || k < count[best] || k == count[best] && i == preferred {
			best = i
		}
	}
	return best
}

// addrOrder returns the addresses of a network in the order of attempts, which starts with the last good
// one.
func (n *networks) addrOrder(network int, lastGood netip.Addr) []netip.Addr {
	all := n.addrs
	if network != anyNetwork {
		all = n.shared[network].remoteAddrs
	}
	all = slices.Clone(all)
	if i := slices.Index(all, lastGood); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, lastGood)
	}
	return all
}
