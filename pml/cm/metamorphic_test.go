package cm_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// The full run is
//
//	go test ./pml/cm -run Metamorphic -seeds 200
var (
	seeds = flag.Uint64("seeds", 0, "metamorphic runner: number of seeds; 0: 8, or 3 with -short and under the race detector")
	seed  = flag.Uint64("seed", 0, "metamorphic runner: the first seed")
)

// variants are the stacks that every plan runs over.
func variants() []pmltest.Variant {
	var all []pmltest.Variant
	add := func(name string, policy cid.Policy, opt mtltest.Options) {
		all = append(all, pmltest.Variant{
			Name: name, Policy: policy,
			Stack: stack(opt),
		})
	}
	for _, policy := range pmltest.Policies {
		add("memory, "+policy.String(), policy, eager)
	}
	add("nothing is done at once", cid.PolicyLazy, mtltest.Options{Faults: mtltest.Faults{NeverInject: true}})
	add("late messages and late cancels", cid.PolicyLazy, mtltest.Options{Faults: mtltest.Faults{Polls: 3}})
	add("late messages and late cancels, agreed", cid.PolicyAgree, mtltest.Options{Faults: mtltest.Faults{Polls: 3}})
	add("messages in parts", cid.PolicyLazy, mtltest.Options{MaxMessage: 20000})
	add("messages in parts, late", cid.PolicyAgree, mtltest.Options{MaxMessage: 40000, Faults: mtltest.Faults{Polls: 3, NeverInject: true}})
	node := func(name string, nodes int, policy cid.Policy, opt mtltest.Options) {
		all = append(all, pmltest.Variant{Name: name, Policy: policy, Stack: onNodes(nodes, opt)})
	}
	node("one node", 1, cid.PolicyLazy, eager)
	node("two nodes", 2, cid.PolicyAgree, eager)
	node("two nodes, lazy", 2, cid.PolicyLazy, mtltest.Options{})
	node("two nodes, late messages and late cancels", 2, cid.PolicyLazy, mtltest.Options{Faults: mtltest.Faults{Polls: 3}})
	add("few ids", cid.PolicyGather, mtltest.Options{CIDBits: 9})
	return all
}

// TestMetamorphic checks that a random program has the outcome that MPI requires, over every
// network.
func TestMetamorphic(t *testing.T) {
	all, n := variants(), *seeds
	switch {
	case n != 0:
	case underRace, testing.Short():
		n = 3
	default:
		n = 8
	}
	for s := *seed; s < *seed+n; s++ {
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) {
			if err := pmltest.Metamorphic(t.Context(), s, all); err != nil {
				t.Error(err)
			}
		})
	}
}
