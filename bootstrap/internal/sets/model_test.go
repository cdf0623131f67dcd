package sets

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// check returns the first inconsistency of a table with itself.
func (t *Table[W]) check() error {
	present := 0
	groups := map[*change[W]]int{}
	for r, p := range t.procs {
		if t.isPresent(r) {
			present++
		}
		if p.change != nil {
			groups[p.change]++
			if _, ok := t.changes[p.change]; !ok {
				return fmt.Errorf("rank %d is in the group of a change that has ended", r)
			}
		}
	}
	if present != t.presentCount {
		return fmt.Errorf("%d processes are present, not %d", present, t.presentCount)
	}
	users := map[*set[W]]int{}
	for c := range t.changes {
		if c.state < stateIntegrated && groups[c] != c.groupSize {
			return fmt.Errorf("the group of %v has %d processes, not %d", c.names(), groups[c], c.groupSize)
		}
		if c.state > stateIntegrated {
			return fmt.Errorf("%v is in state %d", c.names(), c.state)
		}
		if c.state == stateOpen && len(c.integrateCalls) >= c.groupSize {
			return fmt.Errorf("all of %v have entered, and wait", c.names())
		}
		for _, s := range append(c.created(), c.associated) {
			users[s]++
		}
	}
	nameBytes, members := 0, 0
	for key, s := range t.sets {
		nameBytes += len(s.name)
		members += len(s.ranks)
		if !slices.Contains(t.setsByAge, s) {
			return fmt.Errorf("%q is not in the order of the sets", s.name)
		}
		if bootstrap.PsetKey(s.name) != key || s.userCount != users[s] || (s.change != nil) != (s.userCount > 0) && users[s] == 0 {
			return fmt.Errorf("%q is under %q with %d users, not %d", s.name, key, s.userCount, users[s])
		}
		if (s.hiddenBy != nil) && s.hiddenBy.state != stateStarting {
			return fmt.Errorf("%q is hidden", s.name)
		}
	}
	if nameBytes != t.nameBytes {
		return fmt.Errorf("names have %d bytes, not %d", nameBytes, t.nameBytes)
	}
	isOlder := func(a, b *set[W]) int { return a.serial - b.serial }
	if members != t.memberCount || len(t.setsByAge) != len(t.sets) || !slices.IsSortedFunc(t.setsByAge, isOlder) {
		return fmt.Errorf("%d sets have %d members, not %d and %d", len(t.sets), members, len(t.setsByAge), t.memberCount)
	}
	for s := range t.queriedSets {
		if len(s.queries) == 0 {
			return fmt.Errorf("%q has no queries", s.name)
		}
		for _, q := range s.queries {
			if c := t.visibleChange(s, q.rank); c != nil {
				if _, known := c.seenBy[q.rank]; !known {
					return fmt.Errorf("rank %d waits for a change of %q, and %v is one", q.rank, s.name, c.names())
				}
			} else if ended := t.endedMembers(s); len(ended) > s.failedQueries[q.rank] {
				return fmt.Errorf("rank %d waits for a change of %q, and %v have ended", q.rank, s.name, ended)
			}
		}
	}
	for r, p := range t.procs {
		if p.lastChange != nil && (p.lastChange.state <= stateIntegrated || p.lastChange.associated != nil) {
			return fmt.Errorf("the latest ended change of rank %d is in state %d", r, p.lastChange.state)
		}
	}
	if len(t.tombstones.keys) > maxTombstones || len(t.tombstones.byKey) != len(t.tombstones.keys) {
		return fmt.Errorf("%d tombstones of %d names", len(t.tombstones.byKey), len(t.tombstones.keys))
	}
	return nil
}

// model is a simple model of a job. Sets are lists, and a change lists its group.
type model struct {
	*job
	most int
	// Present, or left and running.
	alive   map[uint32]bool
	left    map[uint32]bool
	psets   map[string][]uint32
	next    uint32
	changes []*modelChange
	// Latest ended one of each process.
	last map[uint32]*modelChange
	// Sets that finished changes have made of others.
	becomes map[string]string
	// Members that a finished change has removed.
	removed map[uint32]bool
	// Those of them that had ended.
	dropped []uint32
	// The table's reports of them.
	reports []uint32
}

