package tcp

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// Describe implements btl.Describer. Before there is a link, Device says where the first one
// would be tried.
func (m *module) Describe(peer framework.Peer) (d btl.Description) {
	p := m.pairs[peer.Life]
	if p == nil || !p.met {
		card, err := m.reach(peer)
		if err != nil {
			return d
		}
		p = &pair{m: m}
		p.knows(card)
		if len(p.ways) > 0 {
			d.Device = fmt.Sprintf("%s to %v", m.device(), netip.AddrPortFrom(p.ways[0], card.port))
		}
		return d
	}
	d.Reconnects, d.Resent = uint64(p.reconnects), p.path.resent
	var ends []string
	for i, l := range p.links {
		switch {
		case l != nil:
			ends = append(ends, fmt.Sprintf("%v to %v", l.near, l.far))
			d.Notes = append(d.Notes, fmt.Sprintf("%v, %d bytes not confirmed", l, p.path.links[i].load))
		case p.dials[i] != nil:
			d.Notes = append(d.Notes, fmt.Sprintf("link %d: lost, %d attempts in vain", i, p.dials[i].rounds))
		}
	}
	if d.Device = strings.Join(ends, ", "); d.Device == "" {
		d.Device = m.device() + ", no link at the moment"
	}
	if d.Reconnects > 0 || d.Resent > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("%d connections were made again, %d frames went again", d.Reconnects, d.Resent))
	}
	return d
}

// tell has the protocol hear of a link.
func (p *pair) tell(note string) {
	if w := p.m.watcher; w != nil {
		w.Link(p.peer, note)
	}
}
