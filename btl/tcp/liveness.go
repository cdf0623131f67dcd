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
	keepaliveIdle     = 2
	keepaliveInterval = 1
	keepaliveCount    = 30
)

// setKeepalive sets what a link's socket needs.
func setKeepalive(fd int) error {
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepaliveIdle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepaliveInterval},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepaliveCount},
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
	silenceTimeout        = 4 * time.Second
	oneLinkSilenceTimeout = 700 * time.Millisecond
	ackTimeoutFactor      = 3 // times as long as an acknowledgement may take
	aliveRecently         = 300 * time.Millisecond
)

// busyLivenessPeriod is how often links are looked at while several carry something.
const busyLivenessPeriod = 100 * time.Millisecond

// liveness is the state of a link according to the system.
type liveness struct {
	connectedAt  time.Duration
	lastReadAt   time.Duration
	hostAliveAt  time.Duration // Last sign of life of the other host.
	unackedSince time.Duration // Since then the other host owes an acknowledgment; 0 if it owes none.
	ackTimeout   time.Duration // Time within which an acknowledgment is normal.
	pathMTU      int           // Bytes, as the system assumes it; 0 if unknown.
}

// updateLiveness returns when the other end's host was heard of last.
func (l *link) updateLiveness(now time.Duration) time.Duration {
	if l.over {
		return l.liveness.hostAliveAt
	}
	info, err := unix.GetsockoptTCPInfo(l.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return max(l.liveness.lastReadAt, l.liveness.hostAliveAt)
	}
	// Data that comes without acknowledging anything new does not count as an ACK.
	ago := time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond
	if info.Unacked == 0 && info.Notsent_bytes > 0 && info.Probes < 2 {
		ago = 0 // it does not read; the system asks it less and less often, and it answers
	}
	if info.Unacked == 0 {
		l.liveness.unackedSince = 0
	} else if l.liveness.unackedSince == 0 {
		l.liveness.unackedSince = max(now, 1)
	}
	l.liveness.pathMTU = int(info.Pmtu)
	l.liveness.ackTimeout = time.Duration(info.Rtt+4*info.Rttvar) * time.Microsecond
	l.liveness.hostAliveAt = max(l.liveness.hostAliveAt, now-ago, l.liveness.lastReadAt, l.liveness.connectedAt)
	return l.liveness.hostAliveAt
}

// checkLiveness looks at the links of a pair: one whose host is not heard of any more is lost.
func (p *peerConn) checkLiveness(now time.Duration) {
	p.lastLivenessCheckAt = now
	fine := 0 // links that wait for nothing, or are heard of
	for _, l := range p.links[:len(p.path.queues)] {
		if l != nil && (now-l.updateLiveness(now) < aliveRecently || l.liveness.unackedSince == 0) {
			fine++
		}
	}
	for _, l := range p.links[:len(p.path.queues)] {
		if l == nil || l.failed != nil {
			continue
		}
		// What idle links have to say comes seldom; an acknowledgement is due at once.
		since, patience := l.liveness.hostAliveAt, silenceTimeout
		if l.liveness.unackedSince > 0 {
			since, patience = max(since, l.liveness.unackedSince), min(silenceTimeout, p.module.config.retryTimeout)
			if fine > 0 {
				patience = min(patience, max(oneLinkSilenceTimeout, ackTimeoutFactor*l.liveness.ackTimeout))
			}
		}
		if now < since+patience {
			p.module.scheduleAt(since + patience)
			continue
		}
		l.failAfterDrain(fmt.Errorf("nothing was heard from the peer's host for %v", (now - l.liveness.hostAliveAt).Round(time.Millisecond)))
	}
}

// localLimits are what peers are told of this module's parameters.
func (m *module) localLimits() limits {
	return limits{window: uint64(m.config.window), frame: uint32(m.config.frameLimit)}
}

// deviceName names the addresses that peers are told.
func (m *module) deviceName() string {
	all := make([]string, len(m.host.published))
	for i, a := range m.host.published {
		all[i] = a.String()
		if i == 0 {
			all[i] = net.JoinHostPort(all[i], fmt.Sprint(m.host.port))
		}
	}
	return strings.Join(all, " ")
}
