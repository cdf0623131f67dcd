package tcp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Keepalives of the system on an idle link, in seconds.
const (
	keepaliveIdle     = 2
	keepaliveInterval = 1
	keepaliveCount    = 30
)

// setKeepalive enables keepalives.
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

// Silence of the other host after which a link fails. silenceTimeout allows for two lost keepalives, or
// several lost packets. While another link is alive, an unacked one fails after oneLinkSilenceTimeout or
// ackTimeoutFactor ack timeouts, which is after the system's second retransmission, because it blocks the
// whole path once the window is full. A wrong decision costs a reconnect.
const (
	silenceTimeout        = 4 * time.Second
	oneLinkSilenceTimeout = 700 * time.Millisecond
	ackTimeoutFactor      = 3
	aliveRecently         = 300 * time.Millisecond
)

// busyLivenessPeriod is the time between two liveness checks of a busy peer with several links.
const busyLivenessPeriod = 100 * time.Millisecond

// liveness is the state of a link according to the system. A peer that is stopped or does not read is
// alive, since its host acks and answers keepalives.
type liveness struct {
	connectedAt time.Duration
	lastReadAt  time.Duration
	hostAliveAt time.Duration
	// The other host owes an ack since then. 0 if it owes none.
	unackedSince time.Duration
	ackTimeout   time.Duration
	// Bytes, as the system assumes it. 0 if unknown.
	pathMTU int
}

// updateLiveness updates liveness from TCP_INFO, and returns hostAliveAt.
func (l *link) updateLiveness(now time.Duration) time.Duration {
	if l.state == connClosed {
		return l.liveness.hostAliveAt
	}
	info, err := unix.GetsockoptTCPInfo(l.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return max(l.liveness.lastReadAt, l.liveness.hostAliveAt)
	}
	// Data without a new ack does not update Last_ack_recv.
	silentFor := time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond
	if info.Unacked == 0 && info.Notsent_bytes > 0 && info.Probes < 2 {
		// The peer does not read, and its host answers window probes less and less often.
		silentFor = 0
	}
	if info.Unacked == 0 {
		l.liveness.unackedSince = 0
	} else if l.liveness.unackedSince == 0 {
		l.liveness.unackedSince = max(now, 1)
	}
	l.liveness.pathMTU = int(info.Pmtu)
	l.liveness.ackTimeout = time.Duration(info.Rtt+4*info.Rttvar) * time.Microsecond
	l.liveness.hostAliveAt = max(l.liveness.hostAliveAt, now-silentFor, l.liveness.lastReadAt, l.liveness.connectedAt)
	return l.liveness.hostAliveAt
}

// checkLiveness fails the links to a silent host.
func (p *peerConn) checkLiveness(now time.Duration) {
	p.lastLivenessCheckAt = now
	// Links that are alive, or have no ack outstanding.
	healthy := 0
	for _, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
		if l != nil && (now-l.updateLiveness(now) < aliveRecently || l.liveness.unackedSince == 0) {
			healthy++
		}
	}
	for _, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
		if l == nil || l.state >= connFailed {
			continue
		}
		// An idle link has keepalives only. An ack is due at once.
		since, timeout := l.liveness.hostAliveAt, silenceTimeout
		if l.liveness.unackedSince > 0 {
			since, timeout = max(since, l.liveness.unackedSince), min(silenceTimeout, p.module.config.retryTimeout)
			if healthy > 0 {
				timeout = min(timeout, max(oneLinkSilenceTimeout, ackTimeoutFactor*l.liveness.ackTimeout))
			}
		}
		if now < since+timeout {
			p.module.scheduleAt(since + timeout)
			continue
		}
		l.failAfterDrain(fmt.Errorf("the peer's host was silent for %v", (now - l.liveness.hostAliveAt).Round(time.Millisecond)))
	}
}
