// Package kittest is what kits are made of: named cases, each a claim of a
// contract that returns an error, and two ways to run them. Tests run all of
// them as subtests; `ferry matrix` runs them one by one, in processes that may be
// lost. A kit lists its Claims and says how the world is opened in which one is
// made (Bind); T is for a case what testing.T is for a test.
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
	// Run returns what is wrong, or an error that wraps ErrSkip where the claim does
	// not apply. It returns when ctx ends, or soon after.
	Run func(ctx context.Context) error
}

// Cases are the claims of a kit.
type Cases []Case

// ErrSkip marks a case that does not apply; the wrapping error gives the reason.
var ErrSkip = errors.New("not applicable")

// Limit is when a case counts as hung.
const Limit = 60 * time.Second

// Do runs the case within Limit, as far as the machine let it run. The error names it.
func (c Case) Do(ctx context.Context) error {
	ctx, stop := Within(ctx, Limit)
	defer stop()
	if err := c.Run(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// turns are what limits are counted in.
const turns = 1200

// Within returns a context that ends after limit, with "hung" as its cause. Time in which this
// process waits for a processor does not count.
func Within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	go hangs(ctx, stop, limit)
	return ctx, func() { stop(nil) }
}

// hangs stops a case when limit is over. Where a hundred others want the processors a process
// gets its turn some times a second, and a case that exchanges hundreds of messages takes
// minutes without hanging: so it counts the turns that it gets itself, and what is longer
// than one counts as one.
func hangs(ctx context.Context, stop context.CancelCauseFunc, limit time.Duration) {
	turn := time.NewTimer(limit / turns)
	defer turn.Stop()
	for range turns {
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
			turn.Reset(limit / turns)
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

// Named returns the case of that name.
func (cs Cases) Named(name string) (Case, bool) {
	for _, c := range cs {
		if c.Name == name {
			return c, true
		}
	}
	return Case{}, false
}

// Check runs the cases and returns what failed; those that don't apply are not
// errors.
func (cs Cases) Check(ctx context.Context) []error {
	var errs []error
	for _, c := range cs {
		if err := c.Do(ctx); err != nil && !errors.Is(err, ErrSkip) {
			errs = append(errs, err)
		}
	}
	return errs
}

// Run runs the cases as subtests; one that does not apply is skipped with the
// reason.
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

// Claim is one claim of a contract, about whatever a kit tests. Needs says what it
// needs of its world W, such as the number of processes.
type Claim[N, W any] struct {
	Name  string
	Needs N
	Run   func(W)
}

// New makes a claim, so that lists of them are short to write.
func New[N, W any](name string, needs N, run func(W)) Claim[N, W] {
	return Claim[N, W]{name, needs, run}
}

// Bind makes cases of claims: open makes the world for one, and has its T clean up.
func Bind[N, W any](claims []Claim[N, W], open func(t *T, needs N) W) Cases {
	cases := make(Cases, len(claims))
	for i, c := range claims {
		cases[i] = Case{c.Name, func(ctx context.Context) error {
			return Run(ctx, func(t *T) { c.Run(open(t, c.Needs)) })
		}}
	}
	return cases
}
