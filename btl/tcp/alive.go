package tcp

import (
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Whether the other end's host is still there is asked of the system, which hears it by
// itself: a peer that is stopped, or does not read, is no reason to give a link up.

// keepalive has the system ask the other end's host on an idle link, in seconds.
const (
	keepIdle     = 2
	keepInterval = 1
	keepCount    = 30
)

// tune sets what a link's socket needs.
func tune(fd int) error {
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepIdle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepInterval},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepCount},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("socket option %d: %w", o.name, err)
		}
	}
	return nil
}

// How long a link's host may not be heard of before the link counts as lost: two keepalives
// may get lost, and so may some packets in a row. If another link is heard of, one that
// waits for an acknowledgement holds up what goes by the others, as soon as the window is
// full: it is given up when what the system has sent again for the second time is not
// acknowledged either. Wrongly given up it costs a connection.
const (
	silence       = 4 * time.Second
	silenceOfOne  = 700 * time.Millisecond
	silenceOfTrip = 3 // times as long as an acknowledgement may take
	heardOfLately = 300 * time.Millisecond
)

// countPeriod is how often links are looked at while several carry something.
const countPeriod = 100 * time.Millisecond

// alive returns when the other end's host was heard of last.
func (l *link) alive(now time.Duration) time.Duration {
	if l.over {
		return l.lastAlive
	}
	info, err := unix.GetsockoptTCPInfo(l.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return max(l.heard, l.lastAlive)
	}
	// Data that comes without acknowledging anything new does not count as an ACK.
	ago := time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond
	if info.Unacked == 0 && info.Notsent_bytes > 0 && info.Probes < 2 {
		ago = 0 // it does not read; the system asks it less and less often, and it answers
	}
	if info.Unacked == 0 {
		l.waits = 0
	} else if l.waits == 0 {
		l.waits = max(now, 1)
	}
	l.pathMTU = int(info.Pmtu)
	l.trip = time.Duration(info.Rtt+4*info.Rttvar) * time.Microsecond
	l.lastAlive = max(l.lastAlive, now-ago, l.heard, l.since)
	return l.lastAlive
}

// count looks at the links of a pair: one whose host is not heard of any more is lost.
func (p *pair) count(now time.Duration) {
	p.counted = now
	fine := 0 // links that wait for nothing, or are heard of
	for _, l := range p.links[:len(p.path.links)] {
		if l != nil && (now-l.alive(now) < heardOfLately || l.waits == 0) {
			fine++
		}
	}
	for _, l := range p.links[:len(p.path.links)] {
		if l == nil || l.failed != nil {
			continue
		}
		// What idle links have to say comes seldom; an acknowledgement is due at once.
		since, patience := l.lastAlive, silence
		if l.waits > 0 {
			since, patience = max(since, l.waits), min(silence, p.m.retryTimeout)
			if fine > 0 {
				patience = min(patience, max(silenceOfOne, silenceOfTrip*l.trip))
			}
		}
		if now < since+patience {
			p.m.at(since + patience)
			continue
		}
		l.breaks(fmt.Errorf("nothing was heard from the peer's host for %v", (now - l.lastAlive).Round(time.Millisecond)))
	}
}

// limits are what peers are told of this module's parameters.
func (m *module) limits() limits { return limits{window: uint64(m.window), frame: uint32(m.frame)} }

// device names the addresses that peers are told.
func (m *module) device() string {
	all := make([]string, len(m.addrs))
	for i, a := range m.addrs {
		all[i] = a.String()
		if i == 0 {
			all[i] = net.JoinHostPort(all[i], fmt.Sprint(m.port))
		}
	}
	return strings.Join(all, " ")
}
