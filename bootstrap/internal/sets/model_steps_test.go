package sets

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// The steps of the model test.

func (m *model) change(t *rapid.T) {
	caller, s := m.caller(t), m.pset(t)
	op := rapid.SampledFrom([]bootstrap.PsetOp{bootstrap.PsetAdd, bootstrap.PsetSub, bootstrap.PsetGrow, bootstrap.PsetShrink, bootstrap.PsetReplace}).Draw(t, "operation")
	add, sub := rapid.IntRange(0, 3).Draw(t, "add"), rapid.IntRange(0, 2).Draw(t, "sub")
	adds, subs := op != bootstrap.PsetSub && op != bootstrap.PsetShrink, op != bootstrap.PsetAdd && op != bootstrap.PsetGrow
	members := m.psets[s]
	c := &modelChange{requester: caller, first: -1, calls: map[uint32]*call{}, group: slices.DeleteFunc(slices.Clone(members), func(r uint32) bool { return !m.isPresent(r) })}
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
	room := m.most
	for r := range m.alive {
		if m.isPresent(r) && !slices.Contains(c.leaving, r) {
			room--
		}
	}
	ok = ok && (!adds || add >= 1 && add <= room)
	c.request = m.do(caller, func(w *call) {
		m.table.Operate(w, caller, wire.OperateBody{Op: uint8(op), Operands: []string{s}, Add: int64(add), Sub: int64(sub)})
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
	c.names = answer[wire.NamesBody](t, c.request).Names
	c.delta, c.first = c.names[0], -1
	for _, name := range c.names {
		m.psets[name] = m.table.sets[name].ranks
	}
	if len(c.group) == 0 {
		m.remove(c)
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
	failure(t, c.request)
	for _, r := range c.joining {
		delete(m.alive, r)
		m.left[r] = true
	}
	m.remove(c)
}

func (m *model) integrate(t *rapid.T) {
	c := m.draw(t, func(c *modelChange) bool { return c.first < 0 && !c.integrated })
	r := rapid.SampledFrom(c.group).Draw(t, "member")
	if c.calls[r] != nil {
		t.Skip("it has entered")
	}
	c.calls[r] = m.do(r, func(w *call) { m.table.Integrate(w, r, wire.IntegrateBody{Delta: c.delta}) })
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
		m.remove(c)
	}
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
	m.remove(c)
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
		t.Skip("the last one lives")
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
			m.remove(x)
		case x.first >= 0: // While processes are started.
			x.calls = nil
			m.undo(t, x)
		default:
			delete(x.calls, r)
			m.undo(t, x, r)
		}
	}
	if c != nil && !c.integrated {
		delete(c.calls, r)
		m.undo(t, c, r)
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
	caller := m.caller(t)
	call := m.do(caller, func(w *call) { m.table.Delete(w, caller, name) })
	allowed := caller == creator || !m.alive[creator] && (slices.Contains(s.ranks, caller) || !slices.ContainsFunc(s.ranks, m.isPresent))
	if inUse || s.users > 0 || !allowed {
		failure(t, call)
		return
	}
	answer[wire.Empty](t, call)
	delete(m.psets, name)
}

func (m *model) query(t *rapid.T) {
	caller, name := m.caller(t), m.pset(t)
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
	if isChange && !slices.ContainsFunc(m.changes, func(c *modelChange) bool { return slices.Contains(c.names, got.Delta) }) {
		t.Fatalf("%q: %s", name, call.show())
	}
}
