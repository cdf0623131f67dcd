package sets

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// The steps of the model test that end calls, and those that come after an end.

// watch waits for a change. The table's check finds a query that waits without a reason.
func (m *model) watch(t *rapid.T) {
	name := m.pset(t)
	caller := m.caller(t, name)
	c := m.do(caller, func(c *call) {
		c.isQuery = true
		m.table.Query(c, caller, wire.LookupBody{Name: name, Wait: true})
	})
	if got, err := wire.Decode[wire.QueriedBody](c.body); err == nil && bootstrap.ChangeType(got.Type) == bootstrap.ChangeFailed {
		m.psets[got.Delta] = m.table.sets[got.Delta].ranks
	}
}

// withdraw ends the wait of a request or of a member, whose time may have passed.
func (m *model) withdraw(t *rapid.T) {
	c := m.draw(t, func(c *modelChange) bool { return !c.integrated })
	expired := rapid.Bool().Draw(t, "expired")
	isRequest := c.first >= 0 || c.requester == noRank
	if isRequest && rapid.Bool().Draw(t, "request") {
		want := wire.FailureBody{Code: wire.CodeWithdrawn}
		if expired {
			want = wire.FailureBody{Code: wire.CodeMissing, Missing: m.absent(c)}
			if c.first >= 0 {
				want.Missing = c.joining
			}
		}
		m.cancel(c.request, expired)
		sameFailure(t, c.request, want)
		m.undo(t, c, want)
		return
	}
	if len(c.calls) == 0 {
		t.Skip("no member waits")
	}
	r := rapid.SampledFrom(slices.Sorted(maps.Keys(c.calls))).Draw(t, "member")
	missing := m.absent(c)
	m.cancel(c.calls[r], expired)
	if expired {
		m.undo(t, c, wire.FailureBody{Code: wire.CodeMissing, Missing: missing})
		return
	}
	sameFailure(t, c.calls[r], wire.FailureBody{Code: wire.CodeWithdrawn, Missing: missing})
	delete(c.calls, r)
}

// absent returns the members that have not called Integrate, in the order of the table.
func (m *model) absent(c *modelChange) []uint32 {
	return slices.DeleteFunc(slices.Clone(c.group), func(r uint32) bool { return c.calls[r] != nil })
}

// late is a call of a member whose change has ended.
func (m *model) late(t *rapid.T) {
	var all []uint32
	for _, r := range slices.Sorted(maps.Keys(m.alive)) {
		if m.alive[r] && m.last[r] != nil && m.changeOf(r) == nil {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		t.Skip("no change has ended")
	}
	r := rapid.SampledFrom(all).Draw(t, "member")
	c := m.last[r]
	name := m.nameOf(t, c, r)
	if name == "" {
		t.Skip("its sets were not visible")
	}
	integrate := m.do(r, func(w *call) { m.table.Integrate(w, r, wire.IntegrateBody{Delta: name, Provide: "late"}) })
	finish := m.do(r, func(w *call) { m.table.Finish(w, r, name) })
	if c.undone != nil {
		sameFailure(t, integrate, *c.undone)
		sameFailure(t, finish, *c.undone)
		return
	}
	got := answer[wire.IntegratedBody](t, integrate)
	if got.Pset != c.main() || got.Terminate != slices.Contains(c.leaving, r) {
		t.Fatalf("%s: the others got %q", integrate.show(), c.main())
	}
	answer[wire.Empty](t, finish)
}

// reopen ends the connection of a process, which withdraws its calls.
func (m *model) reopen(t *rapid.T) {
	r := m.caller(t)
	m.disconnect(r)
	for _, c := range slices.Clone(m.changes) {
		switch {
		case c.requester == r && c.first >= 0:
			m.undo(t, c, wire.FailureBody{Code: wire.CodeWithdrawn})
		case !c.integrated:
			delete(c.calls, r)
		}
	}
}
