package tcp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// Describe implements btl.Describer. Without a link, Device names the first address to dial.
// For a closed peer the last description stays.
func (m *module) Describe(peer framework.Peer) (d btl.Description) {
	p := m.peers.byIncarnation[peer.Incarnation]
	lastDescription, closed := m.peers.lastDescriptions[peer.Incarnation]
	card, err := m.decodeReachable(peer)
	switch {
	case p != nil && p.wasConnected:
		d = p.describe()
	case closed:
		return lastDescription
	case err == nil:
		if addrs := netaddr.Order(m.hostInterfaces(), card.publishedAddrs); len(addrs) > 0 {
			d.Device = fmt.Sprintf("%s to %v", m.deviceName(), netip.AddrPortFrom(addrs[0], card.listenPort))
		}
	}
	if err == nil {
		d.Unused = m.unusedAddresses(p, card)
	}
	return d
}

// describe describes the links of a peer.
func (p *peerConn) describe() (d btl.Description) {
	d.Reconnects, d.Resent = uint64(p.reconnectCount), p.path.framesRetransmitted
	var ends []string
	for i, l := range p.linksBySlot {
		switch {
		case l != nil:
			ends = append(ends, fmt.Sprintf("%v to %v", l.localAddr, l.remoteAddr))
			d.Notes = append(d.Notes, fmt.Sprintf("%v, %d bytes unacked", l, p.path.queuesBySlot[i].bytesUnacked))
		case p.dialersBySlot[i] != nil && p.linkedSlots&(1<<i) != 0:
			d.Notes = append(d.Notes, fmt.Sprintf("link %d: lost, %s", i, times(p.dialersBySlot[i].consecutiveFailures, "failed attempt")))
		case p.dialersBySlot[i] != nil:
			d.Notes = append(d.Notes, fmt.Sprintf("link %d: not up yet, %s", i, times(p.dialersBySlot[i].consecutiveFailures, "failed attempt")))
		}
	}
	if d.Device = strings.Join(ends, ", "); d.Device == "" {
		d.Device = p.module.deviceName() + ", no link at the moment"
	}
	if d.Reconnects > 0 || d.Resent > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("reconnects: %d; frames retransmitted: %d", d.Reconnects, d.Resent))
	}
	return d
}

// recordClosed keeps the description of a peer that has closed its session, for an explanation at the end
// of the job.
func (p *peerConn) recordClosed() {
	p.releaseAcked()
	d := p.describe()
	if card, err := p.module.cardOf(p.incarnation); err == nil && card != nil {
		d.Unused = p.module.unusedAddresses(p, card)
	}
	p.module.peers.lastDescriptions[p.incarnation] = d
}

// times returns a count with its noun.
func times(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// unusedAddresses returns the peer's addresses without a link, and the unpublished addresses of this host,
// with reasons.
func (m *module) unusedAddresses(p *peerConn, card *businessCard) (all []framework.Rejection) {
	// Only the peer may have dialed.
	if p == nil || p.card == nil {
		var links [maxLinks]*link
		if p != nil {
			links = p.linksBySlot
		}
		p = &peerConn{module: m, linksBySlot: links}
		p.setCard(card)
	}
	for _, a := range card.publishedAddrs {
		if reason := p.unusedReason(a); reason != "" {
			all = append(all, framework.Rejection{Name: a.String(), Reason: reason})
		}
	}
	for _, l := range m.host.unpublishedAddrs {
		all = append(all, framework.Rejection{Name: l.What, Reason: "not published: " + l.Why})
	}
	return all
}

// unusedReason returns the reason for an address of the peer without a link. It is empty if a link uses
// the address, or would be dialed there first.
func (p *peerConn) unusedReason(a netip.Addr) string {
	network := p.networks.networkOf(netip.Addr{}, a)
	linksUp, sharesNetwork := 0, false
	for _, l := range p.linksBySlot {
		if l == nil {
			continue
		}
		if l.remoteAddr.Addr() == a {
			return ""
		}
		linksUp++
		sharesNetwork = sharesNetwork || network >= 0 && p.networks.networkOf(l.localAddr.Addr(), l.remoteAddr.Addr()) == network
	}
	if i := slices.IndexFunc(p.lastFailures, func(f failure) bool { return f.remoteAddr.Addr() == a }); i >= 0 {
		return p.lastFailures[i].err.Error()
	}
	switch {
	case !slices.Contains(p.peerAddrs, a):
		return "such an address is valid on its own host only"
	case linksUp == 0 && a == p.peerAddrs[0]:
		return ""
	case linksUp == 0:
		return fmt.Sprintf("tried if %v does not answer", p.peerAddrs[0])
	case sharesNetwork:
		return "another address in its network has a link"
	case network < 0:
		return "in no network that both hosts share: tried only when no link is up"
	case linksUp >= p.targetLinks():
		return fmt.Sprintf("%s enough (btl.tcp.links)", map[bool]string{true: "one link is", false: fmt.Sprintf("%d links are", linksUp)}[linksUp == 1])
	}
	return "its network gets a link when more data is in flight"
}

// notifyProtocol reports a link event to the protocol.
func (p *peerConn) notifyProtocol(event string) {
	p.module.env.Upcall.LinkChanged(p.incarnation, event)
}
