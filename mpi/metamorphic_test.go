package mpi_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

// The full run is
//
//	go test ./mpi -run Metamorphic -seeds 100
var (
	seeds     = flag.Uint64("seeds", 0, "metamorphic runner: number of seeds; 0: 3, or 1 under the race detector")
	firstSeed = flag.Uint64("seed", 0, "metamorphic runner: the first seed")
)

// variant is a stack with components and algorithms.
type variant struct {
	name string
	set  map[string]string
	node func(rank, ranks int) int // nil: all on one
	reg  func() *framework.Registry
}

// forced has every operation done by a component, where it has it.
func forced(component string, ops ...string) string {
	for i, op := range ops {
		ops[i] = op + "=" + component
	}
	return strings.Join(ops, ",")
}

var (
	inBlocks = func(rank, ranks int) int { return rank * 2 / ranks }
	oneApart = func(rank, _ int) int { return min(rank, 1) }
	inTurns  = func(rank, _ int) int { return rank % 2 }
	allApart = func(rank, _ int) int { return rank }
)

// variants are what a program must have one outcome over. The first is what the others
// are compared with.
func variants(t *testing.T) []variant {
	t.Helper()
	shared := forced("shm", "barrier", "bcast", "reduce", "allreduce", "scan", "exscan", "gather", "allgather", "alltoall")
	leaders := forced("hier", "barrier", "bcast", "reduce", "allreduce")
	trees := "bcast=tuned:binomial,reduce=tuned:rabenseifner,allreduce=tuned:rabenseifner,allgather=tuned:doubling,alltoall=tuned:bruck," +
		"reduce_scatter=tuned:halving,reduce_scatter_block=tuned:halving,gather=tuned:binomial"
	rings := "bcast=tuned:chain,reduce=tuned:chain,allreduce=tuned:ring,allgather=tuned:linear,alltoall=tuned:linear,allgatherv=tuned:linear,alltoallv=tuned:linear"
	segments := map[string]string{"coll": "basic,tuned", "coll.force": rings, "coll.tuned.bcast_segment": "64B", "coll.tuned.reduce_segment": "64B"}
	all := []variant{
		{name: "ob1+shm, basic", set: map[string]string{"coll": "basic"}},
		{name: "ob1+shm", set: nil},
		{name: "ob1+shm, tuned trees", set: map[string]string{"coll.force": trees}},
		{name: "ob1+shm, tuned chains and rings in small segments", set: segments},
		{name: "ob1+shm, tuned scatter", set: map[string]string{"coll.force": "bcast=tuned:scatter,allgather=basic:bruck,alltoall=tuned:pairs,alltoallv=tuned:pairs"}},
		{name: "ob1+shm, coll/shm", set: map[string]string{"coll.force": shared}},
		{name: "ob1+shm, coll/shm in the least memory", set: map[string]string{"coll.force": shared, "coll.shm.area_size": "4KiB"}},
		{name: "ob1+shm, compared before", set: map[string]string{"coll.check": "true"}},
		{name: "ob1+shm+tcp, two nodes, hier", set: map[string]string{"coll.force": leaders}, node: inBlocks},
		{name: "ob1+shm+tcp, one rank apart, hier, ids lazy", set: map[string]string{"coll.force": leaders, "coll.hier.area_size": "4KiB", "cid.policy": "lazy"}, node: oneApart},
		{name: "ob1+shm+tcp, nodes in turns", node: inTurns},
		{name: "ob1+tcp, all apart", set: map[string]string{"coll": "^hier"}, node: allApart},
	}
	memory := func(name, more string, options mtltest.Options, node func(int, int) int, set map[string]string) {
		v := variant{name: "cm+memory, " + name, set: map[string]string{"pml": "cm", "coll.force": more}, node: node,
			reg: func() func() *framework.Registry {
				network := mtltest.NewMemory(options)
				return func() *framework.Registry { return withMTL(network.Component()) }
			}()}
		for k, x := range set {
			v.set[k] = x
		}
		all = append(all, v)
	}
	memory("shared memory", "", mtltest.Options{}, nil, nil)
	memory("no shared memory, basic", "", mtltest.Options{}, nil, map[string]string{"pml.cm.shared_memory": "false", "coll": "basic"})
	memory("late messages, chains and rings", rings, mtltest.Options{Faults: mtltest.Faults{Polls: 3, NeverInject: true}}, nil, map[string]string{"pml.cm.shared_memory": "false"})
	memory("two nodes, hier", leaders, mtltest.Options{}, inBlocks, nil)
	if _, err := libfabric.Load("libfabric.so.1"); err != nil {
		t.Logf("without cm+ofi: %v", err)
	} else {
		ofi := map[string]string{"pml": "cm", "mtl": "ofi", "mtl.ofi.provider_include": "tcp;ofi_rxm"}
		all = append(all, variant{name: "cm+ofi, two nodes", set: ofi, node: inBlocks, reg: components.Standard},
			variant{name: "cm+ofi, all apart, trees", node: allApart, reg: components.Standard, set: map[string]string{
				"pml": "cm", "mtl": "ofi", "mtl.ofi.provider_include": "tcp;ofi_rxm", "coll.force": trees}})
	}
	if underRace { // it can't see memory in files
		for i := range all {
			reg := all[i].reg
			heap := shm.OnHeap()
			all[i].reg = func() *framework.Registry {
				from := components.Standard()
				if reg != nil {
					from = reg()
				}
				r := framework.NewRegistry()
				for _, kind := range from.Kinds() {
					for _, c := range from.Components(kind) {
						if kind != framework.BTL || c.Info().Name != "shm" {
							r.Register(c)
						}
					}
				}
				r.Register(heap)
				return r
			}
		}
	}
	return all
}

