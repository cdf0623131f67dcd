package join

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// caller is a call that records its answer.
type caller struct {
	rank  uint32
	leave Withdraw
	got   []string

	answered func()
}

func (c *caller) SetWithdraw(w Withdraw) { c.leave = w }
func (c *caller) ClearWithdraw()         { c.leave = nil }
func (c *caller) Answer(k wire.Kind, body []byte) {
	if c.answered != nil {
		c.answered()
	}
	f, err := wire.Decode[wire.FailureBody](body)
	switch {
	case k == wire.Reply:
		c.got = append(c.got, "done")
	case err != nil:
		c.got = append(c.got, err.Error())
	default:
		c.got = append(c.got, fmt.Sprintf("code %d missing %v failed %v", f.Code, f.Missing, f.Failed))
	}
}

// table returns a table of 4 processes, some of which have ended.
func table(t *testing.T, ended ...uint32) (*Table[*caller], func(rank uint32, tag string, group ...uint32) *caller) {
	tab := &Table[*caller]{Namespace: "job", Size: 4, HasEnded: func(r uint32) bool { return slices.Contains(ended, r) }}
	return tab, func(rank uint32, tag string, group ...uint32) *caller {
		procs := bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}}.Procs(group)
		c := &caller{rank: rank}
		j, err := tab.Enter(c, rank, wire.Fence, wire.JoinBody{Tag: tag, Group: wire.EncodeBody(wire.MakeRuns(procs))})
		if err != nil {
			t.Fatal(err)
		}
		if j != nil {
			j.Complete(0)
		}
		return c
	}
}

func answers(t *testing.T, want string, cs ...*caller) {
	t.Helper()
	for _, c := range cs {
		if got := strings.Join(c.got, "; "); got != want {
			t.Errorf("rank %d got %q, want %q", c.rank, got, want)
		}
	}
}

func TestTable_SecondCallOfMember_EntersNextInstance(t *testing.T) {
	tab, enter := table(t)
	a, b := enter(0, "t", 0, 1), enter(0, "t", 0, 1)
	c := enter(1, "t", 0, 1)
	answers(t, "done", a, c)
	answers(t, "", b)
	d := enter(1, "t", 0, 1)
	answers(t, "done", b, d)
	if n := len(tab.joins); n != 0 || a.leave != nil {
		t.Errorf("%d instances are left", n)
	}
}

func TestTable_FirstDeadline_FailsAllWithSameNames(t *testing.T) {
	tab, enter := table(t)
	a, b := enter(0, "t", 0, 1, 2, 3), enter(2, "t", 0, 1, 2, 3)
	if f := b.leave(true); fmt.Sprint(f.Code, f.Missing) != "1 [1 3]" {
		t.Errorf("who has waited too long gets %+v", f)
	}
	answers(t, "code 1 missing [1 3] failed []", a)
	if len(tab.Absent()) != 0 {
		t.Errorf("waits for %v", tab.Absent())
	}
}

func TestTable_WithdrawnMember_IsMissing(t *testing.T) {
	tab, enter := table(t)
	a, b := enter(0, "t", 0, 1, 2), enter(1, "t", 0, 1, 2)
	if f := b.leave(false); fmt.Sprint(f.Code, f.Missing) != "2 [2]" {
		t.Errorf("who has withdrawn gets %+v", f)
	}
	if got := tab.Absent(); !slices.Equal(got, []uint32{1, 2}) {
		t.Errorf("waits for %v", got)
	}
	answers(t, "", a)
	c, d := enter(2, "t", 0, 1, 2), enter(1, "t", 0, 1, 2)
	answers(t, "done", a, c, d)
}

// Two calls of a process are in two instances, and the first one is withdrawn.
func TestTable_WithdrawnCall_IsReplacedByNext(t *testing.T) {
	tab, enter := table(t)
	early := enter(2, "t", 0, 1, 2)
	first, second, third := enter(0, "t", 0, 1, 2), enter(0, "t", 0, 1, 2), enter(0, "t", 0, 1, 2)
	if f := first.leave(false); fmt.Sprint(f.Code, f.Missing) != "2 [1]" {
		t.Errorf("who has withdrawn gets %+v", f)
	}
	other := enter(1, "t", 0, 1, 2)
	answers(t, "done", early, second, other)
	answers(t, "", third)
	if f := third.leave(true); fmt.Sprint(f.Code, f.Missing) != "1 [1 2]" {
		t.Errorf("who has waited too long gets %+v", f)
	}
	if n := len(tab.joins); n != 0 || second.leave != nil {
		t.Errorf("%d instances are left", n)
	}
}

// A member may close after its answer, so relays and the coordinator are last.
func TestJoin_Complete_AnswersCoordinatorLast(t *testing.T) {
	tab, enter := table(t)
	tab.IsAnsweredFirst = func(c *caller) bool { return c.rank == 2 } // through 1
	var order []uint32
	note := func(cs ...*caller) {
		for _, c := range cs {
			c.answered = func() { order = append(order, c.rank) }
		}
	}
	note(enter(0, "t", 0, 1, 2, 3), enter(1, "t", 0, 1, 2, 3), enter(2, "t", 0, 1, 2, 3))
	tab.HasEnded = func(r uint32) bool { return r == 3 }
	tab.ProcEnded(3)
	if !slices.Equal(order, []uint32{2, 1, 0}) {
		t.Errorf("a failure went to %v", order)
	}
}

