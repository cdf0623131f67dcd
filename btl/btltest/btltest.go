// Package btltest is the kit that every BTL passes: it opens modules of several
// processes inside one, lets them exchange frames, and checks what the contract
// in package btl claims, under blocked receivers, damaged frames, garbage
// addresses and closing peers, too. Run does so in a test; Check and Cases
// need no testing.T and serve `ferry matrix`.
//
// It never looks inside a module, and never sleeps to wait: a case drives the
// modules by Poll until what has to happen did, within a deadline. Only the
// cases about sleeping use the engine for its own sake.
package btltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework/kittest"
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
var ErrSkip = kittest.ErrSkip

// testCase is one claim of the contract.
type testCase struct {
	name string
	size int // processes that it needs
	run  func(context.Context, *world) error
}

// cases returns all of them, by file.
func cases() []testCase {
	return slices.Concat(frameCases(), pathCases(), sleepCases(), remoteCases())
}

// Cases returns the claims of the contract, to be made of what factory makes.
func Cases(factory Factory) []kittest.Case { return bind(cases(), factory) }

func bind(cases []testCase, factory Factory) []kittest.Case {
	var all []kittest.Case
	for _, c := range cases {
		all = append(all, kittest.Case{Name: c.name, Run: func(ctx context.Context) error { return c.check(ctx, factory) }})
	}
	return all
}

// check opens the processes of a case and runs it.
func (c *testCase) check(ctx context.Context, factory Factory) error {
	subject, err := factory(ctx)
	if err != nil {
		return fmt.Errorf("make: %w", err)
	}
	w, err := newWorld(ctx, subject, c.size)
	if err == nil {
		err = errors.Join(c.run(ctx, w), w.close())
	}
	return err
}

// Check runs every case and returns what failed; cases that don't apply are not
// errors.
func Check(ctx context.Context, factory Factory) []error { return kittest.Check(ctx, Cases(factory)) }

// Run runs every case as a subtest; one that does not apply is skipped with the
// reason.
func Run(t *testing.T, factory Factory) {
	t.Helper()
	kittest.Run(t, Cases(factory))
}
