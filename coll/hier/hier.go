// Package hier implements collectives over several nodes, in shared memory on each node (coll/area) and by messages
// among the node leaders. The network carries the data of each node once.
//
// If a process has several ranks, each process counts as a node.
package hier

import (
	"context"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/area"
	"github.com/ferrympi/ferry/framework"
)

const priority = 35

// Component returns the component, for a registry.
func Component() coll.Component { return component{} }

type component struct{}

type params struct {
	AreaSize framework.Size `param:"area_size" default:"1MiB" min:"4KiB" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Largest collective segment of a communicator on each node, as coll.shm.area_size."`
	MaxSize  framework.Size `param:"reduce_most" default:"512KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest reduction by node leaders. In larger ones all ranks of a node use the network."`
}

func (component) Info() framework.Info {
	return framework.Info{
		Kind: framework.Coll, Name: "hier", Version: "1.0.0", Priority: priority,
		Summary: "collectives over several nodes, in shared memory and among node leaders",
	}
}

func (component) Params() any { return new(params) }

func (component) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

// Query implements coll.Component.
func (component) Query(p any, shape coll.Shape) *coll.Offer {
	shape, ok := area.ShapeFor(shape)
	if !ok {
		return nil
	}
	par := p.(*params)
	n := nodes{area.New(shape, int(par.AreaSize))}
	if n.Count() == 1 || n.Count() == shape.Size {
		return nil
	}
	o := &coll.Offer{Priority: priority, Open: n.Open, Algorithms: []coll.Algorithm{
		{Op: coll.Barrier, Name: "leaders", Plan: n.barrier},
		{Op: coll.Bcast, Name: "leaders", Plan: n.bcast},
	}}
	// Unsorted nodes would change the order of operands.
	if most := int(par.MaxSize); n.IsSorted() && most > 0 {
		o.Algorithms = append(o.Algorithms,
			coll.Algorithm{Op: coll.Reduce, Name: "leaders", Below: most + 1, Plan: n.reduce},
			coll.Algorithm{Op: coll.Allreduce, Name: "leaders", Below: most + 1, Plan: n.allreduce})
	}
	return o
}
