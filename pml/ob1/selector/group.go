package selector

// GroupSelector selects protocols for groups of messages. All messages of a group use one
// protocol, and their total time is one sample. It serves messages that show little on their own.
type GroupSelector struct {
	Selector
	// Group is the number of messages of a group. With at most 1, each message is selected on its own.
	Group int

	protocol    Protocol
	isProbe     bool
	membersLeft int

	// measured is the protocol of the messages in the sum, and needed the number of messages
	// that complete it.
	measured   Protocol
	needed     int
	warmupLeft int
	bytes, ns  int64
}

// groupWarmup is the number of messages that are not measured after a change of the protocol.
const groupWarmup = 2

// NewGroup returns a selector for groups of the given number of messages. See [New].
func NewGroup(seed uint64, group int, guess Protocol) GroupSelector {
	g := GroupSelector{Selector: New(seed, 1, guess), Group: group, measured: Protocols}
	g.isGrouped = true
	return g
}

// Select is [Selector.Select].
func (g *GroupSelector) Select(possible Set) (p Protocol, isProbe bool) {
	if g.Group <= 1 {
		return g.Selector.Select(possible)
	}
	if g.membersLeft--; g.membersLeft < 0 || !possible.Has(g.protocol) {
		g.membersLeft = g.Group - 1
		g.protocol, g.isProbe = g.Selector.Select(possible)
	}
	return g.protocol, g.isProbe
}

// Record is [Selector.Record].
func (g *GroupSelector) Record(p Protocol, bytes, ns int64, isClean bool) {
	if g.Group <= 1 {
		g.Selector.Record(p, bytes, ns, isClean)
		return
	}
	if p != g.measured {
		g.measured, g.warmupLeft, g.needed, g.bytes, g.ns = p, groupWarmup, g.Group-groupWarmup, 0, 0
	}
	if g.warmupLeft > 0 {
		g.warmupLeft--
		return
	}
	g.bytes += bytes
	g.ns += max(ns, 0)
	if g.needed--; g.needed <= 0 {
		g.Selector.Record(p, g.bytes, g.ns, true)
		g.needed, g.bytes, g.ns = g.Group, 0, 0
	}
}

// Estimates is [Selector.Estimates].
func (g *GroupSelector) Estimates() []Estimate {
	all := g.Selector.Estimates()
	for i := range all {
		all[i].Messages *= uint64(max(g.Group, 1))
	}
	return all
}
