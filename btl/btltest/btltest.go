// Package btltest is the kit that every BTL passes: it opens modules of several
// processes inside one, lets them exchange frames, and checks what the contract
// in package btl claims, under blocked receivers, damaged frames, garbage
// addresses and closing peers, too. Run does so in a test; Check needs no
// testing.T and serves `ferry matrix`.
//
// It never looks inside a module, and never sleeps to wait: a case drives the
// modules by Poll until what has to happen did, within a deadline. Only the
// cases about sleeping use the engine for its own sake.
package btltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
)

// Subject is what the kit tests.
type Subject struct {
	// Component opens the modules of all processes of a case.
	Component btl.Component
	// Params, when not nil, changes the parameters of rank's module before it is
	// opened. They hold their defaults.
	Params func(rank int, params any)
}

// A Factory makes the subject of one case. An error fails the case.
type Factory func(ctx context.Context) (Subject, error)

// ErrSkip marks a case that does not apply; the wrapping error gives the reason.
var ErrSkip = errors.New("not applicable")

// caseLimit is when the kit calls a case hung.
const caseLimit = 60 * time.Second

// testCase is one claim of the contract.
type testCase struct {
	name string
	size int // processes that it needs
	run  func(context.Context, *world) error
}

// cases returns all of them, by file.
func cases() []testCase {
	var all []testCase
	all = append(all, frameCases()...)
	all = append(all, pathCases()...)
	all = append(all, sleepCases()...)
	return append(all, remoteCases()...)
}

// runCase opens the processes of c and runs it. The error names the case.
func runCase(ctx context.Context, c testCase, factory Factory) error {
	ctx, cancel := context.WithTimeoutCause(ctx, caseLimit, fmt.Errorf("hung for %v", caseLimit))
	defer cancel()
	subject, err := factory(ctx)
	if err != nil {
		return fmt.Errorf("%s: make: %w", c.name, err)
	}
	w, err := newWorld(ctx, subject, c.size)
	if err == nil {
		err = errors.Join(c.run(ctx, w), w.close())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// Check runs every case and returns what failed; cases that don't apply are not
// errors.
func Check(ctx context.Context, factory Factory) []error {
	var errs []error
	for _, c := range cases() {
		if err := runCase(ctx, c, factory); err != nil && !errors.Is(err, ErrSkip) {
			errs = append(errs, err)
		}
	}
	return errs
}

// Run runs every case as a subtest; one that does not apply is skipped with the
// reason.
func Run(t *testing.T, factory Factory) {
	t.Helper()
	runAll(t, cases(), factory)
}

func runAll(t *testing.T, cases []testCase, factory Factory) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := runCase(t.Context(), c, factory)
			if errors.Is(err, ErrSkip) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
