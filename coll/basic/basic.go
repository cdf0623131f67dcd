// Package basic has a collective component that works everywhere: one simple
// algorithm for each operation, or two, over messages between two ranks.
//
// It stands on package coll alone, keeps no state, and starts no goroutine.
// Reductions combine in the order of ranks always, and every member of an allreduce
// computes bit for bit the same.
package basic

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// priority is low: anything that knows more about the machine does better.
const priority = 10

// Component returns the component, for a registry.
func Component() coll.Component {
	return component{framework.Basic{
		Kind: framework.Coll, Name: "basic", Version: "2.0.0", Priority: priority,
		Summary: "all collectives, in simple algorithms over messages between two ranks",
	}}
}

type component struct{ framework.Basic }

func (component) Query(any, coll.Shape) *coll.Offer { return &offer }

// bruckLimit is the size of a block, in bytes, up to which few steps matter more
// than copying every byte once more: as much as is copied while a message travels.
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

// barrier is a dissemination barrier (Hensgen, Finkel and Manber 1988): in step
// k every member signals the one 2^k above it, so that after the last step each
// has heard, directly or not, of all.
func barrier(s *coll.Schedule, m coll.Member, _ *coll.Args) {
	for k := 1; k < m.Size; k <<= 1 {
		s.Exchange(coll.Ref{}, 0, m.Plus(k), coll.Ref{}, 0, m.Plus(-k))
	}
}

// bcast sends down a binomial tree whose ranks count from the root.
func bcast(s *coll.Schedule, m coll.Member, a *coll.Args) {
	buf := coll.Ref{Slot: coll.Out}
	me := relative(m.Rank, a.Root, m.Size)
	bit := 1
	for ; bit < m.Size && me&bit == 0; bit <<= 1 {
	}
	if me != 0 { // bit is the lowest one of me: the parent lacks it
		s.Recv(buf, a.Size, absolute(me-bit, a.Root, m.Size))
		s.Wait()
	}
	for bit >>= 1; bit > 0; bit >>= 1 {
		if me+bit < m.Size {
			s.Send(buf, a.Size, absolute(me+bit, a.Root, m.Size))
		}
	}
}

// relative counts ranks from root; absolute is its inverse.
func relative(rank, root, n int) int { return (rank - root + n) % n }
func absolute(rel, root, n int) int  { return (rel + root) % n }
