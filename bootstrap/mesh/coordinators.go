package mesh

import (
	"context"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

const (
	// After the end of a coordinator, members connect to the next one after coordinatorDelay
	// unless they close themselves. The new coordinator connects to the members that have not done
	// so within gatherDelay.
	coordinatorDelay = 150 * time.Millisecond
	gatherDelay      = time.Second

	// keepConnectedTime limits the dial attempts of keepConnected.
	keepConnectedTime = 10 * time.Second

	// forwarderTimeout limits the time for which Close waits for connections with an Exchange.
	// revocationTimeout applies without one, where connections are missing only after a death.
	// forwarderPollInterval is the interval of polling.
	forwarderTimeout      = 5 * time.Second
	revocationTimeout     = 2 * time.Second
	forwarderPollInterval = time.Millisecond

	// maxMemberships limits the groups that are remembered.
	maxMemberships = 1 << 12
)

// membership is a group that the process was in. The process keeps a connection to the coordinator,
// which is the first member that can forward. On other nodes than that of the coordinator, only the
// node leader does, and the other members keep a connection to their node leader.
type membership struct {
	key           string
	members       wire.Runs
	owner         *client
	isCoordinator bool
	// The coordinator is on another node.
	isNodeLeader bool
	// The process has become coordinator or node leader, and connects to members.
	mustGather bool
}

// recordJoined records a group whose members have exchanged messages.
func (c *client) recordJoined(key string, runs wire.Runs) { c.recordMembership(key, runs, true) }

// recordMembership records a group. Unless its members have met over connections, upkeep connects
// them.
func (c *client) recordMembership(key string, runs wire.Runs, areConnected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.memberships, func(m membership) bool { return m.key == key })
	if i >= 0 && c.memberships[i].owner == c {
		return
	}
	if i < 0 {
		if len(c.memberships) >= maxMemberships {
			c.memberships = slices.Delete(c.memberships, 0, 1)
		}
		c.memberships = append(c.memberships, membership{key: key, members: runs})
		i = len(c.memberships) - 1
	}
	m := &c.memberships[i]
	m.owner = c
	c.updateRole(m)
	if areConnected {
		m.mustGather = false // All members have just connected.
		return
	}
	c.scheduleUpkeep()
}

// updateRole updates the role of this process in a group. It returns the process to keep a
// connection to, if there is one.
func (c *client) updateRole(m *membership) (forwarder uint32, ok bool) {
	self := c.id.Proc.Rank
	isEligible := func(r uint32) bool { return r == self || !c.cannotForward(r) }
	coordinator, _ := firstMember(m.members, isEligible)
	nodeLeader, isOnOtherNode := c.nodeLeader(m.members, coordinator, isEligible)
	isHead, isLowest := coordinator == self, isOnOtherNode && nodeLeader == self
	m.mustGather = m.mustGather || isHead && !m.isCoordinator || isLowest && !m.isNodeLeader
	m.isCoordinator, m.isNodeLeader = isHead, isLowest
	if isOnOtherNode && !isLowest {
		coordinator = nodeLeader
	}
	return coordinator, !isHead
}

// sharesGroup reports whether this client was in a group with rank. The caller holds endpoint.mu.
func (c *client) sharesGroup(rank uint32) bool {
	return slices.ContainsFunc(c.memberships, func(m membership) bool { return m.owner == c && m.members.Index(rank) >= 0 })
}

// cannotForward reports whether a process forwards no events. The caller holds endpoint.mu.
func (c *client) cannotForward(rank uint32) bool {
	_, dead := c.failures[rank]
	p := c.peers[rank]
	return dead || p != nil && (p.state == peerEnded || p.state == peerAbsent || p.hasLeft)
}

// coordinatorUpkeep is the state of the connections to coordinators. endpoint.mu guards it.
type coordinatorUpkeep struct {
	isScheduled bool
	// len(failures) when connectUnseenHosts was last scheduled.
	checkedFailures int
	// This client has made or received a revocation.
	hasRevocation bool
}

// scheduleUpkeep schedules connections to the coordinators. The caller holds endpoint.mu.
func (c *client) scheduleUpkeep() {
	if c.upkeep.isScheduled || c.isClosed || len(c.memberships) == 0 {
		return
	}
	c.upkeep.isScheduled = true
	c.runAfter(coordinatorDelay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.upkeep.isScheduled = false
		if c.connectCoordinators() {
			c.runAfter(gatherDelay, c.connectMembers)
		}
	})
}

