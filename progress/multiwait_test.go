package progress

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// place is the engine of a completion in a test, which is a rank's or a process's.
type place struct {
	e *Engine
	c Completion
}

func (p *place) complete() {
	p.e.Lock()
	if !p.c.Done() {
		p.e.Complete(&p.c)
	}
	p.e.Unlock()
}

// multiWait waits for all places, or for any one.
func multiWait(ctx context.Context, places []*place, all bool) error {
	m := NewMultiWait()
	defer m.Remove()
	for _, p := range places {
		p.e.Lock()
		err := m.Add(p.e, &p.c)
		p.e.Unlock()
		if err != nil {
			return err
		}
	}
	if all {
		return m.WaitAll(ctx)
	}
	return m.WaitAny(ctx)
}

// untilAdded waits until waits are registered for the completions.
func untilAdded(places []*place) {
	for _, p := range places {
		for added := false; !added; runtime.Gosched() {
			p.e.Lock()
			added = p.c.waiter != nil || p.c.isDone
			p.e.Unlock()
		}
	}
}

// TestMultiWait_AnyOrder_ReturnsWhenEnoughAreDone completes random completions of random
// engines, some before the wait, and in random order.
func TestMultiWait_AnyOrder_ReturnsWhenEnoughAreDone(t *testing.T) {
	processes := []*Engine{newEngine(t, impatient), newEngine(t, Options{})}
	var engines []*Engine
	for _, p := range processes {
		engines = append(engines, p, newMailbox(t, p).e, newMailbox(t, p).e)
	}
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(r, "completions")
		all := rapid.Bool().Draw(r, "all")
		places := make([]*place, n)
		for i := range places {
			places[i] = &place{e: rapid.SampledFrom(engines).Draw(r, "engine")}
		}
		before := rapid.IntRange(0, n).Draw(r, "before")
		order := rapid.Permutation(places).Draw(r, "order")
		for _, p := range order[:before] {
			p.complete()
		}
		waiting := places
		if rapid.Bool().Draw(r, "twice") {
			waiting = append(waiting[:n:n], places[0])
		}
		done := make(chan error, 1)
		go func() { done <- multiWait(context.Background(), waiting, all) }()
		last := n
		if !all {
			last = max(before, 1)
		}
		if before < last {
			untilAdded(places)
		}
		for i := before; i < last; i++ {
			if len(done) > 0 {
				r.Fatalf("the wait ended after %d of %d completions, all: %v", i, n, all)
			}
			order[i].complete()
		}
		if err := <-done; err != nil {
			r.Fatal(err)
		}
		for _, p := range places {
			p.e.Lock()
			if p.c.waiter != nil || p.e.pollToken.isSet() {
				r.Errorf("the wait has left a waiter or a poll token")
			}
			p.e.Unlock()
		}
	})
	for _, p := range processes {
		if n := parkedWaits(p); n != 0 {
			t.Errorf("%d waits counted as parked", n)
		}
	}
}

// The engines complete at the same time,
// without a common lock.
func TestMultiWait_FiredByAllEnginesAtOnce_EndsOnce(t *testing.T) {
	for _, all := range []bool{false, true} {
		process := newEngine(t, impatient)
		engines := []*Engine{process, newMailbox(t, process).e, newMailbox(t, process).e, newEngine(t, impatient)}
		for i := range 1000 {
			places := make([]*place, len(engines))
			for k, e := range engines {
				places[k] = &place{e: e}
			}
			done := make(chan error, 1)
			go func() { done <- multiWait(t.Context(), places, all) }()
			if i%2 == 0 {
				untilAdded(places)
			}
			var wg sync.WaitGroup
			for _, p := range places {
				wg.Go(p.complete)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			wg.Wait()
		}
	}
}

// Each wait polls what the other one needs.
func TestMultiWait_TwoWaitsInOppositeOrder_Finish(t *testing.T) {
	for _, procs := range []int{1, 2} {
		withProcessors(t, procs, func(t *testing.T) {
			process := newEngine(t, Options{})
			a, b := newMailbox(t, process), newMailbox(t, process)
			const rounds = 500
			run := func(own, other *mailbox) error {
				for range rounds {
					var cs [2]Completion // one never completes
					own.e.Lock()
					own.start(&cs[0])
					own.e.Unlock()
					other.send()
					if err := multiWait2(t.Context(), own, &cs[0], other, &cs[1]); err != nil {
						return err
					}
					own.e.Lock()
					own.available--
					own.e.Release()
				}
				return nil
			}
			done := make(chan error, 2)
			go func() { done <- run(a, b) }()
			go func() { done <- run(b, a) }()
			for range 2 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func multiWait2(ctx context.Context, own *mailbox, c *Completion, other *mailbox, never *Completion) error {
	m := NewMultiWait()
	defer m.Remove()
	for _, x := range []struct {
		e *Engine
		c *Completion
	}{{own.e, c}, {other.e, never}} {
		x.e.Lock()
		err := m.Add(x.e, x.c)
		x.e.Unlock()
		if err != nil {
			return err
		}
	}
	return m.WaitAny(ctx)
}

// Nothing announces the events of these sources.
func TestMultiWait_PollsAllEngines(t *testing.T) {
	engines := []*Engine{newEngine(t, Options{Spin: time.Hour}), newEngine(t, Options{Spin: time.Hour})}
	var places []*place
	for _, e := range engines {
		p := &place{e: e}
		places = append(places, p)
		s := &teller{then: func(n int) {
			if n == 1000 {
				e.Complete(&p.c)
			}
		}}
		e.Add(s)
		defer e.Remove(s)
	}
	if err := multiWait(t.Context(), places, true); err != nil {
		t.Error(err)
	}
}

func TestMultiWait_ContextEnds_ReturnsItsCause(t *testing.T) {
	cause := errors.New("enough")
	for _, opt := range []Options{impatient, {Spin: time.Hour}} {
		process := newEngine(t, opt)
		places := []*place{{e: process}, {e: newMailbox(t, process).e}}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- multiWait(ctx, places, false) }()
		untilAdded(places)
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) {
			t.Errorf("%v, want the cause", err)
		}
		for _, p := range places {
			p.e.Lock()
			if p.c.waiter != nil || p.c.Waited() || p.e.pollToken.isSet() {
				t.Error("the wait is still registered")
			}
			p.e.Unlock()
		}
		if parkedWaits(process) != 0 {
			t.Error("the wait counts as parked")
		}
	}
}

func TestMultiWait_AnotherGoroutineWaits_ReturnsErrBusy(t *testing.T) {
	process := newEngine(t, impatient)
	places := []*place{{e: process}, {e: newMailbox(t, process).e}}
	done := make(chan error, 1)
	go func() { done <- multiWait(t.Context(), places, false) }()
	untilAdded(places)
	for _, p := range places {
		if err := multiWait(t.Context(), []*place{p}, false); !errors.Is(err, ErrBusy) {
			t.Errorf("MultiWait: %v", err)
		}
	}
	untilParked(process, 1) // the one wait, counted once
	for _, p := range places {
		p.e.Lock()
		if err := p.e.Wait(t.Context(), &p.c, nil); !errors.Is(err, ErrBusy) {
			t.Errorf("Wait: %v", err)
		}
		p.e.Unlock()
	}
	places[1].complete()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
