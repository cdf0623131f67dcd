// Package tuned has a collective component for large blocks and many ranks: the
// algorithms of the literature over messages between two ranks, each for the sizes and
// numbers of ranks for which it was measured to be the fastest.
//
// It stands on package coll alone, keeps no state, and starts no goroutine. What it does
// not offer at a size coll/basic does as well. All members must have equal thresholds:
// they are parameters, which a launcher gives to all ranks alike.
package tuned

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// priority is above coll/basic's, and below that of what shares memory.
const priority = 20

// Component returns the component, for a registry.
func Component() coll.Component {
	return component{framework.Basic{
		Kind: framework.Coll, Name: "tuned", Version: "1.0.0", Priority: priority,
		Summary: "trees, pipelines, halving, rings and exchanges, by size and number of ranks",
	}}
}

type component struct{ framework.Basic }

// Params implements framework.Component.
func (component) Params() any { return new(params) }
