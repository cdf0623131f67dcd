package framework

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// probe runs the probes of the components of kind that wanted accepts, concurrently. It returns one Choice for each component of kind, by descending
// priority, then those that are not built.
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
		// The buffer lets a late probe end.
		results[i] = make(chan Verdict, 1)
		go func(c Component, params any, result chan<- Verdict) {
			start := time.Now()
			v := probeOne(limited, c, params)
			v.ProbeTime = time.Since(start)
			result <- v
		}(e.component, choices[i].Params, results[i])
	}
	for i, result := range results {
		if result == nil {
			continue
		}
		v, err := awaitProbe(ctx, limited, result, r.probeLimit)
		if err != nil {
			return nil, err
		}
		c := &choices[i].Verdict
		c.Status, c.Reason, c.Hint, c.Network, c.Suits, c.ProbeTime = v.Status, v.Reason, v.Hint, v.Network, v.Suits, v.ProbeTime
	}
	return choices, nil
}

// awaitProbe returns the verdict of one probe. A completed probe takes precedence over the end of the context, so that a slow probe does not fail
// the others.
func awaitProbe(ctx, limited context.Context, result <-chan Verdict, limit time.Duration) (Verdict, error) {
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
	return failedVerdict(fmt.Sprintf("its probe did not return within %v", limit)), nil
}

func failedVerdict(reason string) Verdict { return Verdict{Status: StatusFailed, Reason: reason} }

// probeOne calls Probe, and returns a failed verdict for a panic or an invalid result.
func probeOne(ctx context.Context, c Component, params any) (v Verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = failedVerdict(fmt.Sprintf("its probe panicked at %s: %v", panicSite(), p))
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
		return failedVerdict(fmt.Sprintf("its probe returned the status %q, which a probe cannot return", v.Status))
	}
	return v
}

// panicSite returns file:line of the code that panicked. A deferred function of the panicking goroutine calls it.
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