func TestTable_ProcEnded_FailsItsInstancesOnly(t *testing.T) {
	tab, enter := table(t, 3)
	a, b := enter(0, "t", 0, 1, 2), enter(0, "t", 0, 1)
	c := enter(0, "t", 3, 0)
	answers(t, "code 1 missing [] failed [3]", c)
	tab.HasEnded = func(r uint32) bool { return r >= 2 }
	tab.ProcEnded(2)
	answers(t, "code 1 missing [] failed [2]", a)
	answers(t, "", b)
}

func TestTable_InvalidGroup_IsRefused(t *testing.T) {
	_, enter := table(t)
	answers(t, "code 3 missing [] failed []", enter(0, "t"), enter(0, "t", 1), enter(0, "t", 0, 9), enter(0, "t", 0, 1, 0))
}

func TestValueStore_Set_AnswersAllWaiters(t *testing.T) {
	var b ValueStore[*caller]
	one, two, three := &caller{rank: 1}, &caller{rank: 2}, &caller{rank: 3}
	for _, c := range []*caller{one, two, three} {
		b.AwaitOwner("k", c, 0)
	}
	if f := two.leave(true); f.Code != wire.CodeMissing || !slices.Equal(f.Missing, []uint32{0}) {
		t.Errorf("%+v", f)
	}
	b.Set("k", EncodeValue([]byte("v")))
	answers(t, "done", one, three)
	answers(t, "", two)
	b.AwaitOwner("other", two, 0)
	b.Fail(wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{0}})
	answers(t, "code 1 missing [] failed [0]", two)
	if !b.Delete("k") || b.Delete("k") {
		t.Error("a value is taken away once")
	}
}

// A member names large groups, each by a few bytes, in calls that no other process enters.
func TestEnter_LargeGroups_TakeTheMemoryOfTheCalls(t *testing.T) {
	tab := &Table[*caller]{Namespace: "job", Size: wire.MaxElements, HasEnded: func(uint32) bool { return false }}
	world := wire.EncodeBody(wire.Runs{{Namespace: "job", Stride: 1, Count: wire.MaxElements}})
	calls := make([]caller, 100)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range calls {
		if j, err := tab.Enter(&calls[i], 3, wire.Construct, wire.JoinBody{Tag: fmt.Sprint(i), Group: world}); j != nil || err != nil || calls[i].leave == nil {
			t.Fatalf("%v, %v: the call does not wait", j, err)
		}
	}
	runtime.ReadMemStats(&after)
	if bytes := (after.TotalAlloc - before.TotalAlloc) / uint64(len(calls)); bytes > 8<<10 {
		t.Errorf("%d bytes for each call", bytes)
	}
}

// A caller that cancels has no timeout error.
func TestFailureError_WithdrawnCall_HasCause(t *testing.T) {
	id := bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}}
	f := wire.FailureBody{Code: wire.CodeWithdrawn, Missing: []uint32{2}}
	cause := errors.New("a cause")
	for _, c := range []struct {
		wait    error
		timeout bool
	}{{cause, false}, {context.DeadlineExceeded, true}} {
		err, ok := FailureError(id, "fence", "t", f, c.wait)
		if !ok || !errors.Is(err, c.wait) || errors.Is(err, framework.ErrTimeout) != c.timeout || !strings.Contains(err.Error(), "rank 2") {
			t.Errorf("%v: %v", c.wait, err)
		}
	}
	f = wire.FailureBody{Code: wire.CodeWithdrawn, Text: "the user withdrew the change"}
	if err, ok := FailureError(id, "integrate", "d", f, nil); !ok || !errors.Is(err, framework.ErrCanceled) || !strings.HasSuffix(err.Error(), ": the user withdrew the change") {
		t.Errorf("%v, %t", err, ok)
	}
	if err, ok := FailureError(id, "fence", "t", wire.FailureBody{Code: 99, Text: "what"}, nil); ok || !strings.Contains(err.Error(), "99: what") {
		t.Errorf("%v, %t", err, ok)
	}
}

// A world of more members than a frame has room for has levels as its remedy.
func TestComplete_FrameIsTooLong_ErrorNamesRootsFrom(t *testing.T) {
	const size = 257 // Payloads of 64 KiB.
	payload := make([]byte, 64<<10)
	id := bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}, Size: size}
	tab := &Table[*countingWaiter]{Namespace: "job", Size: size, HasEnded: func(uint32) bool { return false }}
	var calls []*countingWaiter
	for rank := range uint32(size) {
		calls = append(calls, &countingWaiter{})
		group := wire.EncodeBody(wire.Runs{{Namespace: "job", First: 0, Stride: 1, Count: size}})
		j, err := tab.Enter(calls[rank], rank, wire.Construct, wire.JoinBody{Tag: "world", Group: group, Payload: payload})
		if err != nil {
			t.Fatal(err)
		}
		if j != nil {
			j.Complete(1)
		}
	}
	for rank, c := range calls {
		err, ok := FailureError(id, "group construct", "world", c.failure, nil)
		if !ok || !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "257 members") || !strings.Contains(err.Error(), "set bootstrap.roots_from below 257") {
			t.Fatalf("rank %d: error %v", rank, err)
		}
	}
}

// countingWaiter records its failure.
type countingWaiter struct{ failure wire.FailureBody }

func (c *countingWaiter) SetWithdraw(Withdraw) {}
func (c *countingWaiter) ClearWithdraw()       {}
func (c *countingWaiter) Answer(k wire.Kind, body []byte) {
	if k == wire.Failure {
		c.failure, _ = wire.Decode[wire.FailureBody](body)
	}
}
