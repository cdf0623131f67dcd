// Package shm has collectives among processes of one node, in memory that they share, and
// among up to area.MostMembers goroutines that are the ranks of one process.
//
// It stands on coll/area: each member posts what it gives, and reads what others have posted.
// So data are copied once in and once out, nobody receives for others, and a member that
// waits looks at the others' posts.
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
	AreaSize framework.Size `param:"area_size" default:"1MiB" min:"4KiB" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Memory that the members of a communicator share on a node, at most, from its second collective on; less where 128 KiB for each are enough, and more where there are so many that each would have less than 2 KiB."`
	Most     framework.Size `param:"most" default:"64KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest size of what goes through shared memory where a communicator has more than two members; an n-th of it where each gives a block to each, or all get all blocks."`
	MostOf2  framework.Size `param:"most_of_two" default:"64KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"The same for two members: both copy at the same time, which a message of less than some 100 KiB is not worth."`
	Reduce   framework.Size `param:"reduce_most" default:"8KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"The same for reduce, scan and exscan of more than two members, where one does the others' work."`
}

func (component) Info() framework.Info {
	return framework.Info{
		Kind: framework.Coll, Name: "shm", Version: "1.0.0", Priority: priority,
		Summary: "collectives on one node, in memory that its processes share",
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
	most := int(par.Most)
	reduce := min(most, int(par.Reduce))
	if shape.Size == 2 {
		most = int(par.MostOf2)
		reduce = most
	}
	blocks := most / shape.Size // messages that pass each other learn how they go
	shares := min(sharesFrom, most+1)
	return &coll.Offer{Priority: priority, Open: n.Open, Algorithms: []coll.Algorithm{
		{Op: coll.Barrier, Name: "flags", Plan: n.barrier},
		{Op: coll.Bcast, Name: "area", Below: most + 1, Plan: n.bcast},
		{Op: coll.Reduce, Name: "flat", Below: reduce + 1, Plan: n.reduce},
		{Op: coll.Allreduce, Name: "flat", Below: shares, Plan: n.allreduce},
		{Op: coll.Allreduce, Name: "shares", From: shares, Below: most + 1, Plan: n.shares},
		{Op: coll.Scan, Name: "flat", Below: reduce + 1, Plan: n.scan},
		{Op: coll.Exscan, Name: "flat", Below: reduce + 1, Plan: n.exscan},
		{Op: coll.Gather, Name: "area", Below: blocks + 1, Plan: n.gather},
		{Op: coll.Allgather, Name: "area", Below: blocks + 1, Plan: n.allgather},
		{Op: coll.Alltoall, Name: "area", Below: blocks + 1, Plan: n.alltoall},
	}}
}

// sharesFrom is the size in bytes from which it pays that each member combines a part for
// all: the others' parts come a round later. 8 ranks on 2 processors: 4 KiB; docs/decisions
// has the figures behind all of these sizes.
const sharesFrom = 4 << 10
