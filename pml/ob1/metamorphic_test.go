package ob1_test

import (
	"flag"
	"fmt"
	"maps"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btlfault"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// The full run is
//
//	go test ./pml/ob1 -run Metamorphic -seeds 200 -timeout 30m
//
// The race detector sees rings on the heap only; with it there are fewer seeds,
// unless the flag is set:
//
//	go test -race ./pml/ob1 -run Metamorphic -seeds 200 -timeout 2h
var (
	seeds = flag.Uint64("seeds", 0, "metamorphic runner: number of seeds; 0: 8, or 3 with -short and under the race detector")
	seed  = flag.Uint64("seed", 0, "metamorphic runner: the first seed")
)

// variants returns the stacks over which each plan must have the same outcome.
func variants(t *testing.T) []pmltest.Variant {
	t.Helper()
	var all []pmltest.Variant
	add := func(name string, ranks int, policy cid.Policy, set map[string]string, btls ...btl.Component) {
		all = append(all, pmltest.Variant{
			Name: name, Ranks: ranks, Policy: policy,
			Stack: pmltest.Stack{PML: ob1.Component(), BTLs: btls, Set: set},
		})
	}
	tiny := map[string]string{"btl.shm.ring_size": "16KiB", "btl.shm.eager_limit": "64", "btl.self.ring_size": "4KiB"}
	late := btlfault.Plan{Seed: *seed, Delay: 3, MaxDelay: 50, WouldBlock: 3}
	add("memory: gathered, placed", 0, cid.PolicyAgree, nil, btltest.NewMemory(btltest.Options{NoRead: true}))
	add("memory: gathered late, placed in pieces", 0, cid.PolicyLazy, nil,
		btlfault.Wrap(btltest.NewMemory(btltest.Options{EagerLimit: 256, FrameLimit: 3000}), late),
		btltest.NewMemory(btltest.Options{Name: "pieces", NoRead: true, EagerLimit: 128, FrameLimit: 2000, Step: 700, Exclusivity: 1}))
	small := map[string]string{"btl.tcp.window": "8KiB", "btl.tcp.eager_limit": "64", "btl.tcp.frame_limit": "256"}
	add("tcp", 0, cid.PolicyLazy, nil, self.Component(), tcp.Component())
	add("tcp, three connections", 0, cid.PolicyAgree, map[string]string{"btl.tcp.links": "3", "btl.tcp.window": "64KiB"}, self.Component(), tcp.Component())
	add("tcp, smallest limits", 0, cid.PolicyGather, small, self.Component(), tcp.Component())
	add("tcp, late frames", 0, cid.PolicyLazy, nil, btlfault.Wrap(self.Component(), late), btlfault.Wrap(tcp.Component(), late))
	if underRace {
		for _, policy := range pmltest.Policies {
			add("shm on the heap, "+policy.String(), 0, policy, nil, self.Component(), shm.OnHeap())
		}
		add("tiny rings, late frames", 0, cid.PolicyAgree, tiny,
			btlfault.Wrap(self.Component(), late), btlfault.Wrap(shm.OnHeap(), late))
		return all
	}
	add("self alone", 1, cid.PolicyAgree, nil, self.Component())
	for _, policy := range pmltest.Policies {
		add("shm, "+policy.String(), 0, policy, nil, self.Component(), shm.Component())
		add("shm on the heap, "+policy.String(), 0, policy, nil, self.Component(), shm.OnHeap())
	}
	add("tiny rings", 0, cid.PolicyAgree, tiny, self.Component(), shm.Component())
	add("tiny rings, lazy", 0, cid.PolicyLazy, tiny, self.Component(), shm.OnHeap())
	add("little room for unexpected messages", 0, cid.PolicyGather, map[string]string{"pml.ob1.unexpected_limit": "16KiB"}, self.Component(), shm.Component())
	add("late frames", 0, cid.PolicyLazy, nil, btlfault.Wrap(self.Component(), late), btlfault.Wrap(shm.OnHeap(), late))
	add("late frames in tiny rings", 0, cid.PolicyAgree, tiny, btlfault.Wrap(self.Component(), late), btlfault.Wrap(shm.Component(), late))
	for _, path := range []string{"off", "cma", "memory", "auto"} {
		add("large messages: "+path, 0, cid.PolicyAgree, map[string]string{"btl.shm.single_copy": path}, self.Component(), shm.Component())
	}
	return all
}

// A random program has the outcome that MPI specifies, over any stack.
func TestMetamorphic(t *testing.T) { metamorphic(t, variants(t)) }

// Each large message uses another protocol.
func TestMetamorphic_RandomProtocols(t *testing.T) {
	late := btlfault.Plan{Seed: *seed, Delay: 3, MaxDelay: 50, WouldBlock: 3}
	copied := map[string]string{"btl.shm.eager_limit": "4KiB", "btl.shm.cma_min": "0", "btl.shm.memory_min": "0"}
	random := maps.Clone(copied)
	random["pml.ob1.protocol"] = "random"
	all := []pmltest.Variant{{Name: "self and shm, selected protocols", Stack: pmltest.Stack{Set: copied}}, {Name: "protocols drawn for each message", Stack: pmltest.Stack{Set: random}},
		{Name: "protocols drawn for each message, late frames", Stack: pmltest.Stack{Set: random}}}
	for i := range all {
		v := &all[i]
		v.Policy, v.Stack.PML = cid.PolicyAgree, ob1.Component()
		v.Stack.BTLs = []btl.Component{self.Component(), shm.Component()}
		if i == 2 {
			v.Stack.BTLs[1] = btlfault.Wrap(shm.Component(), late)
		}
	}
	metamorphic(t, all)
}

func metamorphic(t *testing.T, all []pmltest.Variant) {
	n := *seeds
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
