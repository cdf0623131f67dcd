package sets

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// The steps of the model test.

func (m *model) change(t *rapid.T) {
	s := m.pset(t)
	op := rapid.SampledFrom([]bootstrap.PsetOp{bootstrap.PsetAdd, bootstrap.PsetSub, bootstrap.PsetGrow, bootstrap.PsetShrink, bootstrap.PsetReplace}).Draw(t, "operation")
	m.begin(t, m.caller(t, s), op, s, s)
}

// resize is a change that a user requests.
func (m *model) resize(t *rapid.T) {
	name := m.pset(t)
	op := rapid.SampledFrom([]bootstrap.PsetOp{bootstrap.PsetGrow, bootstrap.PsetShrink, bootstrap.PsetReplace}).Draw(t, "operation")
	s := name
	if now := m.becomes[name]; now != "" {
		s = now
	}
	m.begin(t, noRank, op, name, s)
}

// begin begins a change of a set, by a name of it.
func (m *model) begin(t *rapid.T, caller uint32, op bootstrap.PsetOp, name, s string) {
	add, sub := rapid.IntRange(0, 3).Draw(t, "add"), rapid.IntRange(0, 2).Draw(t, "sub")
	adds, subs := op != bootstrap.PsetSub && op != bootstrap.PsetShrink, op != bootstrap.PsetAdd && op != bootstrap.PsetGrow
	members := m.psets[s]
	c := &modelChange{pset: s, requester: caller, first: -1, calls: map[uint32]*call{}, group: slices.DeleteFunc(slices.Clone(members), func(r uint32) bool { return !m.isPresent(r) })}
	ended := slices.DeleteFunc(slices.Clone(members), m.isPresent)
	ok := len(members) > 0
	if subs {
		n := sub
		if n == 0 {
			n = len(ended)
		}
		ok = ok && n > 0 && n <= len(members)
		candidates := ended
		for _, r := range slices.Backward(members) {
			if m.isPresent(r) {
				candidates = append(candidates, r)
			}
		}
		c.leaving = candidates[:min(n, len(candidates))]
	} else {
		ok = ok && len(ended) == 0
	}
	for _, r := range members {
		ok = ok && (!m.isPresent(r) || m.changeOf(r) == nil)
	}
	for _, x := range m.changes {
		isDelta := slices.Contains(x.names, s) && s != x.main()
		ok = ok && x.pset != s && !isDelta
	}
	room := m.most
	for r := range m.alive {
		if m.isPresent(r) && !slices.Contains(c.leaving, r) {
			room--
		}
	}
	ok = ok && (!adds || add >= 1 && add <= room)
	c.request = m.do(caller, func(w *call) {
		b := wire.OperateBody{Op: uint8(op), Operands: []string{name}, Add: int64(add), Sub: int64(sub)}
		if caller == noRank {
			m.table.Resize(w, b)
		} else {
			m.table.Operate(w, caller, b)
		}
	})
	if !ok {
		if c.request.answers == 0 {
			t.Fatalf("%v of %q waits", op, s)
		}
		failure(t, c.request)
		return
	}
	m.changes = append(m.changes, c)
	if !adds {
		m.opened(t, c)
		return
	}
	order := m.orders[len(m.orders)-1]
	if c.request.answers > 0 || order.Kind != StartProcs || order.First != int(m.next) || order.N != add {
		t.Fatalf("%v of %q: %v", op, s, order)
	}
	c.first = order.First
	for range add {
		c.joining = append(c.joining, m.next)
		c.group = append(c.group, m.next)
		m.alive[m.next] = true
		m.next++
	}
}

// opened records the results of a change's request.
func (m *model) opened(t *rapid.T, c *modelChange) {
	switch {
	case c.request.answers > 0:
		c.names = answer[wire.NamesBody](t, c.request).Names
	case c.requester == noRank: // It waits for the integration.
		for x := range m.table.changes {
			if x.request == c.request {
				c.names = x.names()
			}
		}
	}
	c.delta, c.first = c.names[0], -1
	for _, name := range c.names {
		m.psets[name] = m.table.sets[name].ranks
	}
	if len(c.group) == 0 {
		m.finished(c)
	}
}

func (m *model) draw(t *rapid.T, want func(*modelChange) bool) *modelChange {
	var all []*modelChange
	for _, c := range m.changes {
		if want(c) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		t.Skip("no such change")
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, "change")]
}

func (m *model) started(t *rapid.T) {
	c := m.draw(t, func(c *modelChange) bool { return c.first >= 0 })
	if rapid.Bool().Draw(t, "can start") {
		m.table.Started(c.first, 0, "")
		m.opened(t, c)
		return
	}
	m.table.Started(c.first, 0, "no memory")
	f := failure(t, c.request)
	for _, r := range c.joining {
		delete(m.alive, r)
		m.left[r] = true
	}
	c.undone = &wire.FailureBody{Code: f.Code}
	m.remove(c)
}

