package progress

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

// Numbers of the polls that complete a wait. They are the last one before the first yield, without and with extended spinning, and one after it.
const (
	withoutExtension = pollsBeforeYield
	withExtension    = pollsBeforeYield + extendedPolls
	afterExtension   = withExtension + 2
)

// yieldsUntil waits for a completion by a poll of number at, and returns the number of yields. Lock held.
func yieldsUntil(t *testing.T, e *Engine, at int) uint32 {
	t.Helper()
	var c Completion
	before := e.yieldCount
	if err := e.Wait(t.Context(), &c, &laterSource{e: e, c: &c, at: at}); err != nil {
		t.Fatal(err)
	}
	e.idleYields = 0 // Each yield counts as one with a switch to another thread.
	return e.yieldCount - before
}

// newStreams returns the locked engine of a process with two streams.
func newStreams(t *testing.T, opt Options) *Engine {
	t.Helper()
	opt.Yield, opt.IsStream = time.Hour, true
	e := New(opt)
	e.SetStreams(2)
	e.Lock()
	e.followPollers(e.pollerCount.Load())
	t.Cleanup(func() {
		e.Unlock()
		e.Close()
	})
	return e
}

// failExtensions ends extended spinning. Lock held.
func failExtensions(t *testing.T, e *Engine) {
	t.Helper()
	for n := range failuresToStop {
		if yields := yieldsUntil(t, e, afterExtension); yields == 0 || yields > afterExtension-withExtension {
			t.Fatalf("%d yields of the wait after %d failures; want 1 or 2, after %d polls", yields, n, withExtension)
		}
		if yieldsUntil(t, e, withoutExtension) > 0 { // No success of extended spinning.
			t.Fatalf("a wait of %d polls has yielded", withoutExtension)
		}
	}
}

func TestWait_OversubscribedByStreams_SpinsLongerWhileThatSuffices(t *testing.T) {
	e := newStreams(t, Options{NodeProcs: 2, Processors: 2})
	for range 2 {
		for n := range 2 * trialPeriod {
			if yieldsUntil(t, e, withExtension) > 0 {
				t.Fatalf("wait %d has yielded, although spinning sufficed before", n)
			}
		}
		failExtensions(t, e)
		for n := range trialPeriod - 1 {
			if yieldsUntil(t, e, withExtension) == 0 {
				t.Fatalf("wait %d after the failures has not yielded", n)
			}
		}
	}
}

// The other ranks of an oversubscribed node need the processor. A program may also have set progress.spin to 0.
func TestWait_OversubscribedWithoutStreams_YieldsEarly(t *testing.T) {
	for name, opt := range map[string]Options{
		"more processes than processors": {NodeProcs: 3, Processors: 2},
		"no spin":                        {NodeProcs: 2, Processors: 2, Spin: time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStreams(t, opt)
			for n := range 2 * trialPeriod {
				if yieldsUntil(t, e, withExtension) == 0 {
					t.Fatalf("wait %d has not yielded", n)
				}
			}
		})
	}
}

func TestWait_SpinOfSeveralClocks_IsNotExtended(t *testing.T) {
	e := newEngine(t, Options{Spin: 2 * OversubscribedSpin, Yield: time.Hour, NodeProcs: 1, Processors: 2})
	e.Lock()
	defer e.Unlock()
	e.yieldCount = 1
	if yieldsUntil(t, e, 1<<12) == 0 || e.extendedSpin != (extendedSpin{}) {
		t.Errorf("%d yields, %+v; want yields and no extension", e.yieldCount-1, e.extendedSpin)
	}
}

func TestWait_ContextEndsWhileSpinningLonger_ReturnsItsCause(t *testing.T) {
	e := newStreams(t, Options{NodeProcs: 2, Processors: 2})
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	var c Completion
	err := e.Wait(ctx, &c, &teller{then: func(n int) {
		if n == withExtension/2 {
			cancel(cause)
		}
	}})
	if !errors.Is(err, cause) || c.Done() || c.Waited() {
		t.Errorf("%v, done %t, waited %t; want %v and a pending completion", err, c.Done(), c.Waited(), cause)
	}
	if e.yieldCount > yieldsPerClock {
		t.Errorf("%d yields after the end of the context, want at most %d", e.yieldCount, yieldsPerClock)
	}
}

