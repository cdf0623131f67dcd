package threads_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml/pmltest"
	"github.com/ferrympi/ferry/pml/threads"
)

// The full run is
//
//	go test ./pml/threads -run Metamorphic -seeds 200 -timeout 30m
var (
	seeds = flag.Uint64("seeds", 0, "metamorphic runner: number of seeds; 0: 8, or 3 under the race detector")
	seed  = flag.Uint64("seed", 0, "metamorphic runner: the first seed")
)

// TestMetamorphic_AnyProgram_HasTheOutcomeOfTheStandard compares random programs with a model
// of matching: order, wildcards, probes, truncation, layouts and withdrawals.
func TestMetamorphic_AnyProgram_HasTheOutcomeOfTheStandard(t *testing.T) {
	variants := []pmltest.Variant{
		{Name: "defaults", Stack: stack(nil), Policy: cid.PolicyAgree},
		{Name: "tiny limits", Stack: stack(tiny), Policy: cid.PolicyAgree},
		{Name: "large eager messages", Stack: stack(func(p *threads.Params) { p.EagerLimit, p.UnexpectedLimit = 1<<20, 1<<24 }), Policy: cid.PolicyAgree},
		{Name: "two processes", Stack: overOb1(shm.OnHeap(), nil, 2, 2), Policy: cid.PolicyAgree, Ranks: 4},
		{Name: "three processes, tiny limits", Stack: overOb1(shm.OnHeap(), tiny, 1, 2, 5), Policy: cid.PolicyAgree, Ranks: 8},
		{Name: "processes of one rank", Stack: overOb1(shm.OnHeap(), nil), Policy: cid.PolicyAgree},
		{Name: "a network that matches", Stack: overCM(0, 2, 2), Policy: cid.PolicyAgree, Ranks: 4},
		{Name: "a network that matches, and two nodes", Stack: overCM(2, 1, 2, 5), Policy: cid.PolicyAgree, Ranks: 8},
		{Name: "two processes over tcp", Stack: overOb1(tcp.Component(), nil, 2, 2), Policy: cid.PolicyAgree, Ranks: 4},
	}
	n := *seeds
	switch {
	case n != 0:
	case underRace:
		n = 3
	default:
		n = 8
	}
	for s := *seed; s < *seed+n; s++ {
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) {
			if err := pmltest.Metamorphic(t.Context(), s, variants); err != nil {
				t.Error(err)
			}
		})
	}
}
