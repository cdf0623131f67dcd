// Package btltest is the kit that every BTL passes: it opens modules of several
// processes inside one, lets them exchange frames, and checks what the contract
// in package btl claims, under blocked receivers, damaged frames, garbage
// addresses and closing peers, too.
//
// It never looks inside a module, and never sleeps to wait: a case drives the
// modules by Poll until what has to happen did, within a deadline. Only the
// cases about sleeping use the engine for its own sake.
package btltest

import (
	"context"
	"errors"
	"slices"

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
	// First is the rank of the first process in its job (kittest.Job).
	First int
}

// claims are those of the contract, with the number of processes that each needs.
type claims = []kittest.Claim[int, *world]

// Cases returns the claims of the contract, to be made of a subject.
func Cases(s Subject) kittest.Cases {
	return bind(s, slices.Concat(frameCases(), gatherCases(), pathCases(), sleepCases(), remoteCases()))
}

// Alone reports whether the subject's modules are meant for a process itself only, as their
// answer of kind btl.NotMeant to another process says. An error is one of opening them.
func Alone(ctx context.Context, s Subject) (alone bool, err error) {
	err = kittest.Run(ctx, func(t *kittest.T) {
		w := newWorld(t, s, 2)
		var not btl.NotMeant
		alone = errors.As(w.nodes[0].reach(w.nodes[1]), &not) && w.nodes[0].reach(w.nodes[0]) == nil
	})
	return alone, err
}

// RemoteCases returns only the claims about btl.RemoteReader: for a transport that
// has several ways to read, each forced by parameters.
func RemoteCases(s Subject) kittest.Cases { return bind(s, remoteCases()) }

func bind(s Subject, all claims) kittest.Cases {
	return kittest.Bind(all, func(t *kittest.T, size int) *world { return newWorld(t, s, size) })
}
