// Package basic has a collective component without requirements. It has one or two simple
// algorithms for each operation, over messages between two ranks.
//
// It keeps no state and starts no goroutines. Reductions always combine in the order of ranks, and
// all members of an allreduce compute bitwise equal results.
package basic

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// priority is the lowest. Any component with more knowledge of the machine is preferred.
const priority = 10

// Component returns the component for a registry.
func Component() coll.Component {
	return component{framework.Basic{
		Kind: framework.Coll, Name: "basic", Version: "2.0.0", Priority: priority,
		Summary: "all collectives, in simple algorithms over messages between two ranks",
	}}
}

type component struct{ framework.Basic }

func (component) Query(any, coll.Shape) *coll.Offer { return &offer }

// bruckLimit is the size of a block in bytes up to which fewer steps outweigh an additional copy of
// all bytes. It is about the size that is copied during the latency of a message.
const bruckLimit = 4 << 10

var offer = coll.Offer{Priority: priority, Algorithms: []coll.Algorithm{
	{Op: coll.Barrier, Name: "dissemination", Plan: barrier},
	{Op: coll.Bcast, Name: "binomial", Plan: bcast},
	{Op: coll.Reduce, Name: "binomial", Plan: reduce},
	{Op: coll.Allreduce, Name: "doubling", Plan: allreduce},
	{Op: coll.Scan, Name: "doubling", Plan: scan},
	{Op: coll.Exscan, Name: "doubling", Plan: exscan},
	{Op: coll.ReduceScatterBlock, Name: "pairwise", Plan: reduceScatter},
	{Op: coll.ReduceScatter, Name: "pairwise", Plan: reduceScatter},
	{Op: coll.Gather, Name: "linear", Plan: gather},
	{Op: coll.Gatherv, Name: "linear", Plan: gather},
	{Op: coll.Scatter, Name: "linear", Plan: scatter},
	{Op: coll.Scatterv, Name: "linear", Plan: scatter},
	{Op: coll.Allgather, Name: "bruck", Below: bruckLimit + 1, Plan: bruck},
	{Op: coll.Allgather, Name: "ring", From: bruckLimit + 1, Plan: ring},
	{Op: coll.Allgatherv, Name: "ring", Plan: ring},
	{Op: coll.Alltoall, Name: "pairwise", Plan: alltoall},
	{Op: coll.Alltoallv, Name: "pairwise", Plan: alltoall},
}}

// barrier is a dissemination barrier (Hensgen, Finkel and Manber 1988). In step k every member
// signals the one 2^k above it. After the last step each has a direct or indirect signal of all.
func barrier(s *coll.Schedule, m coll.Member, _ *coll.Args) {
	for k := 1; k < m.Size; k <<= 1 {
		s.Exchange(coll.Ref{}, 0, m.Plus(k), coll.Ref{}, 0, m.Plus(-k))
	}
}

// bcast sends down a binomial tree of relative ranks.
func bcast(s *coll.Schedule, m coll.Member, a *coll.Args) {
	buf := coll.Ref{Slot: coll.Out}
	me := relative(m.Rank, a.Root, m.Size)
	bit := 1
	for ; bit < m.Size && me&bit == 0; bit <<= 1 {
	}
	if me != 0 { // bit is the lowest one of me. The parent's rank is me without it.
		s.Recv(buf, a.Size, absolute(me-bit, a.Root, m.Size))
		s.Wait()
	}
	for bit >>= 1; bit > 0; bit >>= 1 {
		if me+bit < m.Size {
			s.Send(buf, a.Size, absolute(me+bit, a.Root, m.Size))
		}
	}
}

// relative returns the distance from root to rank in the ring of ranks. absolute is its inverse.
func relative(rank, root, n int) int { return (rank - root + n) % n }
func absolute(rel, root, n int) int  { return (rel + root) % n }
