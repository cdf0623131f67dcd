package calls

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// begin begins a call in the table.
func begin(t *testing.T, tab *Table[*Call]) *Call {
	t.Helper()
	c := new(Call)
	if err := tab.Begin(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func pending(tab *Table[*Call]) int {
	return len(tab.Select(func(*Call) bool { return true }))
}

func failure(code wire.Code) Answer {
	return Answer{Msg: wire.Message{Kind: wire.Failure, Body: wire.EncodeBody(wire.FailureBody{Code: code})}}
}

// unexpected fails the test, because the call is answered before it ends.
func unexpected(t *testing.T) func(bool) {
	return func(bool) { t.Error("the call is withdrawn") }
}

func TestWait_AnswersInOtherOrder_EachCallHasItsOwn(t *testing.T) {
	tab := New[*Call]()
	one, two := begin(t, tab), begin(t, tab)
	if one.ID == 0 || two.ID <= one.ID {
		t.Fatalf("ids %d and %d", one.ID, two.ID)
	}
	for _, c := range []*Call{two, one} {
		if done, ok := tab.Complete(c.ID, Answer{Msg: wire.Message{Kind: wire.Reply, ID: c.ID}}); !ok || done != c {
			t.Errorf("id %d completes %v, %t", c.ID, done, ok)
		}
		if _, ok := tab.Complete(c.ID, Answer{Err: errors.New("another one")}); ok {
			t.Errorf("id %d is completed twice", c.ID)
		}
	}
	for _, c := range []*Call{one, two} {
		if a, waitErr := tab.Wait(t.Context(), c, time.Hour, 0, unexpected(t)); a.Err != nil || a.Msg.ID != c.ID || waitErr != nil {
			t.Errorf("call %d: %+v, %v", c.ID, a, waitErr)
		}
	}
	if _, ok := tab.Complete(99, Answer{}); ok {
		t.Error("a call is completed that was never made")
	}
}

func TestBegin_ContextHasEnded_IsItsCause(t *testing.T) {
	tab, cause := New[*Call](), errors.New("a cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := tab.Begin(ctx, new(Call)); !errors.Is(err, cause) || pending(tab) > 0 {
		t.Errorf("error %v, %d calls", err, pending(tab))
	}
}

// The answer to the withdrawal is that of the call.
func TestWait_CallIsWithdrawn_AnswerCounts(t *testing.T) {
	cause := errors.New("a cause")
	for _, isExpired := range []bool{false, true} {
		tab := New[*Call]()
		c, limit := begin(t, tab), time.Duration(0)
		ctx, cancel := context.WithCancelCause(t.Context())
		want := cause
		if isExpired {
			limit, want = time.Millisecond, framework.ErrTimeout
		} else {
			cancel(cause)
		}
		a, waitErr := tab.Wait(ctx, c, limit, time.Hour, func(expired bool) {
			if expired != isExpired {
				t.Errorf("expired is %t", expired)
			}
			go tab.Complete(c.ID, Answer{Msg: wire.Message{Kind: wire.Reply}})
		})
		if a.Err != nil || a.Msg.Kind != wire.Reply || !errors.Is(waitErr, want) || c.IsAbandoned() || pending(tab) > 0 {
			t.Errorf("expired %t: %+v, %v", isExpired, a, waitErr)
		}
		cancel(nil)
	}
}

// A withdrawal that completes the call needs no grace.
func TestWait_WithdrawalCompletesCall_IsNotAbandoned(t *testing.T) {
	for range 100 { // Both ends of the grace are ready.
		tab := New[*Call]()
		c := begin(t, tab)
		a, _ := tab.Wait(t.Context(), c, time.Nanosecond, 0, func(bool) { tab.Complete(c.ID, failure(wire.CodeWithdrawn)) })
		if a.Err != nil || a.Msg.Kind != wire.Failure || c.IsAbandoned() {
			t.Fatalf("%+v", a)
		}
	}
}

func TestWait_NoAnswerToWithdrawal_CallIsAbandoned(t *testing.T) {
	tab := New[*Call]()
	c := begin(t, tab)
	a, waitErr := tab.Wait(t.Context(), c, time.Millisecond, time.Millisecond, func(bool) {})
	if !errors.Is(a.Err, framework.ErrTimeout) || !strings.Contains(a.Err.Error(), "none within 1ms") || !errors.Is(waitErr, framework.ErrTimeout) {
		t.Errorf("%v, %v", a.Err, waitErr)
	}
	if found, ok := tab.Find(c.ID); !ok || found != c || !c.IsAbandoned() {
		t.Errorf("abandoned: %t, in the table: %t", c.IsAbandoned(), ok)
	}
	if late, ok := tab.Complete(c.ID, Answer{}); !ok || !late.IsAbandoned() || pending(tab) > 0 {
		t.Errorf("the late answer is for %v, %t", late, ok)
	}
}

func TestFail_SeveralErrors_FirstCountsUntilClosed(t *testing.T) {
	tab, first := New[*Call](), errors.New("first")
	var observed Answer
	callback := &Call{OnAnswer: func(a Answer) { observed = a }}
	if err := tab.Begin(t.Context(), callback); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 10 {
		c := begin(t, tab)
		wg.Go(func() {
			if a, waitErr := tab.Wait(t.Context(), c, 0, 0, unexpected(t)); !errors.Is(a.Err, first) || waitErr != nil {
				t.Errorf("%+v, %v", a, waitErr)
			}
		})
	}
	if err := tab.Err(); err != nil {
		t.Errorf("before: %v", err)
	}
	if !tab.Fail(first) || tab.Fail(errors.New("second")) {
		t.Error("another error than the first one counts")
	}
	wg.Wait()
	if err := tab.Begin(t.Context(), new(Call)); !errors.Is(err, first) || !errors.Is(tab.Err(), first) || !errors.Is(observed.Err, first) || pending(tab) > 0 {
		t.Errorf("afterwards: %v; a callback: %v", err, observed.Err)
	}
	<-tab.Done()
	if closed := fmt.Errorf("client: %w", framework.ErrClosed); tab.Fail(closed) || tab.Err() != closed || tab.Fail(first) || tab.Err() != closed {
		t.Errorf("after Close: %v", tab.Err())
	}
}

// OnAnswer runs without the lock of the table, and may begin a call.
func TestOnAnswer_BeginsCall_DoesNotBlock(t *testing.T) {
	tab := New[*Call]()
	next := new(Call)
	c := &Call{OnAnswer: func(Answer) {
		if err := tab.Begin(t.Context(), next); err != nil {
			t.Error(err)
		}
	}}
	if err := tab.Begin(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	tab.Complete(c.ID, Answer{})
	if got := tab.Select(func(*Call) bool { return true }); len(got) != 1 || got[0] != next {
		t.Errorf("calls %v", got)
	}
}

// target is a call with state of a component.
type target struct {
	Call
	rank int
}

func TestSelect_SomeMatch_AreInOrderOfBegin(t *testing.T) {
	tab := New[*target]()
	for i := range 100 {
		if err := tab.Begin(t.Context(), &target{rank: i}); err != nil {
			t.Fatal(err)
		}
	}
	odd := tab.Select(func(one *target) bool { return one.rank%2 == 1 })
	if len(odd) != 50 {
		t.Errorf("%d calls", len(odd))
	}
	for i, one := range odd {
		if one.rank != 2*i+1 {
			t.Errorf("call %d is for rank %d", i, one.rank)
		}
	}
}

func TestReply_Answers_AreErrorsOfTheCall(t *testing.T) {
	id := bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}}
	malformed := errors.New("malformed")
	protocolError := func(op string, err error) error { return fmt.Errorf("%w: %s: %w", malformed, op, err) }
	cause, lost := errors.New("a cause"), errors.New("lost")
	reply := Answer{Msg: wire.Message{Kind: wire.Reply, ID: 7}}
	for _, c := range []struct {
		name    string
		answer  Answer
		waitErr error
		want    []error
	}{
		{"a reply", reply, nil, nil},
		{"a reply to the withdrawal", reply, cause, nil},
		{"a failure", failure(wire.CodeGroup), nil, []error{framework.ErrGroup}},
		{"a withdrawal", failure(wire.CodeWithdrawn), cause, []error{cause}},
		{"a lost connection", Answer{Err: lost}, nil, []error{lost}},
		{"a lost connection after the end of the wait", Answer{Err: lost}, cause, []error{lost, cause}},
		{"an unknown failure", failure(99), nil, []error{malformed}},
		{"a malformed failure", Answer{Msg: wire.Message{Kind: wire.Failure, Body: []byte{0xff}}}, nil, []error{malformed}},
	} {
		m, err := c.answer.Reply(id, "fence", "tag", c.waitErr, protocolError)
		if (err == nil) != (len(c.want) == 0) || err == nil && m.ID != 7 {
			t.Errorf("%s: %v, %v", c.name, m, err)
		}
		for _, want := range c.want {
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "fence") {
				t.Errorf("%s: %v, want %v", c.name, err, want)
			}
		}
	}
}

