package tuned

import (
	"math/bits"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// params are the parameters of the component. Their names begin with coll.tuned. In their
// descriptions, "hosts" are 4 and 8 network namespaces of one machine with a rank each and links of
// 400 Mbit/s (btl tcp), and "a node" is 2 processors with 2, 4 and 8 ranks (btl shm). Both were
// measured by ferry bench with each algorithm forced in turn. docs/collectives.md has the figures.
type params struct {
	BcastScatter         framework.Size `param:"bcast_scatter" default:"32KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Size from which bcast scatters and gathers, with at least bcast_scatter_ranks. Bench bcast on hosts: 1.1 to 2.2 times as fast as binomial from here on, and slower below."`
	BcastScatterRanks    int            `param:"bcast_scatter_ranks" default:"4" min:"2" level:"tuner" scope:"process" doc:"Minimum number of ranks for scatter in bcast. Bench bcast on a node: slower with 2 ranks, faster with 4."`
	BcastChain           framework.Size `param:"bcast_chain" default:"16KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Size per rank from which bcast uses a chain of segments, with more than 2 ranks on several nodes. Bench bcast on hosts: twice as fast as binomial from there on with 4 ranks, and 2.6 times with 8; on a node 1.5 times slower, 512 KiB with 8."`
	BcastSegment         framework.Size `param:"bcast_segment" default:"16KiB" min:"64B" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Segment size of bcast. Bench bcast on 6 hosts, 128 KiB: 1.4 ms, against 1.7 with 64 KiB; 2 MiB takes the same."`
	ReduceHalving        framework.Size `param:"reduce_halving" default:"32KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Size from which reduce halves (Rabenseifner), with at least reduce_halving_ranks. Bench reduce on hosts: 1.1 to 1.3 times as fast as binomial with 8 ranks from here on, and slower below."`
	ReduceHalvingRanks   int            `param:"reduce_halving_ranks" default:"8" min:"2" level:"tuner" scope:"process" doc:"Minimum number of ranks for halving in reduce. Bench reduce on hosts: the chain is as fast with 4."`
	ReduceChain          framework.Size `param:"reduce_chain" default:"16KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Size per rank from which reduce uses a chain of segments, with ranks on several nodes. Bench reduce on hosts: 1.5 to 2.1 times as fast as binomial from there on with 4 ranks; on a node 1.7 times slower, 512 KiB with 4."`
	ReduceSegment        framework.Size `param:"reduce_segment" default:"16KiB" min:"64B" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Segment size of reduce, rounded to whole elements. Bench reduce on 6 hosts, 128 KiB: 1.1 ms, against 2.1 with 64 KiB; 2 MiB takes the same."`
	AllreduceHalving     framework.Size `param:"allreduce_halving" default:"32KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Size from which allreduce halves and doubles (Rabenseifner). Bench allreduce: 1.3 times as fast as doubling on a node with 2 ranks and 2.1 times on 4 hosts from here on, and slower below."`
	AllreduceRing        framework.Size `param:"allreduce_ring" default:"128KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Size per rank from which allreduce uses a ring, with more than 2 ranks. Bench allreduce on hosts, 1 MiB: 1.2 times as fast as halving with 4 and 8 ranks, and as fast below."`
	ReduceScatterHalving framework.Size `param:"reduce_scatter_halving" default:"64KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest total size of the blocks for halving in reduce_scatter and reduce_scatter_block, with at least 4 ranks. Bench reduce_scatter: 1.7 to 3.6 times as fast as pairwise with 8 ranks on hosts, 1.1 to 2.4 on a node; slower above, and with 2."`
	AllgatherDoubling    framework.Size `param:"allgather_doubling" default:"16KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest block for doubling in allgather, with a power of two of ranks. Bench allgather on a node: 1.1 to 1.4 times as fast as bruck and ring with 4 and 8 ranks."`
	AllgatherLinear      framework.Size `param:"allgather_linear" default:"64KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest block for linear allgather, above 4 KiB or allgather_doubling, with at most linear_ranks. Bench allgather on 8 hosts: 1.2 to 3 times as fast as ring up to here; the ring is as fast above."`
	AlltoallBruck        framework.Size `param:"alltoall_bruck" default:"256B" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest block for the log2 n steps of Bruck's alltoall, with at least alltoall_bruck_ranks. Bench alltoall on a node: 1.1 to 2.8 times as fast as linear with 8 ranks, and slower above."`
	AlltoallBruckRanks   int            `param:"alltoall_bruck_ranks" default:"8" min:"2" level:"tuner" scope:"process" doc:"Minimum number of ranks for Bruck's alltoall. Bench alltoall: no faster with 4 on hosts or a node."`
	AlltoallLinear       framework.Size `param:"alltoall_linear" default:"64KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Largest block for linear alltoall, with at most linear_ranks. Bench alltoall: 1.4 to 3 times as fast as pairwise on a node with 8 ranks, 2 to 5 times on hosts up to 16 KiB; pairwise is as fast above."`
	LinearRanks          int            `param:"linear_ranks" default:"32" min:"2" level:"tuner" scope:"process" doc:"Maximum number of ranks for linear algorithms, which limits the number of pending messages (measured with up to 8)."`
}

// Query implements coll.Component.
func (component) Query(given any, shape coll.Shape) *coll.Offer {
	p, n := given.(*params), shape.Size
	o := &offer{Offer: coll.Offer{Priority: priority}}

	// On one node, the steps of a chain share the processors that its segments would keep busy.
	hosts := shape.Nodes != nil
	chain := sizeIf(hosts && n > 2, sizeTimes(p.BcastChain, n))
	scatter := sizeIf(n >= p.BcastScatterRanks, int(p.BcastScatter))
	o.add(coll.Bcast, "chain", chain, 0, p.bcastChain)
	o.add(coll.Bcast, "scatter", scatter, 0, bcastScatter)
	o.add(coll.Bcast, "binomial", coll.Never, 0, p.bcastBinomial)

	o.add(coll.Reduce, "chain", sizeIf(hosts, sizeTimes(p.ReduceChain, n)), 0, p.reduceChain)
	o.add(coll.Reduce, "rabenseifner", sizeIf(n >= p.ReduceHalvingRanks, int(p.ReduceHalving)), 0, reduceHalving)

	o.add(coll.Allreduce, "ring", sizeIf(n > 2, sizeTimes(p.AllreduceRing, n)), 0, ringAllreduce)
	o.add(coll.Allreduce, "rabenseifner", sizeIf(n > 1, int(p.AllreduceHalving)), 0, allreduceHalving)

	halves := sizeIf(n >= 4, 0)
	o.add(coll.ReduceScatterBlock, "halving", halves, sizeAbove(int(p.ReduceScatterHalving)/n), reduceScatterHalving)
	o.add(coll.ReduceScatter, "halving", halves, sizeAbove(int(p.ReduceScatterHalving)), reduceScatterHalving)

	o.add(coll.Gather, "binomial", coll.Never, 0, gatherBinomial)

	few := n > 1 && n <= p.LinearRanks
	small := bruckLimit
	if bits.OnesCount(uint(n)) == 1 {
		small = int(p.AllgatherDoubling)
		o.add(coll.Allgather, "doubling", sizeIf(n > 2, 0), sizeAbove(small), allgatherDoubling)
	}
	if n == 2 { // All algorithms exchange one message each way. This one has the least overhead.
		o.add(coll.Allgather, "linear", 0, 0, allgatherLinear)
	} else {
		o.add(coll.Allgather, "linear", sizeIf(few, sizeAbove(small)), sizeAbove(int(p.AllgatherLinear)), allgatherLinear)
	}
	o.add(coll.Allgatherv, "linear", coll.Never, 0, allgatherLinear)

	bruck := sizeIf(n >= p.AlltoallBruckRanks, 0)
	o.add(coll.Alltoall, "bruck", bruck, sizeAbove(int(p.AlltoallBruck)), alltoallBruck)
	o.add(coll.Alltoall, "linear", sizeIf(few, 0), sizeAbove(int(p.AlltoallLinear)), alltoallLinear)
	o.add(coll.Alltoall, "pairs", coll.Never, 0, alltoallPairs)
	o.add(coll.Alltoallv, "linear", coll.Never, 0, alltoallLinear)
	o.add(coll.Alltoallv, "pairs", coll.Never, 0, alltoallPairs)
	return &o.Offer
}

// bruckLimit is the limit of coll/basic for Bruck's allgather.
const bruckLimit = 4 << 10

type offer struct{ coll.Offer }

// sizeIf returns size if the number of ranks is suitable, and coll.Never otherwise.
func sizeIf(right bool, size int) int {
	if !right {
		return coll.Never
	}
	return size
}

func (o *offer) add(op coll.Operation, name string, from, below int, plan func(*coll.Schedule, coll.Member, *coll.Args)) {
	o.Algorithms = append(o.Algorithms, coll.Algorithm{Op: op, Name: name, From: from, Below: below, Plan: plan})
}

// sizeAbove returns the size after one, or the largest size itself.
func sizeAbove(size int) int {
	if size == coll.Never {
		return coll.Never
	}
	return size + 1
}

// sizeTimes returns the product of a size and a number of ranks, saturated.
func sizeTimes(size framework.Size, n int) int {
	if int(size) > coll.Never/n {
		return coll.Never
	}
	return int(size) * n
}
