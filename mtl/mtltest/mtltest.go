// Package mtltest is the kit that every MTL passes: it opens modules of several
// processes inside one, lets them exchange messages, and checks what the contract
// in package mtl claims. Run does so in a test; Check needs no testing.T and
// serves `ferry matrix`.
//
// It never looks inside a module, and never sleeps to wait: a case drives the
// modules by Poll until what has to happen did, within a deadline. Only the
// cases about sleeping use the engine for its own sake.
//
// The package also has a network in Go memory (Memory): the reference of the
// contract, with faults to order, for tests of protocols above MTLs.
package mtltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mtl"
)

// Subject is what the kit tests.
type Subject struct {
	// Component opens the modules of all processes of a case.
	Component mtl.Component
	// Params, when not nil, changes the parameters of rank's module before it is
	// opened. They hold their defaults.
	Params func(rank int, params any)
	// Other, when not nil, is a component whose modules do not understand those of
	// Component: their offers differ. Params is applied to it, and OtherParams, when
	// not nil, after that.
	Other       mtl.Component
	OtherParams func(params any)
	// Exclude names cases that the subject is known to fail through no fault of its
	// own, each with the reason and where that is shown.
	Exclude map[string]string
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
	all = append(all, messageCases()...)
	all = append(all, matchingCases()...)
	all = append(all, probeCases()...)
	all = append(all, cancelCases()...)
	all = append(all, controlCases()...)
	all = append(all, peerCases()...)
	return append(all, endCases()...)
}

// runCase opens the processes of c and runs it. The error names the case.
func runCase(ctx context.Context, c testCase, factory Factory) error {
	ctx, cancel := context.WithTimeoutCause(ctx, caseLimit, fmt.Errorf("hung for %v", caseLimit))
	defer cancel()
	subject, err := factory(ctx)
	if err != nil {
		return fmt.Errorf("%s: make: %w", c.name, err)
	}
	if why, ok := subject.Exclude[c.name]; ok {
		return fmt.Errorf("%s: %w: %s", c.name, ErrSkip, why)
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
	for _, c := range cases() {
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
