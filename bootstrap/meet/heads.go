package meet

import (
	"context"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

const (
	// When a head has gone, members connect to the next one after headDelay, unless they
	// go themselves by then; it connects to those who have not come within gatherDelay.
	headDelay   = 150 * time.Millisecond
	gatherDelay = time.Second

	// headPatience is how long a member tries.
	headPatience = 10 * time.Second

	// lastWordsPatience limits the time that Close waits for connections with an Exchange, and
	// revocationPatience without one, where they are missing only after a death. lastWordsStep is the
	// interval of polling.
	lastWordsPatience  = 5 * time.Second
	revocationPatience = 2 * time.Second
	lastWordsStep      = time.Millisecond

	// mostGroups is how many groups are remembered.
	mostGroups = 1 << 12
)

// membership is a group that the process was in. With whom it keeps a connection because of
// that follows from the members that are left: the first member, the head; or for those of another
// node than the head's, the lowest member of their own, which has one with the head.
type membership struct {
	key    string
	runs   wire.Runs
	by     *client
	head   bool // this process is the head
	lowest bool // this process is the lowest of its node, which is not the head's
	gather bool // it has just become one of the two
}

// joined notes that the process was in a group, whose members have met.
func (c *client) joined(key string, runs wire.Runs) { c.wasIn(key, runs, true) }

// wasIn notes that the process was in a group. Unless the members have met, it is seen to
// soon who keeps a connection with whom.
func (c *client) wasIn(key string, runs wire.Runs, met bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.groups, func(m membership) bool { return m.key == key })
	if i >= 0 && c.groups[i].by == c {
		return
	}
	if i < 0 {
		if len(c.groups) >= mostGroups {
			c.groups = slices.Delete(c.groups, 0, 1)
		}
		c.groups = append(c.groups, membership{key: key, runs: runs})
		i = len(c.groups) - 1
	}
	m := &c.groups[i]
	m.by = c
	c.stand(m)
	if met {
		m.gather = false // who is in the group has just come
		return
	}
	c.tidy()
}

// stand finds out what this process is in a group now, and with whom it keeps a
// connection, if with any.
func (c *client) stand(m *membership) (with uint32, any bool) {
	self := c.id.Proc.Rank
	stays := func(r uint32) bool { return r == self || !c.away(r) }
	head, _ := first(m.runs, stays)
	lowest, other := c.lowestHere(m.runs, head, stays)
	isHead, isLowest := head == self, other && lowest == self
	m.gather = m.gather || isHead && !m.head || isLowest && !m.lowest
	m.head, m.lowest = isHead, isLowest
	if other && !isLowest {
		head = lowest
	}
	return head, !isHead
}

// fellow reports whether this client was in a group with rank. The caller holds place.mu.
func (c *client) fellow(rank uint32) bool {
	return slices.ContainsFunc(c.groups, func(m membership) bool { return m.by == c && m.runs.Index(rank) >= 0 })
}

// away reports whether a process passes nothing on. The caller holds place.mu.
func (c *client) away(rank uint32) bool {
	_, dead := c.dead[rank]
	p := c.peers[rank]
	return dead || p != nil && (p.gone || p.absent || p.left)
}

// tidy sees to it, in a while, that there is a connection to each head. The caller holds
// place.mu.
func (c *client) tidy() {
	if c.tidying || c.closed || len(c.groups) == 0 {
		return
	}
	c.tidying = true
	c.after(headDelay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tidying = false
		if c.meetHeads() {
			c.after(gatherDelay, c.gather)
		}
	})
}

// meetHeads connects with the heads. It reports whether others are to be gathered. The
// caller holds place.mu.
func (c *client) meetHeads() (gather bool) {
	for i := range c.groups {
		m := &c.groups[i]
		if m.by != c {
			continue
		}
		if with, any := c.stand(m); any {
			c.useful(with)
		}
		gather = gather || m.gather
	}
	if len(c.dead) > c.deadChecked {
		c.deadChecked = len(c.dead)
		c.after(gatherDelay, c.checkNodes)
	}
	return gather
}

// checkNodes connects, as the head of a group, to the members on hosts without a connection after a
// death. The node leader that had one may have died together with the others there, and no process of
// another host is connected to those.
func (c *client) checkNodes() {
	c.mu.Lock()
	unknown := c.unknown()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, c.learning)
	defer cancel()
	c.lookUp(ctx, unknown)
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts := map[uint64]bool{c.self.host: true}
	for rank, p := range c.peers {
		hosts[c.entries[rank].host] = hosts[c.entries[rank].host] || len(p.links) > 0
	}
	delete(hosts, 0) // Not known.
	for i := range c.groups {
		if m := &c.groups[i]; m.by != c || !m.head {
			continue
		}
		for _, rank := range c.groups[i].runs.All() {
			if e, found := c.entries[rank]; found && !hosts[e.host] && !c.away(rank) {
				c.useful(rank)
			}
		}
	}
}

// lastWords waits for connections to the processes that pass on the revocations and, with an Exchange, the
// end of this process.
func (c *client) lastWords() {
	c.mu.Lock()
	said := !c.hasRevocation && (c.exchange == nil || c.life == 0 && len(c.recent) == 0)
	c.mu.Unlock()
	patience := lastWordsPatience
	if c.exchange == nil {
		patience = revocationPatience
	}
	for end := time.Now().Add(patience); !said && time.Now().Before(end); {
		if said = c.allHear(); !said {
			time.Sleep(lastWordsStep)
		}
	}
}

// allHear reports whether this process is connected with the heads. A process that has just become a head,
// or has an Exchange, is connected with the members, too. allHear connects with the others.
func (c *client) allHear() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := true
	hears := func(rank uint32) {
		if p := c.peerOf(rank); len(p.links) == 0 && !c.away(rank) && rank != c.id.Proc.Rank {
			c.useful(rank)
			all = false
		}
	}
	for i := range c.groups {
		m := &c.groups[i]
		if m.by != c || c.closed {
			continue
		}
		if with, any := c.stand(m); any {
			hears(with)
		}
		if c.exchange == nil && !m.gather { // The members have connected.
			continue
		}
		for _, rank := range m.runs.All() {
			if _, here := slices.BinarySearch(c.id.Locals, rank); m.head || m.lowest && here {
				hears(rank)
			}
		}
	}
	return all
}

// gather connects with those who should have come since this process has become the head
// of a group, or the lowest of its node there: one that has died meanwhile is not missed by
// anybody else.
func (c *client) gather() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.groups {
		m := &c.groups[i]
		if m.by != c || !m.gather {
			continue
		}
		m.gather = false
		for _, rank := range m.runs.All() {
			_, here := slices.BinarySearch(c.id.Locals, rank)
			if rank != c.id.Proc.Rank && !c.away(rank) && (m.head || here) {
				c.useful(rank)
			}
		}
	}
}

// useful tries for a time to have a connection with rank. The caller holds place.mu.
func (c *client) useful(rank uint32) {
	p := c.peerOf(rank)
	if len(p.links) > 0 || p.gone || c.closed || time.Now().Before(p.until) {
		return
	}
	p.until = time.Now().Add(headPatience)
	c.review(p)
	c.after(headPatience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.review(p)
	})
}
