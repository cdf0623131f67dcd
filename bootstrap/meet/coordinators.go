package meet

import (
	"context"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

const (
	// When a head has gone, members connect to the next one after coordinatorDelay, unless they
	// go themselves by then; it connects to those who have not come within gatherDelay.
	coordinatorDelay = 150 * time.Millisecond
	gatherDelay      = time.Second

	// keepConnectedTime is how long a member tries.
	keepConnectedTime = 10 * time.Second

	// forwarderTimeout limits the time that Close waits for connections with an Exchange, and
	// revocationTimeout without one, where they are missing only after a death. forwarderPollInterval is the
	// interval of polling.
	forwarderTimeout      = 5 * time.Second
	revocationTimeout     = 2 * time.Second
	forwarderPollInterval = time.Millisecond

	// maxMemberships is how many groups are remembered.
	maxMemberships = 1 << 12
)

// membership is a group that the process was in. With whom it keeps a connection because of
// that follows from the members that are left: the first member, the head; or for those of another
// node than the head's, the lowest member of their own, which has one with the head.
type membership struct {
	key           string
	members       wire.Runs
	owner         *client
	isCoordinator bool // this process is the head
	isNodeLeader  bool // this process is the lowest of its node, which is not the head's
	mustGather    bool // it has just become one of the two
}

// joined notes that the process was in a group, whose members have met.
func (c *client) recordJoined(key string, runs wire.Runs) { c.recordMembership(key, runs, true) }

// recordMembership notes that the process was in a group. Unless the members have met, it is seen to
// soon who keeps a connection with whom.
func (c *client) recordMembership(key string, runs wire.Runs, met bool) {
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
	if met {
		m.mustGather = false // who is in the group has just come
		return
	}
	c.scheduleUpkeep()
}

// stand finds out what this process is in a group now, and with whom it keeps a
// connection, if with any.
func (c *client) updateRole(m *membership) (with uint32, any bool) {
	self := c.id.Proc.Rank
	stays := func(r uint32) bool { return r == self || !c.cannotForward(r) }
	head, _ := firstMember(m.members, stays)
	lowest, other := c.nodeLeader(m.members, head, stays)
	isHead, isLowest := head == self, other && lowest == self
	m.mustGather = m.mustGather || isHead && !m.isCoordinator || isLowest && !m.isNodeLeader
	m.isCoordinator, m.isNodeLeader = isHead, isLowest
	if other && !isLowest {
		head = lowest
	}
	return head, !isHead
}

// fellow reports whether this client was in a group with rank. The caller holds place.mu.
func (c *client) sharesGroup(rank uint32) bool {
	return slices.ContainsFunc(c.memberships, func(m membership) bool { return m.owner == c && m.members.Index(rank) >= 0 })
}

// away reports whether a process passes nothing on. The caller holds place.mu.
func (c *client) cannotForward(rank uint32) bool {
	_, dead := c.failures[rank]
	p := c.peers[rank]
	return dead || p != nil && (p.state == peerEnded || p.state == peerAbsent || p.hasLeft)
}

// tidy sees to it, in a while, that there is a connection to each head. The caller holds
// place.mu.
func (c *client) scheduleUpkeep() {
	if c.isUpkeepScheduled || c.isClosed || len(c.memberships) == 0 {
		return
	}
	c.isUpkeepScheduled = true
	c.runAfter(coordinatorDelay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.isUpkeepScheduled = false
		if c.connectCoordinators() {
			c.runAfter(gatherDelay, c.connectMembers)
		}
	})
}

// connectCoordinators connects with the heads. It reports whether others are to be gathered. The
// caller holds place.mu.
func (c *client) connectCoordinators() (gather bool) {
	for i := range c.memberships {
		m := &c.memberships[i]
		if m.owner != c {
			continue
		}
		if with, any := c.updateRole(m); any {
			c.keepConnected(with)
		}
		gather = gather || m.mustGather
	}
	if len(c.failures) > c.checkedFailures {
		c.checkedFailures = len(c.failures)
		c.runAfter(gatherDelay, c.connectUnseenHosts)
	}
	return gather
}

// connectUnseenHosts connects, as the head of a group, to the members on hosts without a connection after a
// death. The node leader that had one may have died together with the others there, and no process of
// another host is connected to those.
func (c *client) connectUnseenHosts() {
	c.mu.Lock()
	unknown := c.ranksWithoutEntry()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, c.lookupTimeout)
	defer cancel()
	c.lookUpEntries(ctx, unknown)
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts := map[uint64]bool{c.ownEntry.hostID: true}
	for rank, p := range c.peers {
		hosts[c.entries[rank].hostID] = hosts[c.entries[rank].hostID] || len(p.links) > 0
	}
	delete(hosts, 0) // Not known.
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

// awaitForwarders waits for connections to the processes that pass on the revocations and, with an Exchange, the
// end of this process.
func (c *client) awaitForwarders() {
	c.mu.Lock()
	said := !c.hasRevocation && (c.exchange == nil || c.incarnation == 0 && len(c.recentEvents) == 0)
	c.mu.Unlock()
	patience := forwarderTimeout
	if c.exchange == nil {
		patience = revocationTimeout
	}
	for end := time.Now().Add(patience); !said && time.Now().Before(end); {
		if said = c.connectForwarders(); !said {
			time.Sleep(forwarderPollInterval)
		}
	}
}

// connectForwarders reports whether this process is connected with the heads. A process that has just become a head,
// or has an Exchange, is connected with the members, too. connectForwarders connects with the others.
func (c *client) connectForwarders() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := true
	hears := func(rank uint32) {
		if p := c.peerOf(rank); len(p.links) == 0 && !c.cannotForward(rank) && rank != c.id.Proc.Rank {
			c.keepConnected(rank)
			all = false
		}
	}
	for i := range c.memberships {
		m := &c.memberships[i]
		if m.owner != c || c.isClosed {
			continue
		}
		if with, any := c.updateRole(m); any {
			hears(with)
		}
		if c.exchange == nil && !m.mustGather { // The members have connected.
			continue
		}
		for _, rank := range m.members.All() {
			if _, here := slices.BinarySearch(c.id.Locals, rank); m.isCoordinator || m.isNodeLeader && here {
				hears(rank)
			}
		}
	}
	return all
}

// gather connects with those who should have come since this process has become the head
// of a group, or the lowest of its node there: one that has died meanwhile is not missed by
// anybody else.
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
			_, here := slices.BinarySearch(c.id.Locals, rank)
			if rank != c.id.Proc.Rank && !c.cannotForward(rank) && (m.isCoordinator || here) {
				c.keepConnected(rank)
			}
		}
	}
}

// useful tries for a time to have a connection with rank. The caller holds place.mu.
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
