// Package tuned has a collective component for large blocks and many ranks. It has algorithms of
// the literature over messages between two ranks, each for the sizes and numbers of ranks for which
// it was measured to be the fastest.
//
// It keeps no state and starts no goroutines. At sizes without an offer, coll/basic is equally
// fast. The thresholds are parameters that must be equal in all members. A launcher gives them to
// all ranks.
package tuned

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// priority is above that of coll/basic and below those of components that share memory.
const priority = 20

// Component returns the component for a registry.
func Component() coll.Component {
	return component{framework.Basic{
		Kind: framework.Coll, Name: "tuned", Version: "1.0.0", Priority: priority,
		Summary: "trees, pipelines, halving, rings and exchanges, by size and number of ranks",
	}}
}

type component struct{ framework.Basic }

// Params implements framework.Component.
func (component) Params() any { return new(params) }