type modelChange struct {
	pset string
	// noRank for a request of the user.
	requester uint32
	leaving   []uint32
	joining   []uint32
	// Processes that have to integrate.
	group []uint32
	// One of its names.
	delta string
	names []string
	// Of the order; -1: none is awaited.
	first      int
	request    *call
	calls      map[uint32]*call // Of Integrate.
	integrated bool
	// Without the text.
	undone *wire.FailureBody
}

func (m *model) isPresent(r uint32) bool { return m.alive[r] && !m.left[r] }

func (m *model) changeOf(r uint32) *modelChange {
	for _, c := range m.changes {
		if m.alive[r] && slices.Contains(c.group, r) {
			return c
		}
	}
	return nil
}

func (m *model) remove(c *modelChange) {
	m.changes = slices.DeleteFunc(m.changes, func(x *modelChange) bool { return x == c })
	for _, r := range c.group {
		m.last[r] = c
	}
}

// finished ends an integrated change, and records the set that it has made of its own.
func (m *model) finished(c *modelChange) {
	m.remove(c)
	for _, r := range c.leaving {
		if m.removed[r] = true; !m.alive[r] {
			m.dropped = append(m.dropped, r)
		}
	}
	if len(c.names) == 0 || c.main() == "" {
		return
	}
	for name, now := range m.becomes {
		if now == c.pset {
			m.becomes[name] = c.main()
		}
	}
	m.becomes[c.pset] = c.main()
}

// main returns the new main set, or "".
func (c *modelChange) main() string {
	deltas := 0
	for _, d := range [][]uint32{c.leaving, c.joining} {
		deltas += min(len(d), 1)
	}
	if len(c.names) > deltas {
		return c.names[deltas]
	}
	return ""
}

// undo takes away all that a change has created, and expects the failure in its calls.
func (m *model) undo(t *rapid.T, c *modelChange, want wire.FailureBody) {
	for _, r := range c.joining {
		m.left[r] = true
	}
	for _, name := range c.names {
		delete(m.psets, name)
	}
	c.undone = &want
	m.remove(c)
	for _, call := range c.calls {
		if call.isLost {
			continue
		}
		sameFailure(t, call, want)
	}
	if c.requester == noRank && c.request.answers != 1 {
		t.Fatalf("%s: %d answers", c.request.show(), c.request.answers)
	}
}

// sameFailure fails unless a call has a failure, whose text may be any.
func sameFailure(t *rapid.T, c *call, want wire.FailureBody) {
	f := failure(t, c)
	if c.answers != 1 || f.Code != want.Code || !slices.Equal(f.Failed, want.Failed) || !slices.Equal(f.Missing, want.Missing) {
		t.Fatalf("%s (%d answers): want %s", c.show(), c.answers, failureText(want))
	}
}

func failure(t *rapid.T, c *call) wire.FailureBody {
	f, err := wire.Decode[wire.FailureBody](c.body)
	if c.answers > 0 && (c.kind != wire.Failure || err != nil) {
		t.Fatalf("%s: want a failure", c.show())
	}
	return f
}

func answer[B any](t *rapid.T, c *call) B {
	b, err := wire.Decode[B](c.body)
	if c.kind != wire.Reply || err != nil {
		t.Fatalf("%s (%d answers): %v", c.show(), c.answers, err)
	}
	return b
}

func TestTable_RandomChanges_AgreeWithAPlainModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		m := &model{most: size + rapid.IntRange(0, 4).Draw(t, "room"), alive: map[uint32]bool{}, left: map[uint32]bool{},
			psets: map[string][]uint32{}, next: uint32(size), last: map[uint32]*modelChange{}, becomes: map[string]string{}, removed: map[uint32]bool{}}
		m.job = newJob(Options{Size: size, Most: m.most, Removed: func(r uint32) { m.reports = append(m.reports, r) }})
		for r := range uint32(size) {
			m.alive[r] = true
			m.psets["mpi://WORLD"] = append(m.psets["mpi://WORLD"], r)
		}
		t.Repeat(map[string]func(*rapid.T){
			"derive":    m.derive,
			"change":    m.change,
			"started":   m.started,
			"integrate": m.integrate,
			"finish":    m.finish,
			"die":       m.die,
			"delete":    m.deleteSet,
			"query":     m.query,
			"watch":     m.watch,
			"withdraw":  m.withdraw,
			"late":      m.late,
			"reopen":    m.reopen,
			"resize":    m.resize,
			"":          m.verify,
		})
	})
}

