package sets

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

func operate(j *job, rank uint32, b wire.OperateBody) *call {
	return j.do(rank, func(c *call) { j.table.Operate(c, rank, b) })
}

// refused fails unless a call is answered by a failure with code and text.
func refused(t *testing.T, c *call, code wire.Code, text string) {
	t.Helper()
	f, err := wire.Decode[wire.FailureBody](c.body)
	if c.kind != wire.Failure || err != nil || f.Code != code || !strings.Contains(f.Text, text) {
		t.Errorf("%.200s: want code %d with %q", c.show(), code, text)
	}
}

func TestTable_SetOverTheLimit_IsRefused(t *testing.T) {
	j := newJob(Options{Size: 1, Most: 2})
	union := wire.OperateBody{Op: uint8(bootstrap.PsetUnion), Operands: []string{bootstrap.PsetWorld}}
	for range MaxSets {
		if c := operate(j, 0, union); c.kind != wire.Reply {
			t.Fatal(c.show())
		}
	}
	refused(t, operate(j, 0, union), wire.CodeLimit, "the limit is 65535")
	refused(t, operate(j, 0, wire.OperateBody{Op: uint8(bootstrap.PsetGrow), Operands: union.Operands, Add: 1}), wire.CodeLimit, "65535")
	if len(j.orders) > 0 || j.table.presentCount != 1 {
		t.Errorf("orders %v", j.orders)
	}
	c := j.do(0, func(c *call) { j.table.Pset(c, 0, "unknown") })
	refused(t, c, wire.CodePset, "more")
	if j.do(0, func(c *call) { j.table.Psets(c, 0) }); len(j.calls[len(j.calls)-1].body) > wire.MaxFrame/2 {
		t.Error("the list of the sets needs more than a message")
	}
}

func TestTable_NamesOverTheLimit_AreRefused(t *testing.T) {
	j := newJob(Options{Size: 1})
	for i := range maxNameBytes/bootstrap.MaxName + 1 {
		name := fmt.Sprintf("%0*d", bootstrap.MaxName, i)
		c := operate(j, 0, wire.OperateBody{Op: uint8(bootstrap.PsetUnion), Operands: []string{bootstrap.PsetWorld}, Name: name})
		if c.kind == wire.Failure {
			refused(t, c, wire.CodeLimit, "the limit is 8388608")
			return
		}
	}
	t.Error("no limit")
}

func TestTable_MembersOverTheLimit_AreRefused(t *testing.T) {
	j := newJob(Options{Size: MaxRanks, Most: MaxRanks})
	union := wire.OperateBody{Op: uint8(bootstrap.PsetUnion), Operands: []string{bootstrap.PsetWorld}}
	for range maxMembers / MaxRanks {
		if c := operate(j, 0, union); c.kind != wire.Reply {
			t.Fatal(c.show())
		}
	}
	refused(t, operate(j, 0, union), wire.CodeLimit, "the limit is 16777216")
	refused(t, operate(j, 0, wire.OperateBody{Op: uint8(bootstrap.PsetSub), Operands: union.Operands, Sub: 1}), wire.CodeLimit, "DeletePset")
	j.end(1)
	refused(t, j.do(0, func(c *call) { j.table.Query(c, 0, wire.LookupBody{Name: bootstrap.PsetWorld}) }), wire.CodeLimit, "16777216")
	j.do(0, func(c *call) { j.table.Delete(c, 0, "ferry://set/1") })
	if c := operate(j, 0, union); c.kind != wire.Reply {
		t.Error(c.show())
	}
}

func TestTable_NearestName_IsFoundAmongManySets(t *testing.T) {
	j := newJob(Options{Size: 1})
	union := wire.OperateBody{Op: uint8(bootstrap.PsetUnion), Operands: []string{bootstrap.PsetWorld}}
	for range 1000 {
		operate(j, 0, union)
	}
	union.Name = "Ocean"
	operate(j, 0, union)
	refused(t, j.do(0, func(c *call) { j.table.Pset(c, 0, "oceam") }), wire.CodePset, "the nearest is Ocean;")
}

func TestTable_RankOverTheLimit_IsRefused(t *testing.T) {
	j := newJob(Options{Size: 2, Most: MaxRanks})
	grow := wire.OperateBody{Op: uint8(bootstrap.PsetGrow), Operands: []string{bootstrap.PsetWorld}, Add: MaxRanks}
	refused(t, operate(j, 0, grow), wire.CodeLimit, "1048574 fit")
	grow.Partial = true
	operate(j, 0, grow)
	if got := j.orders[0]; got.N != MaxRanks-2 {
		t.Fatalf("%v", got)
	}
	j.table.Started(2, 5, "no memory") // They would need new ranks.
	refused(t, j.calls[1], wire.CodeLimit, "1048574 requested, 0 fit")
	grow.Partial, grow.Add = false, 1
	refused(t, operate(j, 0, grow), wire.CodeLimit, "0 fit: the job has assigned 1048576 of 1048576 ranks")
}

