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
	far  []netip.Addr // the peer's addresses, in the order in which they are tried
	near []netip.Addr // this host's
}

// networks are the ways to a peer. They are found once: a network that is cut, and whose
// interface is down for a while, stays one of them.
type networks struct {
	ways []netip.Addr // all addresses of the peer, in the order in which they are tried
	list []network    // if there is no common one: one for each address, which others route
	own  int          // links that a pair has if nobody says how many
}

// mostOfOwn is how many links a pair gets by itself.
const mostOfOwn = 4

// findNetworks says how a host with these interfaces reaches a peer with these addresses.
func findNetworks(ifs []netaddr.Interface, addrs []netip.Addr) (n networks) {
	n.ways = netaddr.Order(ifs, addrs)
	at := map[int]int{}
	for _, a := range n.ways {
		i := netaddr.Common(ifs, a)
		if i < 0 {
			continue
		}
		k, there := at[i]
		if !there {
			k, at[i] = len(n.list), len(n.list)
			var near []netip.Addr
			for _, net := range ifs[i].Nets {
				near = append(near, net.Addr())
			}
			n.list = append(n.list, network{near: near})
		}
		n.list[k].far = append(n.list[k].far, a)
	}
	// To a peer on this host no network leads. What else has the same address is one of
	// containers, which are alike in many hosts, and come last.
	n.own = max(1, min(mostOfOwn, len(n.list)))
	if len(n.ways) > 0 && netaddr.Own(ifs, n.ways[0]) {
		n.own = 1
	}
	if len(n.list) == 0 {
		for _, a := range n.ways {
			n.list = append(n.list, network{far: []netip.Addr{a}})
		}
	}
	return n
}

// everywhere stands for all networks.
const everywhere = -1

// of returns the network of a link between two addresses; everywhere, if it is none of them.
func (n *networks) of(near, far netip.Addr) int {
	if i := slices.IndexFunc(n.list, func(w network) bool { return slices.Contains(w.far, far) }); i >= 0 {
		return i
	}
	return slices.IndexFunc(n.list, func(w network) bool { return slices.Contains(w.near, near) })
}

// fewest returns the network that has the fewest links, and among several the one that is
// preferred, or else the first. links are the networks of those that there are.
func (n *networks) fewest(links []int, preferred int) int {
	count := make([]int, len(n.list))
	for _, i := range links {
		if i != everywhere {
			count[i]++
		}
	}
	best := everywhere
	for i, k := range count {
		if best == everywhere || k < count[best] || k == count[best] && i == preferred {
			best = i
		}
	}
	return best
}

// order returns the addresses that are tried in a network, the one that worked before first.
func (n *networks) order(network int, worked netip.Addr) []netip.Addr {
	all := n.ways
	if network != everywhere {
		all = n.list[network].far
	}
	all = slices.Clone(all)
	if i := slices.Index(all, worked); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, worked)
	}
	return all
}