// caller draws a process that can name some sets. The model's WORLD is that of the initial
// processes.
func (m *model) caller(t *rapid.T, psets ...string) uint32 {
	var all []uint32
	for _, r := range slices.Sorted(maps.Keys(m.alive)) {
		if m.alive[r] && (!slices.Contains(psets, bootstrap.PsetWorld) || slices.Contains(m.psets[bootstrap.PsetWorld], r)) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		t.Skip("no process is left")
	}
	return rapid.SampledFrom(all).Draw(t, "caller")
}

func (m *model) pset(t *rapid.T) string {
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m.psets))).Draw(t, "set")
}

func (m *model) derive(t *rapid.T) {
	a, b := m.pset(t), m.pset(t)
	caller := m.caller(t, a, b)
	op := rapid.SampledFrom([]bootstrap.PsetOp{bootstrap.PsetUnion, bootstrap.PsetDifference, bootstrap.PsetIntersection, bootstrap.PsetSplit}).Draw(t, "operation")
	body := wire.OperateBody{Op: uint8(op), Operands: []string{a, b}}
	var want [][]uint32
	switch in := func(r uint32) bool { return slices.Contains(m.psets[b], r) }; op {
	case bootstrap.PsetUnion:
		want = append(want, append(slices.Clone(m.psets[a]), slices.DeleteFunc(slices.Clone(m.psets[b]), func(r uint32) bool { return slices.Contains(m.psets[a], r) })...))
	case bootstrap.PsetDifference:
		want = append(want, slices.DeleteFunc(slices.Clone(m.psets[a]), in))
	case bootstrap.PsetIntersection:
		want = append(want, slices.DeleteFunc(slices.Clone(m.psets[a]), func(r uint32) bool { return !in(r) }))
	default:
		n := rapid.IntRange(0, len(m.psets[a])).Draw(t, "first part")
		body.Operands, body.Sizes = body.Operands[:1], []int64{int64(n), int64(len(m.psets[a]) - n)}
		want = append(want, m.psets[a][:n], m.psets[a][n:])
	}
	c := m.do(caller, func(c *call) { m.table.Operate(c, caller, body) })
	if len(m.psets[a]) == 0 || op != bootstrap.PsetSplit && len(m.psets[b]) == 0 {
		failure(t, c)
		return
	}
	for i, name := range answer[wire.NamesBody](t, c).Names {
		m.psets[name] = want[i]
	}
}

func (m *model) verify(t *rapid.T) {
	if err := m.table.check(); err != nil {
		t.Fatal(err)
	}
	for name, ranks := range m.psets {
		if s := m.table.sets[name]; name != bootstrap.PsetWorld && (s == nil || !slices.Equal(s.ranks, ranks)) {
			t.Fatalf("%q is not %v", name, ranks)
		}
	}
	if len(m.table.changes) != len(m.changes) {
		t.Fatalf("%d changes, not %d", len(m.table.changes), len(m.changes))
	}
	waiting := 0
	for _, c := range m.calls {
		if c.answers > 1 || c.answers > 0 && c.withdraw != nil {
			t.Fatalf("%s: %d answers", c.show(), c.answers)
		}
		if c.withdraw != nil && !c.isQuery {
			waiting++
		}
	}
	for _, c := range m.changes {
		if c.first >= 0 || c.requester == noRank {
			waiting--
		}
		if !c.integrated {
			waiting -= len(c.calls)
		}
	}
	if waiting != 0 {
		t.Fatalf("%d calls more wait than should", waiting)
	}
	for r := range m.next {
		if m.alive[r] && m.table.procs[r] == nil || m.isPresent(r) != m.table.isPresent(r) {
			t.Fatalf("rank %d: present is %t", r, m.table.isPresent(r))
		}
		c := m.changeOf(r)
		joins := c != nil && !c.integrated && slices.Contains(c.joining, r)
		if want := joins || m.left[r] || m.removed[r]; m.table.Excused(r) != want {
			t.Fatalf("rank %d: excused is not %t", r, want)
		}
	}
	slices.Sort(m.dropped)
	slices.Sort(m.reports)
	if !slices.Equal(m.dropped, m.reports) {
		t.Fatalf("the table reports the removal of %v, not of %v", m.reports, m.dropped)
	}
}
