package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

// variant is a stack with components and algorithms.
type variant struct {
	name string
	set  map[string]string
	// nil for one node.
	node func(rank, ranks int) int
	reg  func() *framework.Registry
	// nodes is mpitest.Job.Nodes of a job whose communicators are created in levels; 0: there are no levels.
	nodes int
	// goroutines has the number of goroutine ranks of each process; nil: each rank is a process.
	goroutines []int
	// hasPartitioned is program.HasPartitioned.
	hasPartitioned bool
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
		{name: "ob1+shm+tcp, in levels", set: map[string]string{"bootstrap.roots_from": "0"}, nodes: 2},
	}
	memory := func(name, force string, options mtltest.Options, node func(int, int) int, more map[string]string) {
		network := mtltest.NewMemory(options).Component()
		set := map[string]string{"pml": "cm", "coll.force": force}
		maps.Copy(set, more)
		all = append(all, variant{name: "cm+memory, " + name, set: set, node: node, reg: func() *framework.Registry { return withMTL(network) }})
	}
	memory("shared memory", "", mtltest.Options{}, nil, nil)
	memory("no shared memory, basic", "", mtltest.Options{}, nil, map[string]string{"pml.cm.shared_memory": "false", "coll": "basic"})
	memory("late messages, chains and rings", rings, mtltest.Options{Faults: mtltest.Faults{Polls: 3, NeverInject: true}}, nil, map[string]string{"pml.cm.shared_memory": "false"})
	memory("two nodes, hier", leaders, mtltest.Options{}, inBlocks, nil)
	if _, err := libfabric.Load("libfabric.so.1"); err != nil {
		t.Logf("without cm+ofi: %v", err)
	} else {
		ofi := map[string]string{"pml": "cm", "mtl": "ofi", "mtl.ofi.provider_include": "tcp;ofi_rxm"}
		forced := maps.Clone(ofi)
		forced["coll.force"] = trees
		all = append(all, variant{name: "cm+ofi, two nodes", set: ofi, node: inBlocks, reg: components.Standard},
			variant{name: "cm+ofi, all apart, trees", set: forced, node: allApart, reg: components.Standard},
			variant{name: "cm+ofi, in levels", set: with(ofi, "bootstrap.roots_from", "0"), nodes: 2, reg: components.Standard})
	}
	for i := range all[1:] {
		all[1+i].hasPartitioned = true
	}
	if underRace { // it can't see memory in files
		for i := range all {
			all[i].reg = onHeap(all[i].reg)
		}
	}
	return all
}

// with returns a copy of parameters with one more.
func with(params map[string]string, name, value string) map[string]string {
	params = maps.Clone(params)
	params[name] = value
	return params
}

// onHeap returns registries with segments in Go memory.
func onHeap(reg func() *framework.Registry) func() *framework.Registry {
	heap := shm.OnHeap()
	return func() *framework.Registry {
		from := components.Standard()
		if reg != nil {
			from = reg()
		}
		r := without(from, func(kind framework.Kind, name string) bool { return kind == framework.BTL && name == "shm" })
		r.Register(heap)
		return r
	}
}

// job returns a job of processes over the variant, and a function that removes its directories.
func (v variant) job(ranks int) (job mpitest.Job, done func(), err error) {
	dirs := make([]string, ranks) // nodes have no directory in common
	done = func() {
		for _, dir := range dirs {
			if dir != "" {
				_ = os.RemoveAll(dir)
			}
		}
	}
	for i := range dirs {
		if v.node != nil && err == nil {
			dirs[i], err = os.MkdirTemp("", "metamorphic-")
		}
	}
	return mpitest.Job{Size: ranks, Nodes: min(v.nodes, ranks), Params: v.set, Options: func(rank int) (opts []mpi.SessionOption) {
		if v.node != nil {
			opts = append(opts, mpi.WithParam("btl.shm.dir", dirs[v.node(rank, ranks)]), mpi.WithParam("btl.shm.fallback_dir", ""))
		}
		if v.reg != nil {
			opts = append(opts, mpi.WithRegistry(v.reg()))
		}
		return opts
	}}, done, err
}

// A variant that runs the same code as another one compares nothing.
func TestMetamorphic_Variants_ReachTheirPaths(t *testing.T) {
	const ranks = 4
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			job, done, err := v.job(ranks)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			job.RunSessions(t, func(ctx context.Context) error {
				s, err := mpitest.Open(ctx)
				if err != nil {
					return err
				}
				g, err := s.Group(ctx, bootstrap.PsetWorld)
				if err != nil {
					return err
				}
				c, err := mpi.CommFromGroup(ctx, g, "variant")
				if err != nil {
					return err
				}
				for range 3 { // from the second one on there is memory
					if err := mpi.Barrier(ctx, c); err != nil {
						return err
					}
				}
				x, err := s.Explain(ctx)
				if err != nil {
					return err
				}
				last, err := c.Transport(ranks - 1 - c.Rank()/(ranks-1)*(ranks-1))
				if err != nil {
					return err
				}
				if err := v.does(x.Collectives, last); err != nil {
					return fmt.Errorf("%w\n%v", err, x)
				}
				return errors.Join(c.Close(), s.Close())
			})
		})
	}
}

// does returns an error if a variant does not run the code that it is for.
func (v variant) does(table []mpi.CollectiveChoice, to mpi.Transport) error {
	var wrong []error
	if want := v.set["pml"]; want != "" && to.PML != want {
		wrong = append(wrong, fmt.Errorf("messages travel by %+v", to))
	}
	has := func(op, component, algorithm string) bool {
		for _, x := range table {
			if x.Operation == op && x.Component == component && (algorithm == "" || x.Algorithm == algorithm) {
				return true
			}
		}
		return false
	}
	if force := v.set["coll.force"]; force != "" {
		for entry := range strings.SplitSeq(force, ",") {
			op, what, _ := strings.Cut(entry, "=")
			if component, algorithm, _ := strings.Cut(what, ":"); !has(op, component, algorithm) {
				wrong = append(wrong, fmt.Errorf("%s is not done", entry))
			}
		}
	}
	for _, x := range table {
		if v.set["coll"] == "basic" && x.Component != "basic" {
			wrong = append(wrong, fmt.Errorf("%+v", x))
		}
	}
	return errors.Join(wrong...)
}
