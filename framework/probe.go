package framework

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// probe runs the probes of the components of kind whose name is wanted, all at
// the same time, and returns one Choice for each component of kind, wanted or
// not, by falling priority, and last those that are not built.
func (r *Registry) probe(ctx context.Context, kind Kind, vals *Values, wanted func(string) bool) ([]Choice, error) {
	entries := r.byPriority(kind)
	choices := make([]Choice, len(entries))
	results := make([]chan Verdict, len(entries))
	limited, cancel := context.WithTimeout(ctx, r.probeLimit)
	defer cancel()
	for i, e := range entries {
		choices[i] = Choice{Component: e.component, Verdict: e.notBuilt}
		if e.component == nil {
			continue
		}
		choices[i].Verdict = Verdict{Kind: kind, Name: e.info.Name, Priority: e.info.Priority}
		if !wanted(e.info.Name) {
			continue
		}
		choices[i].Params = e.component.Params()
		if err := vals.Decode(ComponentName(kind, e.info.Name), choices[i].Params); err != nil {
			return nil, err
		}
		// The channel has room, so that a probe that comes back too late ends.
		results[i] = make(chan Verdict, 1)
		go func(c Component, params any, result chan<- Verdict) {
			start := time.Now()
			v := probeOne(limited, c, params)
			v.Took = time.Since(start)
			result <- v
		}(e.component, choices[i].Params, results[i])
	}
	for i, result := range results {
		if result == nil {
			continue
		}
		v, err := await(ctx, limited, result, r.probeLimit)
		if err != nil {
			return nil, err
		}
		c := &choices[i].Verdict
		c.Status, c.Reason, c.Hint, c.Network, c.Suits, c.Took = v.Status, v.Reason, v.Hint, v.Network, v.Suits, v.Took
	}
	return choices, nil
}

// await returns the verdict of one probe. A probe that is ready wins over a
// context that has ended, so that one slow probe does not condemn the others.
func await(ctx, limited context.Context, result <-chan Verdict, limit time.Duration) (Verdict, error) {
	select {
	case v := <-result:
		return v, nil
	default:
	}
	select {
	case v := <-result:
		return v, nil
	case <-limited.Done():
	}
	if err := context.Cause(ctx); err != nil {
		return Verdict{}, err
	}
	return failed(fmt.Sprintf("its probe did not return within %v", limit)), nil
}

func failed(reason string) Verdict { return Verdict{Status: StatusFailed, Reason: reason} }

// probeOne calls Probe and answers for its misbehaviour.
func probeOne(ctx context.Context, c Component, params any) (v Verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = failed(fmt.Sprintf("its probe panicked at %s: %v", panicSite(), p))
			v.Hint = "this is a bug in the component; exclude it with " + EnvName(string(c.Info().Kind)) + "=^" + c.Info().Name
		}
	}()
	v = c.Probe(ctx, params)
	switch v.Status {
	case StatusUsable:
	case StatusUnavailable, StatusNotBuilt, StatusFailed:
		if v.Reason == "" {
			v.Reason = "its probe gave no reason"
		}
	default:
		return failed(fmt.Sprintf("its probe returned the status %q, which a probe can't return", v.Status))
	}
	return v
}

// panicSite returns file:line of the code that panicked. It is for a deferred
// function of the panicking goroutine: a verdict is one line, a stack is not.
func panicSite() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	panicking := false
	for {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if panicking && !inRuntime {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		panicking = panicking || inRuntime && f.Function == "runtime.gopanic"
		if !more {
			return "an unknown place"
		}
	}
}
