package tcp

import (
	"net/netip"
	"slices"

	"github.com/ferrympi/ferry/internal/netaddr"
)

// Two links by one network are no gain. So a link that is missing is dialled in the network
// that has the fewest of the pair's links; without any link all networks are tried, and the
// first that answers is it. Nothing here knows a socket or a clock.

// network is one that this host and a peer are both in.
type network struct {
	remoteAddrs []netip.Addr // the peer's addresses, in the order in which they are tried
	localAddrs  []netip.Addr // this host's
}

// networks are the ways to a peer. They are found once: a network that is cut, and whose
// interface is down for a while, stays one of them.
type networks struct {
	addrs        []netip.Addr // all addresses of the peer, in the order in which they are tried
	shared       []network    // if there is no common one: one for each address, which others route
	defaultLinks int          // links that a pair has if nobody says how many
}

// maxDefaultLinks is how many links a pair gets by itself.
const maxDefaultLinks = 4

// findNetworks says how a host with these interfaces reaches a peer with these addresses.
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
	// To a peer on this host no network leads. What else has the same address is one of
	// containers, which are alike in many hosts, and come last.
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

// networkOf returns the network of a link between two addresses; everywhere, if it is none of them.
func (n *networks) networkOf(near, far netip.Addr) int {
	if i := slices.IndexFunc(n.shared, func(w network) bool { return slices.Contains(w.remoteAddrs, far) }); i >= 0 {
		return i
	}
	return slices.IndexFunc(n.shared, func(w network) bool { return slices.Contains(w.localAddrs, near) })
}

// leastUsed returns the network that has the fewest links, and among several the one that is
// preferred, or else the first. links are the networks of those that there are.
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

// addrOrder returns the addresses that are tried in a network, the one that worked before first.
func (n *networks) addrOrder(network int, worked netip.Addr) []netip.Addr {
	all := n.addrs
	if network != anyNetwork {
		all = n.shared[network].remoteAddrs
	}
	all = slices.Clone(all)
	if i := slices.Index(all, worked); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, worked)
	}
	return all
}