func TestTable_DeletedSets_AreForgottenInOrder(t *testing.T) {
	j := newJob(Options{Size: 1})
	for i := range maxTombstones + 1 {
		name := fmt.Sprint("s", i)
		operate(j, 0, wire.OperateBody{Op: uint8(bootstrap.PsetUnion), Operands: []string{bootstrap.PsetWorld}, Name: name})
		j.do(0, func(c *call) { j.table.Delete(c, 0, name) })
	}
	refused(t, j.do(0, func(c *call) { j.table.Pset(c, 0, "s0") }), wire.CodePset, "the nearest")
	refused(t, j.do(0, func(c *call) { j.table.Pset(c, 0, "s1") }), wire.CodePset, "rank 0 deleted it")
	if err := j.table.check(); err != nil {
		t.Error(err)
	}
}

func TestTable_CallsOfAnEndedProcess_AreRefused(t *testing.T) {
	j := newJob(Options{Size: 2})
	j.end(1)
	j.end(1)
	for _, f := range []func(*call){
		func(c *call) { j.table.Integrate(c, 1, wire.IntegrateBody{Delta: bootstrap.PsetSelf}) },
		func(c *call) { j.table.Finish(c, 1, "x") },
		func(c *call) { j.table.Query(c, 1, wire.LookupBody{Name: bootstrap.PsetWorld}) },
		func(c *call) { j.table.SetData(c, 1, wire.DataBody{Pset: bootstrap.PsetSelf}) },
		func(c *call) { j.table.GetData(c, 1, wire.KeyBody{Pset: bootstrap.PsetSelf}) },
	} {
		refused(t, j.do(1, f), wire.CodeRank, "rank 1 has ended")
	}
}

// After any calls the table is consistent, and each call is answered once.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 7, 1, 2, 1, 0, 2, 0, 0, 3, 1, 0, 0, 3, 0, 0, 0, 3, 2, 0, 0, 4, 2, 0, 0})
	f.Add([]byte{0, 6, 0, 1, 2, 3, 0, 0, 0, 3, 1, 2, 0, 5, 1, 0, 0, 2, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		j := newJob(Options{Size: 2, Most: 5})
		names := []string{bootstrap.PsetWorld, bootstrap.PsetSelf, "unknown", "mpix://SHARED"}
		next := func() byte {
			if len(b) == 0 {
				return 0
			}
			x := b[0]
			b = b[1:]
			return x
		}
		for steps := 0; len(b) > 0 && steps < 200; steps++ {
			names = names[:4]
			for i := range 30 {
				for _, kind := range []string{"delta", "set", "failed"} {
					if name := fmt.Sprintf("ferry://%s/%d", kind, i); j.table.sets[name] != nil {
						names = append(names, name)
					}
				}
			}
			op, rank, name := next()%14, uint32(next()%8), names[int(next())%len(names)]
			j.step(op, rank, name, names[int(next())%len(names)], next)
			if err := j.table.check(); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range j.calls {
			j.cancel(c, c.number%2 == 0)
			if c.answers != 1 && !c.isLost || c.answers > 1 {
				t.Fatalf("#%d of rank %d has %d answers", c.number, c.rank, c.answers)
			}
		}
		if err := j.table.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// step makes one call or reports one event.
func (j *job) step(op byte, rank uint32, name, other string, next func() byte) {
	t := j.table
	switch op {
	case 1:
		if int(rank) < len(j.orders) {
			reasons := []string{"", "no memory"}
			t.Started(j.orders[rank].First, int(next()%3), reasons[next()%2])
		}
	case 2:
		j.end(rank)
	case 3:
		j.do(rank, func(c *call) {
			t.Integrate(c, rank, wire.IntegrateBody{Delta: name, Provide: other[:int(next())%2*len(other)]})
		})
	case 4:
		j.do(rank, func(c *call) { t.Finish(c, rank, name) })
	case 5:
		j.do(rank, func(c *call) { t.Delete(c, rank, name) })
	case 6:
		j.do(rank, func(c *call) { t.Query(c, rank, wire.LookupBody{Name: name, Wait: true}) })
	case 7:
		j.do(rank, func(c *call) { t.Query(c, rank, wire.LookupBody{Name: name}) })
	case 8:
		j.do(rank, func(c *call) { t.SetData(c, rank, wire.DataBody{Pset: name, Key: "k"}) })
	case 9:
		j.do(rank, func(c *call) { t.GetData(c, rank, wire.KeyBody{Pset: name, Key: "k"}) })
	case 10:
		if int(rank) < len(j.calls) {
			j.cancel(j.calls[len(j.calls)-1-int(rank)], next()%2 == 0)
		}
	case 11:
		j.do(rank, func(c *call) { t.Pset(c, rank, name) })
	case 12:
		b := wire.OperateBody{Op: next() % 11, Operands: []string{name}, Add: int64(next()%4) - 1, Sub: int64(next()%4) - 1, Partial: next()%2 == 0}
		j.do(noRank, func(c *call) { t.Resize(c, b) })
	default:
		kind := next() % 11
		b := wire.OperateBody{Op: kind, Operands: []string{name}, Add: int64(next()%4) - 1, Sub: int64(next()%4) - 1, Partial: next()%2 == 0}
		if kind < 4 {
			b.Operands = append(b.Operands, other)
		}
		for range next() % 3 {
			b.Sizes = append(b.Sizes, int64(next()%4)-1)
		}
		j.do(rank, func(c *call) { t.Operate(c, rank, b) })
	}
}
