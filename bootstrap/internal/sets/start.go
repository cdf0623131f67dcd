package sets

import (
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// start orders the joining processes.
func (t *Table[W]) start(c *change[W]) {
	like := c.associated.ranks[len(c.associated.ranks)-1]
	for _, r := range slices.Backward(c.associated.ranks) {
		if t.isPresent(r) {
			like = r
			break
		}
	}
	first := c.joining.ranks[0]
	t.startingByRank[first] = c
	t.options.Order(Order{Kind: StartProcs, Like: int(like), First: int(first), N: len(c.joining.ranks)})
}

// Started is the launcher's answer to the order to start processes from rank first on. An
// empty reason means that all of them run. Else none of them runs any longer, and fit of
// them can be started; an operation that accepts fewer orders those, as new ranks.
func (t *Table[W]) Started(first, fit int, reason string) {
	c := t.startingByRank[uint32(first)]
	if c == nil || first < 0 {
		return // Undone.
	}
	delete(t.startingByRank, uint32(first))
	if reason == "" {
		t.open(c)
		if c.requester != user {
			t.answer(c)
		}
		return
	}
	wanted := len(c.joining.ranks)
	fit = max(0, min(fit, wanted-1, MaxRanks-int(t.nextRank)))
	if c.isPartial && fit > 0 {
		t.restart(c, fit)
		return
	}
	for _, r := range c.joining.ranks {
		t.leaves(r)
		t.drop(r)
	}
	t.undo(c, *failf(wire.CodeLimit, "new processes: %d requested, %d fit: %s; %s", wanted, fit, strings.ToValidUTF8(reason, ""), undoneText))
}

// restart orders fewer processes, in place of those that were not started.
func (t *Table[W]) restart(c *change[W], n int) {
	for _, r := range c.joining.ranks {
		t.leaves(r)
		t.drop(r)
		failAll(c.integrateCalls[r], *failf(wire.CodeRank, "rank %d has ended", r))
		delete(c.integrateCalls, r)
	}
	if c.main != nil {
		c.main.ranks = c.main.ranks[:len(c.main.ranks)-len(c.joining.ranks)]
	}
	fewer := len(c.joining.ranks) - n
	c.groupSize -= fewer
	t.memberCount -= fewer
	c.joining.sorted = nil
	t.assign(c.joining, n)
	for _, r := range c.joining.ranks {
		t.procs[r].change = c
		t.excusedRanks.add(r)
	}
	if c.main != nil {
		c.main.ranks, c.main.sorted = append(c.main.ranks, c.joining.ranks...), nil
		t.memberCount -= fewer
	}
	t.start(c)
}

// order sends an order about some processes. A process that counts as ended may run without a connection.
func (t *Table[W]) order(kind OrderKind, ranks []uint32, reason string) {
	o := Order{Kind: kind, Reason: reason}
	for _, r := range ranks {
		o.Ranks = append(o.Ranks, int(r))
	}
	if len(o.Ranks) > 0 && t.options.Order != nil {
		t.options.Order(o)
	}
}