// Answers, withdrawals and the end of the table race, and each call ends once.
func TestTable_ConcurrentCallsAndFail_NothingIsLeft(t *testing.T) {
	tab, closed := New[*Call](), errors.New("closed")
	var answered, failed, callbacks, begun atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				c := new(Call)
				isRelayed := rand.IntN(4) == 0
				if isRelayed {
					c.OnAnswer = func(Answer) { callbacks.Add(1) }
				}
				if err := tab.Begin(t.Context(), c); err != nil {
					if !errors.Is(err, closed) {
						t.Error(err)
					}
					return
				}
				for range rand.IntN(3) { // Up to two answers; the first one counts.
					wg.Go(func() { tab.Complete(c.ID, Answer{}) })
				}
				if begun.Add(1); isRelayed {
					continue
				}
				ctx, cancel := context.WithCancel(t.Context())
				wg.Go(cancel)
				limit := time.Duration(rand.IntN(100)) * time.Microsecond
				switch a, _ := tab.Wait(ctx, c, limit, time.Microsecond, func(bool) {
					if rand.IntN(2) == 0 {
						tab.Complete(c.ID, failure(wire.CodeWithdrawn))
					}
				}); {
				case errors.Is(a.Err, closed):
					failed.Add(1)
				case c.IsAbandoned() != errors.Is(a.Err, framework.ErrTimeout):
					t.Errorf("abandoned %t: %v", c.IsAbandoned(), a.Err)
				default:
					answered.Add(1)
				}
			}
		})
	}
	for begun.Load() < 5000 {
		time.Sleep(time.Millisecond)
	}
	tab.Fail(closed)
	wg.Wait()
	if total := answered.Load() + failed.Load() + callbacks.Load(); total != begun.Load() || pending(tab) > 0 {
		t.Errorf("%d of %d calls have ended, %d are left", total, begun.Load(), pending(tab))
	}
}
