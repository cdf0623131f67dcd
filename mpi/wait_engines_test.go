package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// operationStub is an operation that a test completes.
type operationStub struct {
	pml.Request
	released int
}

func (o *operationStub) Cancel() {
	o.Request.Status.Canceled = true
	o.Finish()
}
func (o *operationStub) Release()               { o.released++ }
func (o *operationStub) First() progress.Source { return nil }

// idle is a source without events.
type idle struct{}

func (idle) Poll() int { return 0 }

func startStub(e *progress.Engine) *operationStub {
	o := &operationStub{}
	o.Init(e, o)
	e.Lock()
	o.Start()
	e.Unlock()
	return o
}

func (o *operationStub) request() Request { return Request{&o.Request, o.Generation()} }

var errStub = errors.New("the operation has failed")

// complete completes the operation with the tag i, and with an error if i is divisible by 4.
func (o *operationStub) complete(i int) {
	o.Engine().Lock()
	o.Request.Status.Tag = i
	if i%4 == 0 {
		o.Request.Status.Err = errStub
	}
	o.Finish()
	o.Engine().Release()
}

// engineSet returns open engines of two processes, and of two ranks of each.
func engineSet(t *testing.T) (all []*progress.Engine) {
	for range 2 {
		process := progress.New(progress.Options{Spin: time.Microsecond, Yield: time.Microsecond})
		t.Cleanup(process.Close)
		all = append(all, process)
		for range 2 {
			rank := process.NewRank(idle{}, new(progress.PollWord))
			t.Cleanup(rank.Close)
			all = append(all, rank)
		}
	}
	return all
}

// A taken maps the index of a request to the Status with which it was taken.
type taken map[int]Status

func (all taken) add(i int, s Status) error {
	if _, twice := all[i]; twice {
		return fmt.Errorf("request %d was taken twice", i)
	}
	all[i] = s
	return nil
}

// collectors take all requests by one kind of call.
var collectors = map[string]func(context.Context, []Request) (taken, error){
	"WaitAll": func(ctx context.Context, reqs []Request) (taken, error) {
		st, all := make([]Status, len(reqs)), taken{}
		active := slices.Clone(reqs)
		err := WaitAll(ctx, reqs, st)
		if err != nil && !errors.Is(err, errStub) && !errors.Is(err, ErrClosed) {
			return nil, err
		}
		for i, s := range st {
			if active[i].pmlRequest != nil {
				all[i] = s
			}
		}
		return all, nil
	},
	"WaitAny": func(ctx context.Context, reqs []Request) (taken, error) {
		all := taken{}
		for {
			i, s, err := WaitAny(ctx, reqs)
			if i == Undefined {
				return all, err
			}
			if err := all.add(i, s); err != nil {
				return nil, err
			}
		}
	},
	"WaitSome": func(ctx context.Context, reqs []Request) (taken, error) {
		all, done, st := taken{}, make([]int, len(reqs)), make([]Status, len(reqs))
		for {
			n, err := WaitSome(ctx, reqs, done, st)
			if n == Undefined || n == 0 {
				return all, err
			}
			for k, i := range done[:n] {
				if err := all.add(i, st[k]); err != nil {
					return nil, err
				}
			}
		}
	},
	"TestAny": func(ctx context.Context, reqs []Request) (taken, error) {
		all := taken{}
		for ctx.Err() == nil {
			i, s, done, _ := TestAny(reqs)
			switch {
			case !done:
			case i == Undefined:
				return all, nil
			default:
				if err := all.add(i, s); err != nil {
					return nil, err
				}
			}
		}
		return nil, context.Cause(ctx)
	},
	"TestAll": func(ctx context.Context, reqs []Request) (taken, error) {
		active, st := slices.Clone(reqs), make([]Status, len(reqs))
		for ctx.Err() == nil {
			done, _ := TestAll(reqs, st)
			if !done {
				if !slices.Equal(reqs, active) {
					return nil, errors.New("TestAll returned false, and has taken a request")
				}
				continue
			}
			all := taken{}
			for i, s := range st {
				if active[i].pmlRequest != nil {
					all[i] = s
				}
			}
			return all, nil
		}
		return nil, context.Cause(ctx)
	},
}

