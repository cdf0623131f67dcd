package tcp

import "time"

// runTimers runs everything that is due for a peer.
func (p *peerConn) runTimers(now time.Duration) {
	p.checkReorderTimeout(now)
	p.checkBusyLiveness(now)
	p.sendDelayedAck(now)
	p.dialMissingLinks(now)
	p.checkConnectDeadline(now)
}

// checkBusyLiveness checks the links more often while frames are in flight.
func (p *peerConn) checkBusyLiveness(now time.Duration) {
	if p.path.isIdle() {
		return
	}
	if now >= p.lastLivenessCheckAt+busyLivenessPeriod {
		p.checkLiveness(now)
	}
	if p.path.countUp() > 1 {
		p.module.scheduleAt(p.lastLivenessCheckAt + busyLivenessPeriod)
	}
}

// sendDelayedAck sends an ack that has been owed for ackDelay.
func (p *peerConn) sendDelayedAck(now time.Duration) {
	if p.acks.owedSince == 0 {
		return
	}
	if due := p.acks.owedSince + ackDelay; now < due {
		p.module.scheduleAt(due)
		return
	}
	p.acks.owedSince = 0
	if p.path.bytesSinceAck == 0 || p.path.countUp() == 0 {
		return
	}
	if p.path.queueAck(false) {
		p.writeLinks()
		return
	}
	// No link is between two frames.
	p.acks.owedSince = now
	p.module.scheduleAt(now + ackDelay)
}

// dialMissingLinks dials the links that the peer needs, and cancels the dialers of others.
func (p *peerConn) dialMissingLinks(now time.Duration) {
	linksUp := p.path.countUp()
	for slot := range p.linksBySlot {
		if p.isClosed {
			return
		}
		if p.linksBySlot[slot] == nil && p.needsLink(slot, linksUp) {
			p.dialLink(slot, now, linksUp)
		} else if d := p.dialersBySlot[slot]; d != nil {
			d.cancelExcept(nil)
			p.dialersBySlot[slot] = nil
		}
	}
}

// checkConnectDeadline fails a peer without links when its timeout has passed.
func (p *peerConn) checkConnectDeadline(now time.Duration) {
	if p.isClosed || p.path.countUp() > 0 {
		return
	}
	timeout, deadline, earliest := p.module.config.retryTimeout, p.peerAliveAt, p.disconnectedAt+minReconnectTime
	if !p.wasConnected {
		timeout, deadline, earliest = p.module.config.connectTimeout, p.startedAt, 0
	}
	// A process that was stopped or computing has had no time to reconnect.
	if p.module.timers.resumedAt > p.resumedAt && p.resumeCount < maxResumes {
		p.resumedAt = p.module.timers.resumedAt
		p.resumeCount++
	}
	deadline = max(deadline+timeout, earliest, p.resumedAt+min(timeout, resumeGrace))
	if now < deadline {
		p.module.scheduleAt(deadline)
		return
	}
	p.fail("connect", p.unreachableError(now))
}

// resumeGrace is the least time for attempts after the process resumes polling. maxResumes bounds its use
// by a process that polls rarely.
const (
	resumeGrace = 5 * time.Second
	maxResumes  = 4
)

// minReconnectTime is the least time for attempts to reconnect, even if the host was silent for the whole
// timeout when the link was lost.
const minReconnectTime = 300 * time.Millisecond
