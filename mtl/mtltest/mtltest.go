// Package mtltest is the conformance kit for MTLs. It opens the modules of several processes within one process, exchanges messages between them, and
// checks the contract of package mtl.
//
// The kit never inspects a module, and never sleeps to wait. A case polls the modules until a condition holds, within a deadline. Only the cases
// about sleeping use the engine.
//
// The package also contains Memory, a network in Go memory. It is the reference implementation of the contract, with configurable faults, for tests of
// protocols above MTLs.
package mtltest

import (
	"slices"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

// Subject is the MTL under test.
type Subject struct {
	// Component opens the modules of all processes of a case.
	Component mtl.Component
	// Params, if not nil, changes the parameters of rank's module before it is opened. They are set to their defaults.
	Params func(rank int, params any)
	// First is the rank of the first process in its job (kittest.Job).
	First int
	// Other, if not nil, is a component with a different offer, incompatible with Component. Params is applied to it, followed by
	// OtherParams if that is not nil.
	Other       mtl.Component
	OtherParams func(params any)
}

// claims are claims of the contract, each with its number of processes.
type claims = []kittest.Claim[int, *world]

// twoNodes returns a claim about two processes.
func twoNodes(name string, run func(w *world, a, b *node)) kittest.Claim[int, *world] {
	return kittest.New(name, 2, func(w *world) { run(w, w.nodesByRank[0], w.nodesByRank[1]) })
}

// Cases returns the claims of the contract as cases for a subject.
func Cases(s Subject) kittest.Cases {
	all := slices.Concat(messageCases(), registerCases(), matchingCases(), endpointCases(), probeCases(), cancelCases(), controlCases(), peerCases(), failureCases(), endCases())
	return kittest.Bind(all, func(t *kittest.T, size int) *world { return newWorld(t, s, size) })
}
