package learner

// GroupSelector selects options for groups of messages that show little on their own. All
// messages of a group use one option, and their total time is one sample.
type GroupSelector[O ~uint8] struct {
	Selector[O]
	// Group is the number of messages of a group. With at most 1, each message is selected on its own.
	Group int

	option      O
	isProbe     bool
	membersLeft int

	// measured is the option of the messages in the sum. The next left messages complete it, and
	// skip messages before them are not measured.
	measured   O
	skip, left int
	bytes, ns  int64
}

// NewGroup returns a selector for groups of the given number of messages. See [New].
func NewGroup[O ~uint8](options, group int, guess O) GroupSelector[O] {
	return GroupSelector[O]{Selector: New(Shape{Options: options, Probe: 1, Run: 1}, guess), Group: group, measured: O(options)}
}

// Select is [Selector.Select].
func (g *GroupSelector[O]) Select(possible Set[O]) (o O, isProbe bool) {
	if g.Group <= 1 {
		return g.Selector.Select(possible)
	}
	if g.membersLeft--; g.membersLeft < 0 || !possible.Has(g.option) {
		g.membersLeft = g.Group - 1
		g.option, g.isProbe = g.Selector.Select(possible)
	}
	return g.option, g.isProbe
}

// Record is [Selector.Record]. The first quarter of a group behind another option is not measured.
func (g *GroupSelector[O]) Record(o O, bytes, ns int64, isClean bool) {
	if g.Group <= 1 {
		g.Selector.Record(o, bytes, ns, isClean)
		return
	}
	if o != g.measured {
		g.measured, g.skip, g.bytes, g.ns = o, g.Group/4, 0, 0
		g.left = g.Group - g.skip
	}
	if g.skip > 0 {
		g.skip--
		return
	}
	g.bytes += bytes
	g.ns += max(ns, 0)
	if g.left--; g.left == 0 {
		g.estimates[o].messages += uint64(g.Group - 1)
		g.Selector.Record(o, g.bytes, g.ns, true)
		g.left, g.bytes, g.ns = g.Group, 0, 0
	}
}
