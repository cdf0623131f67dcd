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
	peerAddrs []netip.Addr
	// One for each address if the hosts share none.
	sharedNetworks []network
	defaultLinks   int
}

// maxDefaultLinks is the largest default of btl.tcp.links.
const maxDefaultLinks = 4

// findNetworks computes the networks for a peer with these addresses.
func findNetworks(ifs []netaddr.Interface, addrs []netip.Addr) (n networks) {
	n.peerAddrs = netaddr.Order(ifs, addrs)
	at := map[int]int{}
	for _, a := range n.peerAddrs {
		i := netaddr.Common(ifs, a)
		if i < 0 {
			continue
		}
		k, there := at[i]
		if !there {
			k, at[i] = len(n.sharedNetworks), len(n.sharedNetworks)
			var near []netip.Addr
			for _, net := range ifs[i].Nets {
				near = append(near, net.Addr())
			}
			n.sharedNetworks = append(n.sharedNetworks, network{localAddrs: near})
		}
		n.sharedNetworks[k].remoteAddrs = append(n.sharedNetworks[k].remoteAddrs, a)
	}
	// A peer on this host needs no network. Networks of containers repeat on many hosts, so they come
	// last.
	n.defaultLinks = max(1, min(maxDefaultLinks, len(n.sharedNetworks)))
	if len(n.peerAddrs) > 0 && netaddr.Own(ifs, n.peerAddrs[0]) {
		n.defaultLinks = 1
	}
	if len(n.sharedNetworks) == 0 {
		for _, a := range n.peerAddrs {
			n.sharedNetworks = append(n.sharedNetworks, network{remoteAddrs: []netip.Addr{a}})
		}
	}
	return n
}

// anyNetwork stands for all networks.
const anyNetwork = -1

// networkOf returns the network of a link between two addresses, or anyNetwork.
func (n *networks) networkOf(localAddr, remoteAddr netip.Addr) int {
	if i := slices.IndexFunc(n.sharedNetworks, func(w network) bool { return slices.Contains(w.remoteAddrs, remoteAddr) }); i >= 0 {
		return i
	}
	return slices.IndexFunc(n.sharedNetworks, func(w network) bool { return slices.Contains(w.localAddrs, localAddr) })
}

// leastUsed returns the network with the fewest links, which are given by their networks. Among equals the
// preferred one wins, and then the first.
func (n *networks) leastUsed(links []int, preferred int) int {
	count := make([]int, len(n.sharedNetworks))
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
	all := n.peerAddrs
	if network != anyNetwork {
		all = n.sharedNetworks[network].remoteAddrs
	}
	all = slices.Clone(all)
	if i := slices.Index(all, lastGood); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, lastGood)
	}
	return all
}