// attempt is a test that may fail without failing the one that makes it.
type attempt struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (a *attempt) say(args ...any) {
	a.mu.Lock()
	a.said = append(a.said, fmt.Sprint(args...))
	a.mu.Unlock()
}

func (a *attempt) Helper()                           {}
func (a *attempt) Log(args ...any)                   { a.say(args...) }
func (a *attempt) Error(args ...any)                 { a.say(args...) }
func (a *attempt) Errorf(format string, args ...any) { a.say(fmt.Sprintf(format, args...)) }
func (a *attempt) FailNow()                          { runtime.Goexit() }
func (a *attempt) Fatal(args ...any)                 { a.say(args...); runtime.Goexit() }

// run runs a program over a variant, and returns the digests of each rank.
func (v variant) run(t *testing.T, p program, limit time.Duration) ([]digests, error) {
	dirs := make([]string, p.Ranks)
	if v.node != nil {
		for i := range dirs {
			dir, err := os.MkdirTemp("", "metamorphic-")
			if err != nil {
				return nil, err
			}
			defer os.RemoveAll(dir)
			dirs[i] = dir
		}
	}
	out := make([]digests, p.Ranks)
	job := mpitest.Job{Size: p.Ranks, Params: v.set, Timeout: limit, Options: func(rank int) (opts []mpi.SessionOption) {
		if v.node != nil {
			opts = append(opts, mpi.WithParam("btl.shm.dir", dirs[v.node(rank, p.Ranks)]), mpi.WithParam("btl.shm.fallback_dir", ""))
		}
		if v.reg != nil {
			opts = append(opts, mpi.WithRegistry(v.reg()))
		}
		return opts
	}}
	a := &attempt{TB: t}
	ended, ok := make(chan struct{}), false
	go func() { // it ends where a test would
		defer close(ended)
		job.Run(a, func(ctx context.Context, c *mpi.Comm) (err error) {
			out[c.Rank()], err = p.play(ctx, c)
			return err
		})
		ok = true
	}()
	<-ended
	if !ok {
		return nil, errors.New(strings.Join(a.said, "\n"))
	}
	return out, nil
}

// differs runs a program over a variant, and says where the outcome is another than that
// over the first. want may be nil.
func (v variant) differs(t *testing.T, first variant, p program, want []digests, limit time.Duration) error {
	if want == nil {
		var err error
		if want, err = first.run(t, p, limit); err != nil {
			return fmt.Errorf("over %s: %w", first.name, err)
		}
	}
	got, err := v.run(t, p, limit)
	if err != nil {
		return err
	}
	for _, s := range p.Steps {
		for rank := range p.Ranks {
			a, ok := want[rank][s.ID]
			b, did := got[rank][s.ID]
			if ok != did || a != b {
				return fmt.Errorf("rank %d has another outcome than over %s: step %v", rank, first.name, s)
			}
		}
	}
	return nil
}

// How long to look for a smaller program, how often to try each, and when one hangs.
const (
	shrinkTime  = 40 * time.Second
	shrinkTries = 3
	shrinkHang  = 5 * time.Second
)

// shrink takes steps of a failing program away as long as it goes on failing.
func (v variant) shrink(t *testing.T, first variant, p program) (program, error) {
	end := time.Now().Add(shrinkTime)
	var last error
	fails := func(q program) bool {
		for range shrinkTries {
			if time.Now().After(end) {
				return false
			}
			if err := v.differs(t, first, q, nil, shrinkHang); err != nil {
				last = err
				return true
			}
		}
		return false
	}
	for smaller := fails(p); smaller; {
		smaller = false
		for _, q := range p.smaller() {
			if fails(q) {
				p, smaller = q, true
				break
			}
		}
	}
	return p, last
}

// TestMetamorphic: whatever the stack, the nodes and the algorithms, a random program of
// collectives and messages has one outcome.
func TestMetamorphic(t *testing.T) {
	all, n := variants(t), *seeds
	switch {
	case n != 0:
	case underRace:
		n = 1
	default:
		n = 3
	}
	for s := *firstSeed; s < *firstSeed+n; s++ {
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) {
			p := draw(s)
			want, err := all[0].run(t, p, 0)
			if err != nil {
				t.Fatalf("seed %d, %s: %v\n%v", s, all[0].name, err, p)
			}
			for _, v := range all {
				if err := v.differs(t, all[0], p, want, 0); err != nil {
					small, smallErr := v.shrink(t, all[0], p)
					if smallErr == nil {
						t.Fatalf("seed %d, %s: %v\nit did not fail again, when tried to be made smaller:\n%v", s, v.name, err, p)
					}
					t.Fatalf("seed %d, %s: %v\nas it failed at first: %v\n%v", s, v.name, smallErr, err, small)
				}
			}
		})
	}
}
