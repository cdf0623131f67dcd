// Package shm implements collectives in shared memory among processes of one node, and among up to
// area.MaxMembers goroutines that are the ranks of one process.
//
// Each member posts its data in a collective segment (coll/area) and reads the posts of others. Data is copied
// once in and once out.
package shm

import (
	"context"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/area"
	"github.com/ferrympi/ferry/framework"
)

const priority = 40

// Component returns the component, for a registry.
func Component() coll.Component { return component{} }

type component struct{}

type params struct {
	AreaSize  framework.Size `param:"area_size" default:"1MiB" min:"4KiB" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Largest collective segment of a communicator on a node, allocated for its second collective. At most 128 KiB and at least 2 KiB for each member."`
	MaxSize   framework.Size `param:"most" default:"64KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest size through shared memory with more than two members; divided by the number of members for gather, allgather and alltoall."`
	MaxOfTwo  framework.Size `param:"most_of_two" default:"64KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest size through shared memory with two members."`
	MaxReduce framework.Size `param:"reduce_most" default:"8KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest size of reduce, scan and exscan through shared memory with more than two members."`
}

func (component) Info() framework.Info {
	return framework.Info{
		Kind: framework.Coll, Name: "shm", Version: "1.0.0", Priority: priority,
		Summary: "collectives on one node, in shared memory",
	}
}

func (component) Params() any { return new(params) }

func (component) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

// Query implements coll.Component.
func (component) Query(p any, shape coll.Shape) *coll.Offer {
	shape, ok := area.ShapeFor(shape)
	if !ok || shape.Size == 1 || shape.Nodes != nil {
		return nil
	}
	par := p.(*params)
	n := node{area.New(shape, int(par.AreaSize))}
	most := int(par.MaxSize)
	reduce := min(most, int(par.MaxReduce))
	if shape.Size == 2 {
		most = int(par.MaxOfTwo)
		reduce = most
	}
	blocks := most / shape.Size // Larger blocks go as messages.
	shares := min(sharesFrom, most+1)
	return &coll.Offer{Priority: priority, Open: n.Open, Algorithms: []coll.Algorithm{
		{Op: coll.Barrier, Name: "flags", Plan: n.barrier},
		{Op: coll.Bcast, Name: "area", Below: most + 1, Plan: n.bcast},
		{Op: coll.Reduce, Name: "flat", Below: reduce + 1, Plan: n.reduce},
		{Op: coll.Allreduce, Name: "flat", Below: shares, Plan: n.allreduce},
		{Op: coll.Allreduce, Name: "shares", From: shares, Below: most + 1, Plan: n.reduceScatterAllreduce},
		{Op: coll.Scan, Name: "flat", Below: reduce + 1, Plan: n.scan},
		{Op: coll.Exscan, Name: "flat", Below: reduce + 1, Plan: n.exscan},
		{Op: coll.Gather, Name: "area", Below: blocks + 1, Plan: n.gather},
		{Op: coll.Allgather, Name: "area", Below: blocks + 1, Plan: n.allgather},
		{Op: coll.Alltoall, Name: "area", Below: blocks + 1, Plan: n.alltoall},
	}}
}

// sharesFrom is the smallest allreduce in which each member combines a share, in bytes. The exchange of shares costs
// a phase. Measured with 8 ranks on 2 processors (docs/decisions/collectives-in-shared-memory.md).
const sharesFrom = 4 << 10
