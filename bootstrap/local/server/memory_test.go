package server

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/sets"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// elastic is a job without connections, which process 0 changes.
type elastic struct {
	t      *testing.T
	s      *Server
	orders *Queue[Order]
	main   string
}

// do makes a call of a process.
func (e *elastic) do(f func(*sets.Table[request], request)) *userCall {
	u := &userCall{answer: make(chan wire.Message, 1)}
	e.s.mu.Lock()
	f(e.s.sets, request{user: u})
	e.s.mu.Unlock()
	return u
}

// await returns the reply to a call.
func await[B any](e *elastic, u *userCall) B {
	e.t.Helper()
	m := <-u.answer
	b, err := wire.Decode[B](m.Body)
	if m.Kind != wire.Reply || err != nil {
		f, _ := wire.Decode[wire.FailureBody](m.Body)
		e.t.Fatalf("%+v, %v", f, err)
	}
	return b
}

// operate begins a change of the main set.
func (e *elastic) operate(op bootstrap.PsetOp, add, sub int64) []string {
	e.t.Helper()
	u := e.do(func(t *sets.Table[request], r request) {
		t.Operate(r, 0, wire.OperateBody{Op: uint8(op), Operands: []string{e.main}, Add: add, Sub: sub})
	})
	for _, o := range e.orders.Take() {
		if o.Kind == StartProcs {
			e.s.put(e.s.procs[uint32(o.First)], wire.ValuedBody{Name: "card", Value: make([]byte, 100)})
			e.s.Started(o.First, 0, nil)
		}
	}
	return await[wire.NamesBody](e, u).Names
}

// integrate integrates a change in all members, and finishes it.
func (e *elastic) integrate(delta string, members ...int) {
	e.t.Helper()
	var calls []*userCall
	for _, r := range members {
		calls = append(calls, e.do(func(t *sets.Table[request], w request) {
			t.Integrate(w, uint32(r), wire.IntegrateBody{Delta: delta})
		}))
	}
	for _, u := range calls {
		await[wire.IntegratedBody](e, u)
	}
	await[wire.Empty](e, e.do(func(t *sets.Table[request], w request) { t.Finish(w, 0, delta) }))
}

// round adds a process, and ends it in one of several ways.
func (e *elastic) round(i int) {
	op := bootstrap.PsetGrow
	if i%4 == 3 {
		op = bootstrap.PsetAdd
	}
	before := e.main
	names := e.operate(op, 1, 0)
	added := e.s.sets.Next() - 1
	if i%4 != 0 {
		e.integrate(names[0], 0, added)
	}
	switch i % 4 {
	case 0: // It dies before the integration.
	case 1: // It leaves.
		e.main = names[1]
		less := e.operate(bootstrap.PsetShrink, 0, 1)
		e.integrate(less[0], 0, added)
		e.main, names = less[1], append(names, less[0])
	case 2: // It dies and is removed.
		e.main = names[1]
		e.s.ProcExited(added, "signal: killed")
		less := e.operate(bootstrap.PsetShrink, 0, 0)
		e.integrate(less[0], 0)
		e.main, names = less[1], append(names, less[0])
	}
	e.s.ProcExited(added, []string{"", "signal: killed"}[i/4%2])
	if i%4 == 0 {
		return // Sets of an undone change are deleted.
	}
	if e.main != before && before != bootstrap.PsetWorld {
		names = append(names, before)
	}
	for _, name := range names {
		await[wire.Empty](e, e.do(func(t *sets.Table[request], r request) { t.Delete(r, 0, name) }))
	}
}

// records counts the records of the server.
func (e *elastic) records() string {
	s := e.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d processes, %d deaths, %d ends, %d departures, %d orders", len(s.procs), len(s.failures), len(s.endedRanks), len(s.eventLog.unsentLeft), len(s.starting))
}

// The server keeps as many ended processes as the limit of the job.
func TestServer_ThousandsOfChanges_EndedProcessesAreDropped(t *testing.T) {
	e := &elastic{t: t, orders: NewQueue[Order](), main: bootstrap.PsetWorld}
	s, err := New(Options{Size: 1, MaxProcs: 3, Order: e.orders.Add})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e.s = s
	const rounds = 5000
	for i := range rounds {
		if e.round(i); i%4 == 2 && i < 4 {
			if got, want := e.records(), "1 processes, 0 deaths, 0 ends, 0 departures, 0 orders"; got != want {
				t.Fatalf("all added processes were removed: %s, want %s", got, want)
			}
		}
	}
	if got, want := e.records(), "4 processes, 2 deaths, 3 ends, 0 departures, 0 orders"; got != want {
		t.Errorf("after %d rounds: %s, want %s", rounds, got, want)
	}
	for rank := uint32(1); int(rank) < s.sets.Next(); rank++ {
		get := make(chan wire.Message, 1)
		s.get(request{user: &userCall{answer: get}}, wire.GetBody{Rank: rank, Key: "card"})
		m := <-get
		if isKept := slices.Contains(s.endedRanks, rank); (m.Kind == wire.Reply) != isKept {
			t.Fatalf("the value of rank %d: %v, want %t", rank, m.Kind, isKept)
		}
		if f, err := wire.Decode[wire.FailureBody](m.Body); m.Kind == wire.Failure && (err != nil || f.Code != wire.CodeMissing || !slices.Equal(f.Failed, []uint32{rank})) {
			t.Fatalf("the value of rank %d: %+v, %v", rank, f, err)
		}
	}
}
