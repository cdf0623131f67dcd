package tuned

import (
	"math/bits"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// params are the component's parameters; each is coll.tuned.NAME. "Hosts" are 4 and 8 of
// them with a rank each and links of 400 Mbit/s (network namespaces of one machine, btl
// tcp), "a node" is 2 processors with 2, 4 and 8 ranks (btl shm). Both were measured by
// ferry bench NAME with each algorithm forced in turn; docs/collectives.md has figures.
type params struct {
	BcastScatter         framework.Size `param:"bcast_scatter" default:"32KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"From this size on bcast scatters and gathers, with bcast_scatter_ranks or more. Bench bcast on hosts: 1.1 to 2.2 times as fast as binomial from here on, and slower below."`
	BcastScatterRanks    int            `param:"bcast_scatter_ranks" default:"4" min:"2" level:"tuner" scope:"process" doc:"Fewer ranks than this do not scatter in bcast. Bench bcast on a node: slower with 2 ranks, faster with 4."`
	BcastChain           framework.Size `param:"bcast_chain" default:"16KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"From this size times the number of ranks on, with more than 2 that are not all on one node, bcast goes along a chain in segments. Bench bcast on hosts: twice as fast as binomial from there on with 4 ranks, and 2.6 times with 8; on a node 1.5 times slower, 512 KiB with 8."`
	BcastSegment         framework.Size `param:"bcast_segment" default:"16KiB" min:"64B" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Bytes of a segment of bcast. Bench bcast on 6 hosts, 128 KiB: 1.4 ms, against 1.7 with 64 KiB; 2 MiB takes the same."`
	ReduceHalving        framework.Size `param:"reduce_halving" default:"32KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"From this size on reduce halves (Rabenseifner), with reduce_halving_ranks or more. Bench reduce on hosts: 1.1 to 1.3 times as fast as binomial with 8 ranks from here on, and slower below."`
	ReduceHalvingRanks   int            `param:"reduce_halving_ranks" default:"8" min:"2" level:"tuner" scope:"process" doc:"Fewer ranks than this do not halve in reduce. Bench reduce on hosts: the chain is as fast with 4."`
	ReduceChain          framework.Size `param:"reduce_chain" default:"16KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"From this size times the number of ranks on reduce goes along a chain in segments, if the ranks are not all on one node. Bench reduce on hosts: 1.5 to 2.1 times as fast as binomial from there on with 4 ranks; on a node 1.7 times slower, 512 KiB with 4."`
	ReduceSegment        framework.Size `param:"reduce_segment" default:"16KiB" min:"64B" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Bytes of a segment of reduce; whole elements. Bench reduce on 6 hosts, 128 KiB: 1.1 ms, against 2.1 with 64 KiB; 2 MiB takes the same."`
	AllreduceHalving     framework.Size `param:"allreduce_halving" default:"32KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"From this size on allreduce halves and doubles (Rabenseifner). Bench allreduce: 1.3 times as fast as doubling on a node with 2 ranks and 2.1 times on 4 hosts from here on, and slower below."`
	AllreduceRing        framework.Size `param:"allreduce_ring" default:"128KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"From this size times the number of ranks on, with more than 2, allreduce goes round a ring. Bench allreduce on hosts, 1 MiB: 1.2 times as fast as halving with 4 and 8 ranks, and as fast below."`
	ReduceScatterHalving framework.Size `param:"reduce_scatter_halving" default:"64KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Up to this size of all blocks together reduce_scatter and reduce_scatter_block halve, with 4 ranks or more. Bench reduce_scatter: 1.7 to 3.6 times as fast as pairwise with 8 ranks on hosts, 1.1 to 2.4 on a node; slower above, and with 2."`
	AllgatherDoubling    framework.Size `param:"allgather_doubling" default:"16KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Blocks up to this size are gathered in all by doubling, where the number of ranks is a power of two. Bench allgather on a node: 1.1 to 1.4 times as fast as bruck and ring with 4 and 8 ranks."`
	AllgatherLinear      framework.Size `param:"allgather_linear" default:"64KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Blocks above 4 KiB or allgather_doubling go to all at once up to this size, with linear_ranks or fewer. Bench allgather on 8 hosts: 1.2 to 3 times as fast as ring up to here; the ring is as fast above."`
	AlltoallBruck        framework.Size `param:"alltoall_bruck" default:"256B" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Blocks up to this size travel in log2 n steps, with alltoall_bruck_ranks or more. Bench alltoall on a node: 1.1 to 2.8 times as fast as linear with 8 ranks, and slower above."`
	AlltoallBruckRanks   int            `param:"alltoall_bruck_ranks" default:"8" min:"2" level:"tuner" scope:"process" doc:"Fewer ranks than this do not take log2 n steps. Bench alltoall: no faster with 4 on hosts or a node."`
	AlltoallLinear       framework.Size `param:"alltoall_linear" default:"64KiB" min:"0" unit:"bytes" level:"tuner" scope:"process" doc:"Larger blocks go to all at once up to this size, with linear_ranks or fewer. Bench alltoall: 1.4 to 3 times as fast as pairwise on a node with 8 ranks, 2 to 5 times on hosts up to 16 KiB; pairwise is as fast above."`
	LinearRanks          int            `param:"linear_ranks" default:"32" min:"2" level:"tuner" scope:"process" doc:"More ranks than this do not talk to all at once: so many messages are under way (measured with up to 8)."`
}

// Query implements coll.Component.
func (component) Query(given any, shape coll.Shape) *coll.Offer {
	p, n := given.(*params), shape.Size
	o := &offer{Offer: coll.Offer{Priority: priority}}

	// On one node a chain's steps share the processors that its segments were to keep busy.
	hosts := shape.Nodes != nil
	chain := when(hosts && n > 2, times(p.BcastChain, n))
	scatter := when(n >= p.BcastScatterRanks, int(p.BcastScatter))
	o.add(coll.Bcast, "chain", chain, 0, p.bcastChain)
	o.add(coll.Bcast, "scatter", scatter, 0, bcastScatter)
	o.add(coll.Bcast, "binomial", coll.Never, 0, p.bcastBinomial)

	o.add(coll.Reduce, "chain", when(hosts, times(p.ReduceChain, n)), 0, p.reduceChain)
	o.add(coll.Reduce, "rabenseifner", when(n >= p.ReduceHalvingRanks, int(p.ReduceHalving)), 0, reduceHalving)

	o.add(coll.Allreduce, "ring", when(n > 2, times(p.AllreduceRing, n)), 0, ringAllreduce)
	o.add(coll.Allreduce, "rabenseifner", when(n > 1, int(p.AllreduceHalving)), 0, allreduceHalving)

	halves := when(n >= 4, 0)
	o.add(coll.ReduceScatterBlock, "halving", halves, above(int(p.ReduceScatterHalving)/n), reduceScatterHalving)
	o.add(coll.ReduceScatter, "halving", halves, above(int(p.ReduceScatterHalving)), reduceScatterHalving)

	o.add(coll.Gather, "binomial", coll.Never, 0, gatherBinomial)

	few := n > 1 && n <= p.LinearRanks
	small := bruckLimit
	if bits.OnesCount(uint(n)) == 1 {
		small = int(p.AllgatherDoubling)
		o.add(coll.Allgather, "doubling", when(n > 2, 0), above(small), allgatherDoubling)
	}
	if n == 2 { // one message each in all algorithms, and the least around it
		o.add(coll.Allgather, "linear", 0, 0, allgatherLinear)
	} else {
		o.add(coll.Allgather, "linear", when(few, above(small)), above(int(p.AllgatherLinear)), allgatherLinear)
	}
	o.add(coll.Allgatherv, "linear", coll.Never, 0, allgatherLinear)

	bruck := when(n >= p.AlltoallBruckRanks, 0)
	o.add(coll.Alltoall, "bruck", bruck, above(int(p.AlltoallBruck)), alltoallBruck)
	o.add(coll.Alltoall, "linear", when(few, 0), above(int(p.AlltoallLinear)), alltoallLinear)
	o.add(coll.Alltoall, "pairs", coll.Never, 0, alltoallPairs)
	o.add(coll.Alltoallv, "linear", coll.Never, 0, alltoallLinear)
	o.add(coll.Alltoallv, "pairs", coll.Never, 0, alltoallPairs)
	return &o.Offer
}

// bruckLimit is the block up to which coll/basic has Bruck's allgather.
const bruckLimit = 4 << 10

type offer struct{ coll.Offer }

// when is size, or never if the number of ranks is not right.
func when(right bool, size int) int {
	if !right {
		return coll.Never
	}
	return size
}

func (o *offer) add(op coll.Operation, name string, from, below int, plan func(*coll.Schedule, coll.Member, *coll.Args)) {
	o.Algorithms = append(o.Algorithms, coll.Algorithm{Op: op, Name: name, From: from, Below: below, Plan: plan})
}

// above is the size after one; the largest that there is has none.
func above(size int) int {
	if size == coll.Never {
		return coll.Never
	}
	return size + 1
}

// times is a size times a number of ranks.
func times(size framework.Size, n int) int {
	if int(size) > coll.Never/n {
		return coll.Never
	}
	return int(size) * n
}
