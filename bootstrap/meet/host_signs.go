package meet

import (
	"context"
	"fmt"
	"net"
	"time"

	sys "golang.org/x/sys/unix"
)

// A host is lost when it has given no sign for the host timeout. Signs are all that the kernel
// receives over a TCP connection with one of its processes, so a stopped process gives them too. After
// half of the time a second connection is tried, because the first one may retransmit too late to find
// a cable that is back. The other half counts in ticks of this process, so that its own suspension
// loses no host. docs/decisions/lost-hosts.md has the reasons.

// silentTicks is the number of ticks in the second half of the host timeout.
const silentTicks = 15

// keepAlivePeriod is the time after which the kernel asks an idle connection for a sign.
func keepAlivePeriod(hostTimeout time.Duration) time.Duration {
	return max(hostTimeout/10, time.Second)
}

// noticeLoss makes the kernel ask for signs of the other end's host. The kernel itself ends the
// connection later than this process reports the host, unless this process is stopped. Errors are
// harmless, because data in flight is retransmitted anyway.
func noticeLoss(t *net.TCPConn, hostTimeout time.Duration) {
	period := keepAlivePeriod(hostTimeout)
	t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: period, Interval: period, Count: 2 * 10})
	if raw, err := t.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			sys.SetsockoptInt(int(fd), sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, int(2*hostTimeout.Milliseconds()))
		})
	}
}

// silence returns the time since the host of the other end has given a sign over l. ok is false if l
// is not a TCP connection, or is closed.
func (l *link) silence() (d time.Duration, ok bool) {
	t, isTCP := l.nc.(*net.TCPConn)
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
		return 0, true // The peer does not read. The kernel asks less and less often, and the host answers.
	}
	return time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond, true
}

// noteSigns records the last sign over a link. The caller holds place.mu.
func (p *peer) noteSigns(l *link, now time.Time) {
	if silence, ok := l.silence(); ok && now.Add(-silence).After(p.signAt) {
		p.signAt = now.Add(-silence)
	}
}

// isRemote reports whether a process is reached by TCP. The caller holds place.mu.
func (c *client) isRemote(p *peer) bool {
	e, found := c.entries[p.rank]
	return p.overTCP || found && !c.near(e)
}

// isWatched reports whether the signs of a process's host count. The caller holds place.mu.
func (c *client) isWatched(p *peer) bool {
	return !p.gone && c.isRemote(p) && (len(p.links) > 0 || p.suspect && !p.lives)
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
		case <-c.wakeWatch:
			timer.Stop()
		case <-c.done:
			timer.Stop()
			return
		}
	}
}

// recheckHosts wakes watchHosts.
func (c *client) recheckHosts() {
	select {
	case c.wakeWatch <- struct{}{}:
	default:
	}
}

// checkHosts reports the hosts that are lost, and returns the time until the next check. The caller
// holds place.mu.
func (c *client) checkHosts(now time.Time) (next time.Duration) {
	half, tick := c.hostTimeout/2, c.hostTimeout/2/silentTicks
	isTick := now.Sub(c.tickedAt) >= tick/2 // Not after a wake.
	if isTick {
		c.tickedAt = now
	}
	next = time.Hour
	var silent []*peer
	for _, p := range c.peers {
		if !c.isWatched(p) {
			continue
		}
		for _, l := range p.links {
			p.noteSigns(l, now)
		}
		silence := now.Sub(p.signAt)
		if silence < half {
			p.isSilent, p.ticks = false, 0
			next = min(next, half-silence)
			continue
		}
		next = min(next, tick)
		if isTick {
			p.ticks++
		}
		silent = append(silent, p)
	}
	for _, p := range silent {
		if !p.isSilent {
			c.doubtHost(p)
		}
		if p.ticks > silentTicks && now.Sub(p.signAt) >= c.hostTimeout {
			c.loseHost(p, now)
		}
	}
	return next
}

// doubtHost begins a second connection, and the lookup of processes that may be on the same host. The
// caller holds place.mu.
func (c *client) doubtHost(p *peer) {
	p.isSilent = true
	c.review(p)
	unknown := c.unknown()
	if len(unknown) == 0 || c.isLookingUp || c.closed {
		return
	}
	c.isLookingUp = true
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.hostTimeout/2)
		defer cancel()
		c.lookUp(ctx, unknown)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.isLookingUp = false
	})
}

// loseHost reports all processes of a silent process's host, or the process alone if the host gives
// signs over another connection. The caller holds place.mu.
func (c *client) loseHost(p *peer, now time.Time) {
	if p.gone {
		return // With another process of its host.
	}
	others := c.onHostOf(p)
	silence := now.Sub(p.signAt)
	for _, rank := range others {
		if q := c.peers[rank]; q != nil && c.isWatched(q) {
			silence = min(silence, now.Sub(q.signAt))
		}
	}
	switch {
	case silence < c.hostTimeout/2:
		c.over(p, fmt.Sprintf("no connection for %v, although its host gives signs", c.hostTimeout))
		return
	case silence < c.hostTimeout:
		return // The last sign was over another connection.
	}
	reason := fmt.Sprintf("no sign of its host for %v (bootstrap.host_timeout)", c.hostTimeout)
	for _, rank := range others {
		c.over(c.peerOf(rank), reason)
	}
	c.over(p, reason)
}

// onHostOf returns the other processes of a process's host, as far as their entries are known. The
// caller holds place.mu.
func (c *client) onHostOf(p *peer) (ranks []uint32) {
	host := c.entries[p.rank].host
	if host == 0 {
		return nil
	}
	for rank, e := range c.entries {
		if e.host == host && rank != p.rank {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// hasReachedHost reports whether there was a connection with a process of that entry's host. Then the
// addresses of the entry lead to that host. The caller holds place.mu.
func (c *client) hasReachedHost(e entry) bool {
	for rank := range c.reached {
		if at, found := c.entries[rank]; found && e.host != 0 && at.host == e.host {
			return true
		}
	}
	return false
}

// doubt checks a process at once, because a transport has disconnected it. The caller holds place.mu.
func (c *client) doubt(p *peer) {
	e := c.entries[p.rank]
	_, reached := c.reached[p.rank]
	switch {
	case p.gone || p.absent || p.suspect || c.closed || !reached && !c.hasReachedHost(e):
	case len(p.links) == 0:
		c.suspect(p, nil)
		c.review(p)
	default:
		now := time.Now()
		for _, l := range p.links {
			p.noteSigns(l, now)
		}
		if c.isRemote(p) && now.Sub(p.signAt) > 2*keepAlivePeriod(c.hostTimeout) {
			c.doubtHost(p)
		}
	}
}
