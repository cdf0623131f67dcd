package sets

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// elastic is a job whose process 0 grows it by one process and removes that, again and again.
type elastic struct {
	*job
	t    *testing.T
	main string
	// Latest set of failed processes.
	dead string
}

// must fails the test unless a call has a reply.
func (e *elastic) must(rank uint32, f func(*call)) *call {
	e.t.Helper()
	c := e.do(rank, f)
	if c.kind != wire.Reply {
		e.t.Fatal(c.show())
	}
	return c
}

func (e *elastic) operate(op bootstrap.PsetOp, b wire.OperateBody) []string {
	e.t.Helper()
	b.Op, b.Operands = uint8(op), []string{e.main}
	c := operate(e.job, 0, b)
	if len(e.orders) > 0 && e.orders[0].Kind == StartProcs {
		e.table.Started(e.orders[0].First, 0, "")
	}
	names, err := wire.Decode[wire.NamesBody](c.body)
	if c.kind != wire.Reply || err != nil {
		e.t.Fatal(c.show())
	}
	return names.Names
}

// integrate integrates a change in all members, and finishes it.
func (e *elastic) integrate(delta string, members ...uint32) {
	e.t.Helper()
	for _, r := range members {
		e.do(r, func(c *call) { e.table.Integrate(c, r, wire.IntegrateBody{Delta: delta}) })
	}
	e.must(0, func(c *call) { e.table.Finish(c, 0, delta) })
}

// round makes one change of a kind, and removes its processes and sets.
func (e *elastic) round(kind int) {
	e.calls, e.answered, e.orders = nil, nil, nil
	added := e.table.nextRank
	switch kind {
	case 0: // The process leaves.
		names := e.operate(bootstrap.PsetGrow, wire.OperateBody{Add: 1})
		e.integrate(names[0], 0, added)
		e.main = names[1]
		e.must(added, func(c *call) { e.table.Query(c, added, wire.LookupBody{Name: "pair"}) })
		names = e.operate(bootstrap.PsetShrink, wire.OperateBody{Sub: 1})
		e.must(added, func(c *call) { e.table.Query(c, added, wire.LookupBody{Name: bootstrap.PsetSelf}) })
		e.integrate(names[0], 0, added)
		e.main = names[1]
	case 1: // It dies before the integration.
		e.operate(bootstrap.PsetGrow, wire.OperateBody{Add: 1})
	case 2: // It dies after the integration.
		names := e.operate(bootstrap.PsetGrow, wire.OperateBody{Add: 1})
		e.integrate(names[0], 0, added)
		e.main = names[1]
		e.end(added)
		e.must(0, func(c *call) { e.table.Query(c, 0, wire.LookupBody{Name: e.main}) })
		names = e.operate(bootstrap.PsetShrink, wire.OperateBody{})
		e.integrate(names[0], 0)
		e.main = names[1]
	case 3: // It can't be started.
		operate(e.job, 0, wire.OperateBody{Op: uint8(bootstrap.PsetGrow), Operands: []string{e.main}, Add: 1})
		e.table.Started(int(added), 0, "no memory")
	case 4: // The user withdraws the request.
		e.cancel(e.do(noRank, func(c *call) {
			e.table.Resize(c, wire.OperateBody{Op: uint8(bootstrap.PsetGrow), Operands: []string{bootstrap.PsetWorld}, Add: 1})
		}), false)
	}
	e.end(added)
	found, err := wire.Decode[wire.QueriedBody](e.must(0, func(c *call) { e.table.Query(c, 0, wire.LookupBody{Name: e.dead}) }).body)
	if err != nil || !found.Found {
		e.t.Fatalf("%q: %+v, %v", e.dead, found, err)
	}
	e.dead = found.Delta
	for _, s := range slices.Clone(e.table.setsByAge) {
		if !slices.Contains([]string{"pair", "dying", e.main, e.dead}, s.name) {
			e.must(0, func(c *call) { e.table.Delete(c, 0, s.name) })
		}
	}
}

// heap returns the size of the reachable memory.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestTable_ThousandsOfChanges_MemoryDoesNotGrow(t *testing.T) {
	j := newJob(Options{Size: 2, Most: 3})
	e := &elastic{job: j, t: t, main: "root", dead: "dying"}
	for name, of := range map[string]string{"root": bootstrap.PsetSelf, "pair": bootstrap.PsetWorld, "dying": bootstrap.PsetWorld} {
		e.must(0, func(c *call) {
			j.table.Operate(c, 0, wire.OperateBody{Op: uint8(bootstrap.PsetUnion), Operands: []string{of}, Name: name})
		})
	}
	e.end(1) // A failure that each added process is given.
	const rounds = 5000
	for i := range rounds / 2 {
		e.round(i % 5)
	}
	before, size := describe(j.table), heap()
	for i := range rounds / 2 {
		e.round(i % 5)
	}
	if after := describe(j.table); after != before {
		t.Errorf("records after %d rounds: %s, and after %d: %s", rounds/2, before, rounds, after)
	}
	if more := int64(heap() - size); more > 64<<10 {
		t.Errorf("%d further rounds need %d bytes", rounds/2, more)
	}
	if err := j.table.check(); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(e)
}

// describe counts the records of a table.
func describe(t *Table[*call]) string {
	queries := len(t.world.failedQueries)
	for _, s := range t.setsByAge {
		queries += len(s.failedQueries)
	}
	return fmt.Sprintf("%d processes, %d sets, %d changes, %d orders, %d sets with waiting queries, %d deleted sets, %d processes were given failures",
		len(t.procs), len(t.sets), len(t.changes), len(t.startingByRank), len(t.queriedSets), len(t.tombstones.byKey), queries)
}
