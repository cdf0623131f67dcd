// Package kittest provides the cases of test kits. A case checks one claim of a contract and returns an error. Tests run
// cases as subtests, and `ferry matrix` runs each in a process that may crash. A kit lists its Claims and opens their
// environments in Bind. T is the testing.T of a case.
package kittest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Case is one claim of a contract, bound to a subject.
type Case struct {
	Name string
	// Run returns an error if the claim fails, and one that wraps ErrSkip if it does not apply. It returns soon after the end
	// of ctx.
	Run func(ctx context.Context) error
}

// Cases are the claims of a kit.
type Cases []Case

// ErrSkip marks a case that does not apply. The wrapping error has the reason.
var ErrSkip = errors.New("not applicable")

// Limit is the time after which a case counts as hung.
const Limit = 60 * time.Second

// Do runs the case within Limit (see Within). The error names the case.
func (c Case) Do(ctx context.Context) error {
	ctx, stop := Within(ctx, Limit)
	defer stop()
	if err := c.Run(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// limitTicks is the number of ticks in a limit.
const limitTicks = 1200

// Within returns a context that ends after limit, with "hung" as its cause. Time in which this
// process waits for a processor does not count.
func Within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	go stopAfterLimit(ctx, stop, limit)
	return ctx, func() { stop(nil) }
}

// stopAfterLimit stops a case after limitTicks ticks of limit/limitTicks. A late tick counts as one, so the limit excludes
// the time in which an oversubscribed machine runs other processes.
func stopAfterLimit(ctx context.Context, stop context.CancelCauseFunc, limit time.Duration) {
	tick := time.NewTimer(limit / limitTicks)
	defer tick.Stop()
	for range limitTicks {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(limit / limitTicks)
		}
	}
	stop(fmt.Errorf("hung for %v", limit))
}

// Names returns the names of the cases.
func (cs Cases) Names() []string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = c.Name
	}
	return names
}

// Named returns the case with that name.
func (cs Cases) Named(name string) (Case, bool) {
	for _, c := range cs {
		if c.Name == name {
			return c, true
		}
	}
	return Case{}, false
}

// Check runs the cases and returns the errors of those that fail.
func (cs Cases) Check(ctx context.Context) []error {
	var errs []error
	for _, c := range cs {
		if err := c.Do(ctx); err != nil && !errors.Is(err, ErrSkip) {
			errs = append(errs, err)
		}
	}
	return errs
}

// Run runs the cases as subtests. It skips those that do not apply with the reason.
func (cs Cases) Run(t *testing.T) {
	t.Helper()
	for _, c := range cs {
		t.Run(c.Name, func(t *testing.T) {
			err := c.Do(t.Context())
			if errors.Is(err, ErrSkip) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Claim is one claim of a contract. Needs has the requirements on its environment W, such as the number of processes.
type Claim[N, W any] struct {
	Name  string
	Needs N
	Run   func(W)
}

// New returns a claim.
func New[N, W any](name string, needs N, run func(W)) Claim[N, W] {
	return Claim[N, W]{name, needs, run}
}

// Bind returns the cases of claims. open creates the environment of a case and registers its cleanup with T.
func Bind[N, W any](claims []Claim[N, W], open func(t *T, needs N) W) Cases {
	cases := make(Cases, len(claims))
	for i, c := range claims {
		cases[i] = Case{c.Name, func(ctx context.Context) error {
			return Run(ctx, func(t *T) { c.Run(open(t, c.Needs)) })
		}}
	}
	return cases
}
