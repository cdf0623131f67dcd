package mesh

import (
	"context"
	"fmt"
	"net"
	"time"

	sys "golang.org/x/sys/unix"
)

// A host is lost when it has given no sign for the host timeout. A sign is anything that the kernel
// receives over a TCP connection with one of its processes, so a stopped process gives signs too.
// After half of the time a second connection is dialed, because the first one may retransmit too
// late to notice that the network has recovered. The other half counts in ticks of this process, so
// that its own suspension loses no host. docs/decisions/lost-hosts.md has the reasons.

// maxSilentTicks is the number of ticks in the second half of the host timeout.
const maxSilentTicks = 15

// hostSigns is the state of a peer's host.
type hostSigns struct {
	// There was a TCP connection with the peer.
	usesTCP    bool
	lastSignAt time.Time
	// The last sign is so old that a second connection is dialed.
	isSilent bool
	// Ticks of watchHosts since then.
	silentTicks int
}

// keepAlivePeriod is the idle time after which the kernel probes a connection.
func keepAlivePeriod(hostTimeout time.Duration) time.Duration {
	return max(hostTimeout/10, time.Second)
}

// setKeepAlive makes the kernel probe the other host. The kernel ends the connection later than
// this process reports the host, unless this process is stopped. Errors are harmless, because data
// in flight is retransmitted anyway.
func setKeepAlive(t *net.TCPConn, hostTimeout time.Duration) {
	period := keepAlivePeriod(hostTimeout)
	t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: period, Interval: period, Count: 2 * 10})
	if raw, err := t.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			sys.SetsockoptInt(int(fd), sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, int(2*hostTimeout.Milliseconds()))
		})
	}
}

// sinceLastSign returns the time since the last sign over l. ok is false if l is not a TCP
// connection, or is closed.
func (l *link) sinceLastSign() (d time.Duration, ok bool) {
	t, isTCP := l.conn.(*net.TCPConn)
	if !isTCP {
		return 0, false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return 0, false
	}
	var info *sys.TCPInfo
	var infoErr error
	err = raw.Control(func(fd uintptr) { info, infoErr = sys.GetsockoptTCPInfo(int(fd), sys.IPPROTO_TCP, sys.TCP_INFO) })
	if err != nil || infoErr != nil {
		return 0, false
	}
	if info.Unacked == 0 && info.Notsent_bytes > 0 && info.Probes < 2 {
		return 0, true // The peer does not read. The kernel probes with growing intervals, and the host answers.
	}
	return time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond, true
}

// recordSign records the last sign over a link. The caller holds endpoint.mu.
func (p *peer) recordSign(l *link, now time.Time) {
	if silence, ok := l.sinceLastSign(); ok && now.Add(-silence).After(p.lastSignAt) {
		p.lastSignAt = now.Add(-silence)
	}
}

// isRemote reports whether a process is reached by TCP. The caller holds endpoint.mu.
func (c *client) isRemote(p *peer) bool {
	e, found := c.entries[p.rank]
	return p.usesTCP || found && !c.isOnThisHost(e)
}

// isWatched reports whether the signs of a process's host are checked. The caller holds
// endpoint.mu.
func (c *client) isWatched(p *peer) bool {
	return c.isRemote(p) && (p.state == peerConnected || p.state == peerUnreachable)
}

// hostWatch is the state of watchHosts. endpoint.mu guards lastTickAt and isLookingUp.
type hostWatch struct {
	// It has room for one value.
	wake       chan struct{}
	lastTickAt time.Time
	// suspectHost looks up processes.
	isLookingUp bool
}

// isTick reports whether now begins another tick rather than following a wake, and records the tick.
func (w *hostWatch) isTick(now time.Time, tick time.Duration) bool {
	if now.Sub(w.lastTickAt) < tick/2 {
		return false
	}
	w.lastTickAt = now
	return true
}

// recheck wakes watchHosts.
func (w *hostWatch) recheck() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// watchHosts checks the signs of hosts until the client closes.
func (c *client) watchHosts() {
	for {
		c.mu.Lock()
		next := c.checkHosts(time.Now())
		c.mu.Unlock()
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-c.hostWatch.wake:
			timer.Stop()
		case <-c.done:
			timer.Stop()
			return
		}
	}
}