// waitedSource completes a completion at the poll of number at of a wait.
type waitedSource struct{ laterSource }

func (s *waitedSource) Poll() int {
	if !s.e.pollToken.isSet() { // The progress goroutine polls.
		return 0
	}
	return s.laterSource.Poll()
}

func TestMultiWait_OversubscribedByStreams_SpinsLongerWhileThatSuffices(t *testing.T) {
	var engines []*Engine
	for range 2 {
		e := newEngine(t, Options{Yield: time.Hour, NodeProcs: 2, Processors: 2, IsStream: true})
		e.SetStreams(2)
		engines = append(engines, e)
	}
	first := engines[0]
	yields := func(at int) bool {
		var c, pending Completion
		s := &waitedSource{laterSource{e: first, c: &c, at: at}}
		first.Add(s)
		defer first.Remove(s)
		m := NewMultiWait()
		for i, c := range []*Completion{&c, &pending} {
			e := engines[i]
			e.Lock()
			err := m.Add(e, c)
			e.Unlock()
			if err != nil {
				t.Fatal(err)
			}
		}
		defer m.Remove()
		first.Lock()
		before := first.yieldCount
		first.Unlock()
		if err := m.WaitAny(t.Context()); err != nil {
			t.Fatal(err)
		}
		first.Lock()
		defer first.Unlock()
		return first.yieldCount > before
	}
	const suffices, fails = extendedPolls / 2, extendedPolls
	for n := range 2 * trialPeriod {
		if yields(suffices) {
			t.Fatalf("wait %d has yielded, although spinning sufficed before", n)
		}
	}
	for range failuresToStop {
		if !yields(fails) {
			t.Fatalf("a wait of %d polls has not yielded", fails)
		}
	}
	if !yields(suffices) {
		t.Error("a wait after failures has not yielded")
	}
}

func TestMultiWait_NotOversubscribedByStreams_DoesNotSpinLonger(t *testing.T) {
	for name, c := range map[string]struct {
		opt    Options
		ranked bool
	}{
		"spin of several clocks": {Options{Spin: 2 * OversubscribedSpin, NodeProcs: 1, Processors: 2}, false},
		"rank":                   {Options{Spin: time.Nanosecond, NodeProcs: 1, Processors: 2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.opt.Yield = time.Hour
			process := newEngine(t, c.opt)
			p := &place{e: process}
			first := &place{e: newEngine(t, c.opt)}
			if c.ranked {
				first.e = newMailbox(t, process).e
			}
			s := &waitedSource{laterSource{e: process, c: &p.c, at: 1 << 12}}
			process.Add(s)
			defer process.Remove(s)
			if err := multiWait(t.Context(), []*place{first, p}, false); err != nil {
				t.Fatal(err)
			}
			for _, e := range []*Engine{first.e, process} {
				e.Lock()
				if e.extendedSpin != (extendedSpin{}) {
					t.Errorf("%+v, want no extension", e.extendedSpin)
				}
				e.Unlock()
			}
		})
	}
}

// A wait over several engines counts a yield, while another wait has the poll token of the first engine and yields.
func TestMultiWait_FirstEngineYields_CountsYieldsWithoutRace(t *testing.T) {
	opt := Options{Yield: time.Hour, NodeProcs: 3, Processors: 2}
	first, second := newEngine(t, opt), newEngine(t, opt)
	ctx, cancel := context.WithCancel(t.Context())
	var pending Completion
	ended := make(chan error)
	go func() {
		first.Lock()
		defer first.Unlock()
		ended <- first.Wait(ctx, &pending, nil)
	}()
	for isPolling := false; !isPolling; runtime.Gosched() {
		first.Lock()
		isPolling = first.pollToken.isSet()
		first.Unlock()
	}
	for range 100 {
		var completions [2]Completion
		m := NewMultiWait()
		for i, e := range []*Engine{first, second} {
			e.Lock()
			e.idleYields = 0 // As after a switch to another thread.
			err := m.Add(e, &completions[i])
			e.Unlock()
			if err != nil {
				t.Error(err)
			}
		}
		short, end := context.WithTimeout(t.Context(), 100*time.Microsecond)
		if err := m.WaitAny(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		end()
		m.Remove()
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
