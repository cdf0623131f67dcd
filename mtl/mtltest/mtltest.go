// Package mtltest is the kit that every MTL passes: it opens modules of several
// processes inside one, lets them exchange messages, and checks what the contract
// in package mtl claims.
//
// It never looks inside a module, and never sleeps to wait: a case drives the
// modules by Poll until what has to happen did, within a deadline. Only the
// cases about sleeping use the engine for its own sake.
//
// The package also has a network in Go memory (Memory): the reference of the
// contract, with faults to order, for tests of protocols above MTLs.
package mtltest

import (
	"slices"

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
	// First is the rank of the first process in its job (kittest.Job).
	First int
	// Other, when not nil, is a component whose modules do not understand those of
	// Component: their offers differ. Params is applied to it, and OtherParams, when
	// not nil, after that.
	Other       mtl.Component
	OtherParams func(params any)
}

// claims are those of the contract, with the number of processes that each needs.
type claims = []kittest.Claim[int, *world]

// two makes a claim about two processes, with which run is called.
func two(name string, run func(w *world, a, b *node)) kittest.Claim[int, *world] {
	return kittest.New(name, 2, func(w *world) { run(w, w.nodes[0], w.nodes[1]) })
}

// Cases returns the claims of the contract, to be made of a subject.
func Cases(s Subject) kittest.Cases {
	all := slices.Concat(messageCases(), registerCases(), matchingCases(), endpointCases(), probeCases(), cancelCases(), controlCases(), peerCases(), deadCases(), endCases())
	return kittest.Bind(all, func(t *kittest.T, size int) *world { return newWorld(t, s, size) })
}
