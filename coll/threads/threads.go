// Package threads has collectives for communicators with several ranks per process, which are
// goroutines. Their number is not limited.
//
// The ranks of a process publish slices and combine directly out of each other's memory. They
// arrive at a tree of counters, with 8 ranks to a cache line, and wait for a release word. A few
// ranks poll each other instead. One rank of each process exchanges messages with the other
// processes (coll/leaders).
//
// docs/decisions/thread-collectives.md has the reasons.
package threads

import (
	"context"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// priority is above that of coll/shm, which serves other operations and few ranks.
const priority = 45

// Component returns the component for a registry.
func Component() coll.Component { return component{} }

type component struct{}

type params struct {
	FlatRanks     int            `param:"flat_ranks" default:"2" min:"1" max:"64" level:"tuner" scope:"process" doc:"Maximum number of ranks, all in one process, that poll each other. More ranks, or several processes, count arrivals in a tree. On 2 processors 4 ranks are faster in a tree; not measured on more."`
	ChunkSize     framework.Size `param:"chunk" default:"16KiB" min:"64B" max:"16MiB" unit:"bytes" level:"tuner" scope:"process" doc:"Largest part of a reduction that a rank combines at a time. It should fit into the first-level cache."`
	FewRanks      int            `param:"few_ranks" default:"8" min:"0" level:"tuner" scope:"process" doc:"Maximum number of ranks, all in one process, whose smaller operands are left to coll.shm (see bcast_from). With 16 ranks on 2 processors allreduce of 1 KiB took coll.shm 27 us and takes 12, with 64 it took 620 and takes 67."`
	BcastFrom     framework.Size `param:"bcast_from" default:"32KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Size from which few ranks read the slice of the root. 2 ranks: 16 KiB took coll.shm 276 ns and 300 here, 32 KiB 569 and 408."`
	ReduceFrom    framework.Size `param:"reduce_from" default:"8KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Size above which few ranks combine out of each other's slices in reduce, if coll.shm serves it."`
	ReduceOf2From framework.Size `param:"reduce_from_of_two" default:"16KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"The same for two ranks: 8 KiB took coll.shm 240 ns and 389 here, 32 KiB 946 and 613."`
	AllreduceFrom framework.Size `param:"allreduce_from" default:"4KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Size from which few ranks combine out of each other's slices in allreduce. 2 ranks: 2 KiB took coll.shm 216 ns and 288 here, 4 KiB 350 and 325."`
	ReduceMost    framework.Size `param:"reduce_most" default:"512KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest reduction over several processes that is combined process by process, as in coll.hier. Within one process there is no limit."`
}

func (component) Info() framework.Info {
	return framework.Info{
		Kind: framework.Coll, Name: "threads", Version: "1.0.0", Priority: priority,
		Summary: "collectives of goroutines as ranks, in each other's memory, and among one rank of each process",
	}
}

func (component) Params() any { return new(params) }

func (component) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

// Query implements coll.Component.
func (component) Query(p any, shape coll.Shape) *coll.Offer {
	if !shape.HasSharedProcs() {
		return nil
	}
	par := p.(*params)
	l := newLayout(shape, par)
	bcastFrom, reduceFrom, allreduceFrom := par.thresholds(shape.Size, l.Count())
	o := &coll.Offer{Priority: priority, Open: l.open, Algorithms: []coll.Algorithm{
		{Op: coll.Barrier, Name: l.name(), Plan: l.barrier},
		{Op: coll.Bcast, Name: "slices", From: bcastFrom, Plan: l.bcast},
	}}
	below := 0
	if l.Count() > 1 {
		// Reductions by process would lose the order of ranks that are not consecutive.
		if below = int(par.ReduceMost) + 1; below == 1 || !l.IsSorted() {
			return o
		}
	}
	o.Algorithms = append(o.Algorithms,
		coll.Algorithm{Op: coll.Reduce, Name: "slices", From: reduceFrom, Below: below, Plan: l.reduce},
		coll.Algorithm{Op: coll.Allreduce, Name: "slices", From: allreduceFrom, Below: below, Plan: l.allreduce})
	return o
}

// thresholds returns the smallest sizes of the operations. A few ranks exchange smaller operands
// through a collective segment, whose slots let a rank run ahead of the others and which needs only
// one phase.
func (p *params) thresholds(ranks, procs int) (bcast, reduce, allreduce int) {
	if procs > 1 || ranks > p.FewRanks {
		return 0, 0, 0
	}
	reduce = int(p.ReduceFrom) + 1
	if ranks == 2 {
		reduce = int(p.ReduceOf2From) + 1
	}
	return int(p.BcastFrom), reduce, int(p.AllreduceFrom)
}

// layout has the local ranks of a communicator's ranks in their processes. It is equal in all
// members.
type layout struct {
	// Processes of the ranks. The local rank is the index of a rank in its process.
	coll.Placement

	// Whether each rank polls all others.
	isFlat    bool
	chunkSize int
}

func newLayout(shape coll.Shape, par *params) *layout {
	return &layout{Placement: shape.Procs, isFlat: shape.Procs.Count() == 1 && shape.Size <= par.FlatRanks, chunkSize: int(par.ChunkSize)}
}

func (l *layout) name() string {
	if l.isFlat {
		return "flags"
	}
	return "tree"
}

// leader returns the rank of a process that exchanges messages. It is the root in its own process
// and the lowest rank in the others.
func (l *layout) leader(proc, root int) int {
	if l.Node(root) == proc {
		return root
	}
	return l.First(proc)
}
