package sets

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// withdraw undoes a change that is not integrated, because its request does not wait any longer. The
// result answers the request; the members get the reason.
func (t *Table[W]) withdraw(c *change[W], expired bool) wire.FailureBody {
	requester := "the user"
	if c.requester != user {
		requester = fmt.Sprintf("rank %d", c.requester)
	}
	reason := fmt.Sprintf("%s withdrew the change %q of %q", requester, c.delta(noRank), c.associated.name)
	f := wire.FailureBody{Code: wire.CodeWithdrawn}
	if expired {
		reason = fmt.Sprintf("the time that %s gave the change %q of %q has passed", requester, c.delta(noRank), c.associated.name)
		f = wire.FailureBody{Code: wire.CodeMissing, Missing: t.absent(c)}
		if c.state == stateStarting {
			f.Missing = c.joining.ranks
		}
	}
	c.isWaiting = false // The caller answers.
	answer := f
	answer.Text = undoneText
	f.Text = fmt.Sprintf("%s, and %s: continue with %q", reason, undoneText, c.associated.name)
	t.undo(c, f)
	return answer
}

// undoneText is in the failures of an undone change.
const undoneText = "the change is undone"

// undo ends a change that is not integrated, and everything that it created. f answers the
// calls that wait for it, and later calls of members.
func (t *Table[W]) undo(c *change[W], f wire.FailureBody) {
	f.Text = cmp.Or(f.Text, undoneText)
	c.state, c.failure = stateUndone, f
	reason := undoReason(f)
	t.reportChange(ChangeUndone, c, reason)
	t.release(c)
	if c.joining != nil {
		delete(t.startingByRank, c.joining.ranks[0])
	}
	if c.isWaiting {
		c.isWaiting = false
		join.Fail(c.request, f)
	}
	entered := c.integrateCalls
	c.integrateCalls = nil
	for _, r := range slices.Sorted(maps.Keys(entered)) {
		failAll(entered[r], f)
	}
	for _, s := range c.created() {
		t.remove(s, tombstone{failure: &f}, f)
	}
	if c.joining != nil {
		for _, r := range c.joining.ranks {
			t.leaves(r)
		}
		if f.Text == undoneText && reason != undoneText {
			reason = undoneText + ": " + reason
		}
		t.order(EndProcs, c.joining.ranks, reason)
	}
	t.wakeGroup(c) // The change hid failures of members.
	c.trim()
}

// undoReason describes the failure f of an undone change.
func undoReason(f wire.FailureBody) string {
	var parts []string
	if len(f.Failed) > 0 {
		parts = append(parts, fmt.Sprintf("ranks %s have failed", formatNumbers(f.Failed)))
	}
	if len(f.Missing) > 0 {
		parts = append(parts, fmt.Sprintf("ranks %s have not integrated it", formatNumbers(f.Missing)))
	}
	if f.Text != undoneText || len(parts) == 0 {
		parts = append(parts, f.Text)
	}
	return strings.Join(parts, "; ")
}

func failAll[W join.Waiter](calls []integrateCall[W], f wire.FailureBody) {
	for _, e := range calls {
		join.Fail(e.waiter, f)
	}
}

// release ends the change's hold on processes and sets. Its processes keep it for late calls.
func (t *Table[W]) release(c *change[W]) {
	delete(t.changes, c)
	for _, s := range []*set[W]{c.associated, c.joining} {
		if s == nil {
			continue
		}
		for _, r := range s.ranks {
			if p := t.procs[r]; p != nil && p.change == c {
				p.change, p.lastChange = nil, c
			}
		}
	}
	for _, s := range append(c.created(), c.associated) {
		s.userCount--
		if s.hiddenBy = nil; s.change == c {
			s.change = nil
		}
	}
}

// trim drops the parts of an ended change that late calls do not need.
func (c *change[W]) trim() {
	c.associated, c.main, c.integrateCalls, c.seenBy = nil, nil, nil, nil
	c.request = *new(W)
}