// checkHosts reports the hosts that are lost, and returns the time until the next check. The caller
// holds endpoint.mu.
func (c *client) checkHosts(now time.Time) (next time.Duration) {
	half, tick := c.timeouts.host/2, c.timeouts.host/2/maxSilentTicks
	isTick := c.hostWatch.isTick(now, tick)
	next = time.Hour
	var silent []*peer
	for _, p := range c.peers {
		if !c.isWatched(p) {
			continue
		}
		for _, l := range p.links {
			p.recordSign(l, now)
		}
		silence := now.Sub(p.lastSignAt)
		if silence < half {
			p.isSilent, p.silentTicks = false, 0
			next = min(next, half-silence)
			continue
		}
		next = min(next, tick)
		if isTick {
			p.silentTicks++
		}
		silent = append(silent, p)
	}
	for _, p := range silent {
		if !p.isSilent {
			c.suspectHost(p)
		}
		if p.silentTicks > maxSilentTicks && now.Sub(p.lastSignAt) >= c.timeouts.host {
			c.reportLostHost(p, now)
		}
	}
	return next
}

// suspectHost dials a second connection, and looks up processes that may be on the same host. The
// caller holds endpoint.mu.
func (c *client) suspectHost(p *peer) {
	p.isSilent = true
	c.updateDialing(p)
	unknown := c.ranksWithoutEntry()
	if len(unknown) == 0 || c.hostWatch.isLookingUp || c.isClosed {
		return
	}
	c.hostWatch.isLookingUp = true
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.timeouts.host/2)
		defer cancel()
		c.lookUpEntries(ctx, unknown)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hostWatch.isLookingUp = false
	})
}

// reportLostHost reports all processes of a silent process's host, or the process alone if the host
// gives signs over another connection. The caller holds endpoint.mu.
func (c *client) reportLostHost(p *peer, now time.Time) {
	if p.state == peerEnded {
		return // It was reported with another process of its host.
	}
	others := c.ranksOnHostOf(p)
	silence := now.Sub(p.lastSignAt)
	for _, rank := range others {
		if q := c.peers[rank]; q != nil && c.isWatched(q) {
			silence = min(silence, now.Sub(q.lastSignAt))
		}
	}
	switch {
	case silence < c.timeouts.host/2:
		c.concludeEnded(p, fmt.Sprintf("no connection for %v, although its host gives signs", c.timeouts.host))
		return
	case silence < c.timeouts.host:
		return // The last sign was over another connection.
	}
	reason := fmt.Sprintf("no sign of its host for %v (bootstrap.host_timeout)", c.timeouts.host)
	for _, rank := range others {
		c.concludeEnded(c.peerOf(rank), reason)
	}
	c.concludeEnded(p, reason)
}

// ranksOnHostOf returns the other processes of a process's host, as far as their entries are known.
// The caller holds endpoint.mu.
func (c *client) ranksOnHostOf(p *peer) (ranks []uint32) {
	host := c.entries[p.rank].hostID
	if host == 0 {
		return nil
	}
	for rank, e := range c.entries {
		if e.hostID == host && rank != p.rank {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// hasReachedHost reports whether there was a connection with a process of the host of e, so that
// the addresses of e are known to lead there. The caller holds endpoint.mu.
func (c *client) hasReachedHost(e entry) bool {
	for rank := range c.connectedRanks {
		if at, found := c.entries[rank]; found && e.hostID != 0 && at.hostID == e.hostID {
			return true
		}
	}
	return false
}

// checkPeer checks a process at once, because a transport has disconnected it. The caller holds
// endpoint.mu.
func (c *client) checkPeer(p *peer) {
	e := c.entries[p.rank]
	_, reached := c.connectedRanks[p.rank]
	switch {
	case p.state != peerUnmet && p.state != peerConnected || c.isClosed || !reached && !c.hasReachedHost(e):
	case len(p.links) == 0:
		c.suspectPeer(p, nil)
		c.updateDialing(p)
	default:
		now := time.Now()
		for _, l := range p.links {
			p.recordSign(l, now)
		}
		if c.isRemote(p) && now.Sub(p.lastSignAt) > 2*keepAlivePeriod(c.timeouts.host) {
			c.suspectHost(p)
		}
	}
}