func (m *model) integrate(t *rapid.T) {
	c := m.draw(t, func(c *modelChange) bool { return c.first < 0 && !c.integrated })
	r := rapid.SampledFrom(c.group).Draw(t, "member")
	if c.calls[r] != nil {
		t.Skip("it has entered")
	}
	delta := m.nameOf(t, c, r)
	c.calls[r] = m.do(r, func(w *call) { m.table.Integrate(w, r, wire.IntegrateBody{Delta: delta}) })
	if len(c.calls) < len(c.group) {
		if c.calls[r].answers > 0 {
			t.Fatalf("%s before all have entered", c.calls[r].show())
		}
		return
	}
	for r, call := range c.calls {
		if got := answer[wire.IntegratedBody](t, call); got.Terminate != slices.Contains(c.leaving, r) {
			t.Fatalf("%s", call.show())
		}
	}
	c.integrated = true
	for _, r := range c.leaving {
		if m.alive[r] {
			m.left[r] = true
		}
	}
	if !m.alive[c.requester] {
		m.finished(c)
	}
}

// nameOf draws a name of a delta of a change, for a member.
func (m *model) nameOf(t *rapid.T, c *modelChange, r uint32) string {
	names := []string{c.delta}
	if slices.Contains(c.leaving, r) || slices.Contains(c.joining, r) {
		names = append(names, bootstrap.PsetSelf)
	}
	if slices.Contains(c.joining, r) {
		names = append(names, bootstrap.PsetWorld)
	}
	return rapid.SampledFrom(names).Draw(t, "delta")
}

func (m *model) finish(t *rapid.T) {
	c := m.draw(t, func(c *modelChange) bool { return c.first < 0 })
	var members []uint32
	for _, r := range c.group {
		if m.alive[r] {
			members = append(members, r)
		}
	}
	if len(members) == 0 {
		t.Skip("no member is left")
	}
	r := rapid.SampledFrom(members).Draw(t, "member")
	call := m.do(r, func(w *call) { m.table.Finish(w, r, c.delta) })
	if !c.integrated {
		failure(t, call)
		return
	}
	answer[wire.Empty](t, call)
	m.finished(c)
}

func (m *model) die(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		t.Skip("not now")
	}
	var all []uint32
	for r, ok := range m.alive {
		if ok {
			all = append(all, r)
		}
	}
	slices.Sort(all)
	if len(all) < 2 {
		t.Skip("the last process runs")
	}
	r := rapid.SampledFrom(all).Draw(t, "victim")
	c := m.changeOf(r)
	var requested []*modelChange
	for _, x := range m.changes {
		if x.requester == r {
			requested = append(requested, x)
		}
	}
	m.end(r)
	delete(m.alive, r)
	for _, x := range requested {
		if x == c {
			c = nil
		}
		switch {
		case x.integrated:
			m.finished(x)
		case x.first >= 0: // The end of the connection withdraws the request.
			m.undo(t, x, wire.FailureBody{Code: wire.CodeWithdrawn})
		default:
			m.undo(t, x, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{r}})
		}
	}
	if c != nil && !c.integrated {
		m.undo(t, c, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{r}})
	}
}

func (m *model) deleteSet(t *rapid.T) {
	name := m.pset(t)
	s := m.table.sets[name]
	if s == nil || s.creator == launcher {
		t.Skip("a set of the launcher")
	}
	creator := uint32(s.creator)
	inUse := slices.ContainsFunc(m.changes, func(c *modelChange) bool {
		return slices.Contains(c.names, name) || m.table.sets[name].change != nil
	})
	caller := m.caller(t, name)
	call := m.do(caller, func(w *call) { m.table.Delete(w, caller, name) })
	allowed := caller == creator || !m.alive[creator] && (slices.Contains(s.ranks, caller) || !slices.ContainsFunc(s.ranks, m.isPresent))
	if inUse || s.userCount > 0 || !allowed {
		failure(t, call)
		return
	}
	answer[wire.Empty](t, call)
	delete(m.psets, name)
}

func (m *model) query(t *rapid.T) {
	name := m.pset(t)
	caller := m.caller(t, name)
	call := m.do(caller, func(w *call) { m.table.Query(w, caller, wire.LookupBody{Name: name}) })
	got := answer[wire.QueriedBody](t, call)
	var ended []uint32
	for _, r := range m.psets[name] {
		if !m.alive[r] && !m.left[r] {
			ended = append(ended, r)
		}
	}
	isChange := got.Found && bootstrap.ChangeType(got.Type) != bootstrap.ChangeFailed
	if got.Found != isChange && len(ended) == 0 || !got.Found && len(ended) > 0 {
		t.Fatalf("%q of %v, of which %v have ended: %s", name, m.psets[name], ended, call.show())
	}
	if got.Found && !isChange {
		if failed := m.table.sets[got.Delta]; !slices.Equal(failed.ranks, ended) {
			t.Fatalf("%q: %v have ended, and the set is %v", name, ended, failed.ranks)
		}
		m.psets[got.Delta] = ended
	}
	if c := m.changeOf(caller); isChange && c != nil && c.first >= 0 && slices.Contains(c.joining, caller) {
		return // The sets are visible to the joining processes only.
	}
	if isChange && !slices.ContainsFunc(m.changes, func(c *modelChange) bool { return slices.Contains(c.names, got.Delta) }) {
		t.Fatalf("%q: %s", name, call.show())
	}
}