// connectCoordinators connects to the coordinators. It reports whether connectMembers must follow.
// The caller holds endpoint.mu.
func (c *client) connectCoordinators() (mustGather bool) {
	for i := range c.memberships {
		m := &c.memberships[i]
		if m.owner != c {
			continue
		}
		if forwarder, ok := c.updateRole(m); ok {
			c.keepConnected(forwarder)
		}
		mustGather = mustGather || m.mustGather
	}
	if len(c.failures) > c.upkeep.checkedFailures {
		c.upkeep.checkedFailures = len(c.failures)
		c.runAfter(gatherDelay, c.connectUnseenHosts)
	}
	return mustGather
}

// connectUnseenHosts connects the coordinator of a group, after a death, to members on hosts
// without a connection. The node leader that had the connection may have died together with other
// processes there, and no process of another host is connected to those.
func (c *client) connectUnseenHosts() {
	c.mu.Lock()
	unknown := c.ranksWithoutEntry()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, c.timeouts.lookup)
	defer cancel()
	c.lookUpEntries(ctx, unknown)
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts := map[uint64]bool{c.ownEntry.hostID: true}
	for rank, p := range c.peers {
		hosts[c.entries[rank].hostID] = hosts[c.entries[rank].hostID] || len(p.links) > 0
	}
	delete(hosts, 0) // Unknown.
	for i := range c.memberships {
		if m := &c.memberships[i]; m.owner != c || !m.isCoordinator {
			continue
		}
		for _, rank := range c.memberships[i].members.All() {
			if e, found := c.entries[rank]; found && !hosts[e.hostID] && !c.cannotForward(rank) {
				c.keepConnected(rank)
			}
		}
	}
}

// awaitForwarders waits for connections to the processes that forward the revocations and, with an
// Exchange, the end of this process.
func (c *client) awaitForwarders() {
	c.mu.Lock()
	isDone := !c.upkeep.hasRevocation && (c.exchange == nil || c.eventLog.incarnation == 0 && len(c.eventLog.recent) == 0)
	c.mu.Unlock()
	timeout := forwarderTimeout
	if c.exchange == nil {
		timeout = revocationTimeout
	}
	for end := time.Now().Add(timeout); !isDone && time.Now().Before(end); {
		if isDone = c.connectForwarders(); !isDone {
			time.Sleep(forwarderPollInterval)
		}
	}
}

// connectForwarders reports whether this process is connected to the coordinators, and dials those
// that are missing. A new coordinator, and a process with an Exchange, must be connected to the
// members, too.
func (c *client) connectForwarders() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	areAllConnected := true
	ensureConnected := func(rank uint32) {
		if p := c.peerOf(rank); len(p.links) == 0 && !c.cannotForward(rank) && rank != c.id.Proc.Rank {
			c.keepConnected(rank)
			areAllConnected = false
		}
	}
	for i := range c.memberships {
		m := &c.memberships[i]
		if m.owner != c || c.isClosed {
			continue
		}
		if forwarder, ok := c.updateRole(m); ok {
			ensureConnected(forwarder)
		}
		if c.exchange == nil && !m.mustGather { // The members have connected.
			continue
		}
		for _, rank := range m.members.All() {
			if _, here := slices.BinarySearch(c.id.LocalRanks, rank); m.isCoordinator || m.isNodeLeader && here {
				ensureConnected(rank)
			}
		}
	}
	return areAllConnected
}

// connectMembers connects to members that have not connected since this process became coordinator
// or node leader. A member that has died meanwhile is noticed by no other process.
func (c *client) connectMembers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.memberships {
		m := &c.memberships[i]
		if m.owner != c || !m.mustGather {
			continue
		}
		m.mustGather = false
		for _, rank := range m.members.All() {
			_, here := slices.BinarySearch(c.id.LocalRanks, rank)
			if rank != c.id.Proc.Rank && !c.cannotForward(rank) && (m.isCoordinator || here) {
				c.keepConnected(rank)
			}
		}
	}
}

// keepConnected dials rank for at most keepConnectedTime. The caller holds endpoint.mu.
func (c *client) keepConnected(rank uint32) {
	p := c.peerOf(rank)
	if len(p.links) > 0 || p.state == peerEnded || c.isClosed || time.Now().Before(p.wantedUntil) {
		return
	}
	p.wantedUntil = time.Now().Add(keepConnectedTime)
	c.updateDialing(p)
	c.runAfter(keepConnectedTime, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.updateDialing(p)
	})
}
