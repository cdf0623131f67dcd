// Package kittest is what kits are made of: named cases, each a claim of a
// contract that returns an error, and two ways to run them. Tests run all of
// them as subtests; `ferry matrix` runs them one by one, in processes that may be
// lost.
package kittest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Case is one claim of a contract.
type Case struct {
	Name string
	// Run returns what is wrong, or an error that wraps ErrSkip where the claim does
	// not apply. It returns when ctx ends, at the latest.
	Run func(ctx context.Context) error
}

// ErrSkip marks a case that does not apply; the wrapping error gives the reason.
var ErrSkip = errors.New("not applicable")

// Limit is when a case counts as hung.
const Limit = 60 * time.Second

// Do runs the case within Limit. The error names it.
func (c Case) Do(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("hung for %v", Limit))
	defer cancel()
	if err := c.Run(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// Check runs the cases and returns what failed; those that don't apply are not
// errors.
func Check(ctx context.Context, cases []Case) []error {
	var errs []error
	for _, c := range cases {
		if err := c.Do(ctx); err != nil && !errors.Is(err, ErrSkip) {
			errs = append(errs, err)
		}
	}
	return errs
}

// Run runs the cases as subtests; one that does not apply is skipped with the
// reason.
func Run(t *testing.T, cases []Case) {
	t.Helper()
	for _, c := range cases {
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
