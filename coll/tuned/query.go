package tuned

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// params are the component's parameters; each is coll.tuned.NAME.
type params struct {
	BcastSegment  framework.Size `param:"bcast_segment" default:"64KiB" min:"64B" unit:"bytes" level:"tuner" scope:"process" doc:"Bytes of a segment."`
	ReduceSegment framework.Size `param:"reduce_segment" default:"64KiB" min:"64B" unit:"bytes" level:"tuner" scope:"process" doc:"Bytes of a segment."`
}

// Query implements coll.Component.
func (component) Query(given any, shape coll.Shape) *coll.Offer {
	p := given.(*params)
	o := &coll.Offer{Priority: priority}
	add := func(op coll.Operation, name string, from, below int, plan func(*coll.Schedule, coll.Member, *coll.Args)) {
		o.Algorithms = append(o.Algorithms, coll.Algorithm{Op: op, Name: name, From: from, Below: below, Plan: plan})
	}
	add(coll.Bcast, "binomial", coll.Never, 0, p.bcastBinomial)
	add(coll.Bcast, "chain", coll.Never, 0, p.bcastChain)
	add(coll.Bcast, "scatter", coll.Never, 0, bcastScatter)
	add(coll.Reduce, "chain", coll.Never, 0, p.reduceChain)
	add(coll.Reduce, "rabenseifner", coll.Never, 0, reduceHalving)
	add(coll.Allreduce, "rabenseifner", coll.Never, 0, allreduceHalving)
	add(coll.Allreduce, "ring", coll.Never, 0, ringAllreduce)
	add(coll.ReduceScatterBlock, "halving", coll.Never, 0, reduceScatterHalving)
	add(coll.ReduceScatter, "halving", coll.Never, 0, reduceScatterHalving)
	add(coll.Gather, "binomial", coll.Never, 0, gatherBinomial)
	if shape.Size&(shape.Size-1) == 0 {
		add(coll.Allgather, "doubling", coll.Never, 0, allgatherDoubling)
	}
	add(coll.Allgather, "linear", coll.Never, 0, allgatherLinear)
	add(coll.Allgatherv, "linear", coll.Never, 0, allgatherLinear)
	add(coll.Alltoall, "bruck", coll.Never, 0, alltoallBruck)
	add(coll.Alltoall, "linear", coll.Never, 0, alltoallLinear)
	add(coll.Alltoall, "pairs", coll.Never, 0, alltoallPairs)
	add(coll.Alltoallv, "linear", coll.Never, 0, alltoallLinear)
	add(coll.Alltoallv, "pairs", coll.Never, 0, alltoallPairs)
	return o
}
