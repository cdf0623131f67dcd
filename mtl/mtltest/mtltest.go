// Package mtltest is the kit that every MTL passes: it opens modules of several
// processes inside one, lets them exchange messages, and checks what the contract
// in package mtl claims. Run does so in a test; Check and Cases need no
// testing.T and serve `ferry matrix`.
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
	"slices"
	"testing"

	"github.com/ferrympi/ferry/framework/kittest"
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
var ErrSkip = kittest.ErrSkip

// testCase is one claim of the contract.
type testCase struct {
	name string
	size int // processes that it needs
	run  func(context.Context, *world) error
}

// cases returns all of them, by file.
func cases() []testCase {
	return slices.Concat(messageCases(), matchingCases(), probeCases(), cancelCases(), controlCases(), peerCases(), endCases())
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
	if why, ok := subject.Exclude[c.name]; ok {
		return fmt.Errorf("%w: %s", ErrSkip, why)
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
