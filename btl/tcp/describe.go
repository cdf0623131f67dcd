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
	p := m.pairs[peer.Life]
	was, closed := m.closers[peer.Life]
	card, err := m.reach(peer)
	switch {
	case p != nil && p.met:
		d = p.describe()
	case closed:
		return was
	case err == nil:
		if ways := netaddr.Order(m.interfaces(), card.addrs); len(ways) > 0 {
			d.Device = fmt.Sprintf("%s to %v", m.device(), netip.AddrPortFrom(ways[0], card.port))
		}
	}
	if err == nil {
		d.Unused = m.unused(p, card)
	}
	return d
}

// describe says which links a pair has.
func (p *pair) describe() (d btl.Description) {
	d.Reconnects, d.Resent = uint64(p.reconnects), p.path.resent
	var ends []string
	for i, l := range p.links {
		switch {
		case l != nil:
			ends = append(ends, fmt.Sprintf("%v to %v", l.near, l.far))
			d.Notes = append(d.Notes, fmt.Sprintf("%v, %d bytes not confirmed", l, p.path.links[i].load))
		case p.dials[i] != nil && p.had&(1<<i) != 0:
			d.Notes = append(d.Notes, fmt.Sprintf("link %d: lost, %s", i, times(p.dials[i].rounds, "failed attempt")))
		case p.dials[i] != nil:
			d.Notes = append(d.Notes, fmt.Sprintf("link %d: not up yet, %s", i, times(p.dials[i].rounds, "failed attempt")))
		}
	}
	if d.Device = strings.Join(ends, ", "); d.Device == "" {
		d.Device = p.m.device() + ", no link at the moment"
	}
	if d.Reconnects > 0 || d.Resent > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("links made again: %d; frames sent again: %d", d.Reconnects, d.Resent))
	}
	return d
}

// closes keeps what there was with a peer that has closed its session: who closes last is to
// explain what carried its messages, too.
func (p *pair) closes() {
	p.release() // the peer has said, too, what it has received
	d := p.describe()
	if card, err := p.m.cardOf(p.peer); err == nil && card != nil {
		d.Unused = p.m.unused(p, card)
	}
	p.m.closers[p.peer] = d
}

// times is a number of something.
func times(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// unused returns the addresses of a peer with this card by which no link goes, and those of
// this host that it is not told.
func (m *module) unused(p *pair, card *blob) (all []framework.Rejection) {
	if p == nil || p.card == nil { // only the peer has called, if anybody
		var links [mostLinks]*link
		if p != nil {
			links = p.links
		}
		p = &pair{m: m, links: links}
		p.knows(card)
	}
	for _, a := range card.addrs {
		if why := p.notUsed(a); why != "" {
			all = append(all, framework.Rejection{Name: a.String(), Reason: why})
		}
	}
	for _, l := range m.left {
		all = append(all, framework.Rejection{Name: l.What, Reason: "not published: " + l.Why})
	}
	return all
}

// notUsed says why no link goes to an address of the peer; empty: one does, or the first one
// is tried there.
func (p *pair) notUsed(a netip.Addr) string {
	mine := p.networks.of(netip.Addr{}, a)
	ups, beside := 0, false
	for _, l := range p.links {
		if l == nil {
			continue
		}
		if l.far.Addr() == a {
			return ""
		}
		ups++
		beside = beside || mine >= 0 && p.networks.of(l.near.Addr(), l.far.Addr()) == mine
	}
	if i := slices.IndexFunc(p.tried, func(f failure) bool { return f.addr.Addr() == a }); i >= 0 {
		return p.tried[i].err.Error()
	}
	switch {
	case !slices.Contains(p.ways, a):
		return "such an address means nothing on another host"
	case ups == 0 && a == p.ways[0]:
		return ""
	case ups == 0:
		return fmt.Sprintf("tried if %v does not answer", p.ways[0])
	case beside:
		return "another address in its network has a link"
	case mine < 0:
		return "in no network that both hosts share: tried only when no link is up"
	case ups >= p.wantedLinks():
		return fmt.Sprintf("%s enough (btl.tcp.links)", map[bool]string{true: "one link is", false: fmt.Sprintf("%d links are", ups)}[ups == 1])
	}
	return "its network gets a link when much is under way"
}

// tell has the protocol hear of a link.
func (p *pair) tell(note string) {
	if w := p.m.watcher; w != nil {
		w.Link(p.peer, note)
	}
}