// TestWaits_RandomEnginesAndOrder_TakeEachRequestOnce completes requests of several engines
// in random order while they are waited for. One engine is closed.
func TestWaits_RandomEnginesAndOrder_TakeEachRequestOnce(t *testing.T) {
	engines := engineSet(t)
	gone := progress.New(progress.Options{})
	gone.Close()
	engines = append(engines, gone)
	for name, collect := range collectors {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				n := rapid.IntRange(0, 8).Draw(r, "requests")
				reqs, stubs := make([]Request, n), make([]*operationStub, n)
				var order []int
				for i := range reqs {
					if k := rapid.IntRange(-1, len(engines)-1).Draw(r, "engine"); k >= 0 {
						stubs[i] = startStub(engines[k])
						reqs[i] = stubs[i].request()
						if engines[k] != gone {
							order = append(order, i)
						}
					}
				}
				if len(order) > 0 {
					order = rapid.Permutation(order).Draw(r, "order")
				}
				before := rapid.IntRange(0, len(order)).Draw(r, "before")
				for _, i := range order[:before] {
					stubs[i].complete(i)
				}
				go func() {
					for _, i := range order[before:] {
						stubs[i].complete(i)
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				all, err := collect(ctx, reqs)
				if err != nil {
					r.Fatal(err)
				}
				for i, o := range stubs {
					s, ok := all[i]
					switch {
					case ok != (o != nil):
						r.Errorf("request %d: taken %v, active %v", i, ok, o != nil)
					case ok && o.Engine() == gone && !errors.Is(s.Err, ErrClosed):
						r.Errorf("request %d of a closed engine: %v", i, s.Err)
					case ok && o.Engine() != gone && (s.Tag != i || errors.Is(s.Err, errStub) != (i%4 == 0) || o.released != 1):
						r.Errorf("request %d: %+v, released %d times", i, s, o.released)
					}
					if reqs[i].pmlRequest != nil {
						r.Errorf("request %d is still in the slice", i)
					}
				}
			})
		})
	}
}

func TestWaits_ContextEndsWithSeveralEngines_KeepTheRequests(t *testing.T) {
	engines := engineSet(t)
	var stubs []*operationStub
	var reqs []Request
	for _, e := range engines {
		o := startStub(e)
		stubs, reqs = append(stubs, o), append(reqs, o.request())
	}
	before := slices.Clone(reqs)
	cause := errors.New("enough")
	for _, wait := range []func(context.Context) error{
		func(ctx context.Context) error { _, _, err := WaitAny(ctx, reqs); return err },
		func(ctx context.Context) error {
			_, err := WaitSome(ctx, reqs, make([]int, len(reqs)), nil)
			return err
		},
		func(ctx context.Context) error { return WaitAll(ctx, reqs, nil) },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- wait(ctx) }()
		for _, o := range stubs {
			for waited := false; !waited; {
				o.Engine().Lock()
				waited = o.Waited()
				o.Engine().Unlock()
			}
		}
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) {
			t.Errorf("%v, want the cause", err)
		}
		if !slices.Equal(reqs, before) {
			t.Error("a request was taken")
		}
	}
	for i, o := range stubs {
		o.complete(i)
	}
	if err := WaitAll(t.Context(), reqs, nil); !errors.Is(err, errStub) {
		t.Error(err)
	}
}

func TestWaits_AnotherGoroutineWaits_ReturnErrPending(t *testing.T) {
	engines := engineSet(t)
	a, b := startStub(engines[1]), startStub(engines[2])
	reqs := []Request{a.request(), b.request()}
	other := progress.NewMultiWait()
	b.Engine().Lock()
	if err := other.Add(b.Engine(), &b.Completion); err != nil {
		t.Error(err)
	}
	b.Engine().Unlock()
	if _, _, err := WaitAny(t.Context(), reqs); !errors.Is(err, ErrPending) {
		t.Errorf("WaitAny: %v", err)
	}
	other.Remove()
	a.complete(1)
	b.complete(1)
	if err := WaitAll(t.Context(), reqs, nil); err != nil {
		t.Error(err)
	}
}
