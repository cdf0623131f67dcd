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

// Describe implements btl.Describer. Before there is a link, Device says where the first one
// would be tried; of a peer that has closed, it is what there was.
func (m *module) Describe(peer framework.Peer) (d btl.Description) {
	p := m.peers.byIncarnation[peer.Life]
	was, closed := m.peers.closed[peer.Life]
	card, err := m.decodeReachable(peer)
	switch {
	case p != nil && p.wasConnected:
		d = p.describe()
	case closed:
		return was
	case err == nil:
		if ways := netaddr.Order(m.hostInterfaces(), card.addrs); len(ways) > 0 {
			d.Device = fmt.Sprintf("%s to %v", m.deviceName(), netip.AddrPortFrom(ways[0], card.port))
		}
	}
	if err == nil {
		d.Unused = m.unusedAddresses(p, card)
	}
	return d
}

// describe says which links a pair has.
func (p *peerConn) describe() (d btl.Description) {
	d.Reconnects, d.Resent = uint64(p.reconnects), p.path.retransmitted
	var ends []string
	for i, l := range p.links {
		switch {
		case l != nil:
			ends = append(ends, fmt.Sprintf("%v to %v", l.localAddr, l.remoteAddr))
			d.Notes = append(d.Notes, fmt.Sprintf("%v, %d bytes not confirmed", l, p.path.queues[i].bytesUnacked))
		case p.dialers[i] != nil && p.linkedSlots&(1<<i) != 0:
			d.Notes = append(d.Notes, fmt.Sprintf("link %d: lost, %s", i, times(p.dialers[i].failedRounds, "failed attempt")))
		case p.dialers[i] != nil:
			d.Notes = append(d.Notes, fmt.Sprintf("link %d: not up yet, %s", i, times(p.dialers[i].failedRounds, "failed attempt")))
		}
	}
	if d.Device = strings.Join(ends, ", "); d.Device == "" {
		d.Device = p.module.deviceName() + ", no link at the moment"
	}
	if d.Reconnects > 0 || d.Resent > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("links made again: %d; frames sent again: %d", d.Reconnects, d.Resent))
	}
	return d
}

// recordClosed keeps what there was with a peer that has closed its session: who closes last is to
// explain what carried its messages, too.
func (p *peerConn) recordClosed() {
	p.releaseAcked() // the peer has said, too, what it has received
	d := p.describe()
	if card, err := p.module.cardOf(p.incarnation); err == nil && card != nil {
		d.Unused = p.module.unusedAddresses(p, card)
	}
	p.module.peers.closed[p.incarnation] = d
}

// times is a number of something.
func times(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// unusedAddresses returns the addresses of a peer with this card by which no link goes, and those of
// this host that it is not told.
func (m *module) unusedAddresses(p *peerConn, card *businessCard) (all []framework.Rejection) {
	if p == nil || p.card == nil { // only the peer has called, if anybody
		var links [maxLinks]*link
		if p != nil {
			links = p.links
		}
		p = &peerConn{module: m, links: links}
		p.setCard(card)
	}
	for _, a := range card.addrs {
		if why := p.unusedReason(a); why != "" {
			all = append(all, framework.Rejection{Name: a.String(), Reason: why})
		}
	}
	for _, l := range m.host.unpublished {
		all = append(all, framework.Rejection{Name: l.What, Reason: "not published: " + l.Why})
	}
	return all
}

// unusedReason says why no link goes to an address of the peer; empty: one does, or the first one
// is tried there.
func (p *peerConn) unusedReason(a netip.Addr) string {
	mine := p.networks.networkOf(netip.Addr{}, a)
	ups, beside := 0, false
	for _, l := range p.links {
		if l == nil {
			continue
		}
		if l.remoteAddr.Addr() == a {
			return ""
		}
		ups++
		beside = beside || mine >= 0 && p.networks.networkOf(l.localAddr.Addr(), l.remoteAddr.Addr()) == mine
	}
	if i := slices.IndexFunc(p.failures, func(f failure) bool { return f.addr.Addr() == a }); i >= 0 {
		return p.failures[i].err.Error()
	}
	switch {
	case !slices.Contains(p.addrs, a):
		return "such an address means nothing on another host"
	case ups == 0 && a == p.addrs[0]:
		return ""
	case ups == 0:
		return fmt.Sprintf("tried if %v does not answer", p.addrs[0])
	case beside:
		return "another address in its network has a link"
	case mine < 0:
		return "in no network that both hosts share: tried only when no link is up"
	case ups >= p.targetLinks():
		return fmt.Sprintf("%s enough (btl.tcp.links)", map[bool]string{true: "one link is", false: fmt.Sprintf("%d links are", ups)}[ups == 1])
	}
	return "its network gets a link when much is under way"
}

// notifyWatcher has the protocol hear of a link.
func (p *peerConn) notifyWatcher(note string) {
	if w := p.module.linkWatcher; w != nil {
		w.Link(p.incarnation, note)
	}
}
