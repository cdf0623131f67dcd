// Package coll is the contract of collective components, and executes collective operations.
//
// A component offers algorithms for the shape of a communicator. Package mpi selects the best one
// for each operation and size (Table). An algorithm writes a Schedule, a list of steps with their
// dependencies, from the arguments alone. A blocking call executes the schedule on the goroutine of
// the caller (Schedule.Inline). For a nonblocking call, the progress engine advances it (Run). A
// component therefore depends on no PML or transport, and never waits. Query and Plan run on the
// goroutine that calls the collective, without the engine's lock.
//
// docs/decisions/collectives.md has the reasons.
package coll

import (
	"fmt"
	"hash/fnv"
	"math"

	"github.com/ferrympi/ferry/framework"
)

// Component is a registered collective component.
type Component interface {
	framework.Component
	// Query returns the algorithms that the component offers on a communicator of that shape, or
	// nil. It sends no messages, and its result is equal in all members.
	Query(params any, shape Shape) *Offer
}

// Shape describes a communicator, equally in all members. Its size does not grow with the number of
// ranks.
type Shape struct {
	Size int
	// Nodes has the node of each rank, and is nil if all are on one. A process with an unknown node
	// has a node of its own.
	Nodes Placement
	// Procs has the process of each rank, and is nil if each rank is a separate process.
	Procs Placement
}

// Proc returns the process of a rank.
func (s Shape) Proc(rank int) int {
	if s.Procs == nil {
		return rank
	}
	return s.Procs.Node(rank)
}

// ProcMates returns the ranks of a process in ascending order.
func (s Shape) ProcMates(proc int) []int {
	if s.Procs == nil {
		return []int{proc}
	}
	return s.Procs.Ranks(proc)
}

// HasSharedProcs reports whether a process has several ranks.
func (s Shape) HasSharedProcs() bool {
	return s.Procs != nil && s.Procs.Count() < s.Size
}

// MaxPerProc returns the largest number of ranks of a process.
func (s Shape) MaxPerProc() int {
	if s.Procs == nil {
		return 1
	}
	return s.Procs.Largest()
}

// ProcsAsNodes returns the shape for components whose members share memory on a node. If a process
// has several ranks, each process counts as a node. Otherwise the shape is unchanged.
func (s Shape) ProcsAsNodes() Shape {
	if !s.HasSharedProcs() {
		return s
	}
	if s.Nodes = s.Procs; s.Nodes.Count() == 1 {
		s.Nodes = nil
	}
	return s
}

// ByNode returns the nodes of the ranks. Unlike Nodes it is not nil if all are on one.
func (s Shape) ByNode() Placement {
	if s.Nodes == nil {
		return OnOneNode(s.Size)
	}
	return s.Nodes
}

// Node returns the node of a rank.
func (s Shape) Node(rank int) int {
	if s.Nodes == nil {
		return 0
	}
	return s.Nodes.Node(rank)
}

// NodeMates returns the ranks on a node in ascending order.
func (s Shape) NodeMates(node int) []int { return s.ByNode().Ranks(node) }

// Offer has the algorithms of a component for communicators of one shape. It is immutable.
type Offer struct {
	// Priority decides among components that offer an operation at the same size. The highest wins.
	Priority   int
	Algorithms []Algorithm
	// Open, if not nil, opens this member's part of the resources that the algorithms need besides
	// messages. All members call it in the second blocking collective at the earliest, so that a
	// communicator with a single collective costs nothing. The offer does not count before that.
	Open func(Env) (Instance, error)
}

// Checksum returns a checksum of the properties that must be equal in all members. Members with
// different parameters have different checksums.
func (o *Offer) Checksum() uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, o.Priority)
	for _, a := range o.Algorithms {
		fmt.Fprintf(h, " %v:%s %d %d", a.Op, a.Name, a.From, a.Below)
	}
	return h.Sum32()
}

// Algorithm is one algorithm for one operation.
type Algorithm struct {
	Op Operation
	// Name is that of the literature, such as "ring" or "binomial".
	Name string
	// The algorithm serves From <= Args.Size < Below. A Below of 0 is no limit. With a From of
	// Never, only coll.force selects it.
	From, Below int
	// Plan writes the steps of member m. It is a pure function of its arguments and retains none of
	// them. The caller owns s, which is empty.
	Plan func(s *Schedule, m Member, a *Args)
}

// Never is a From above all sizes.
const Never = math.MaxInt

// Member is a rank of a communicator.
type Member struct{ Rank, Size int }

// Plus returns the rank at distance k in the ring of ranks, -Size < k < Size.
func (m Member) Plus(k int) int { return (m.Rank + k + m.Size) % m.Size }

// Operation is a collective operation.
type Operation uint8

// Operations of all members. In is the memory that a member contributes, and Out that of its
// result. Several blocks follow one another in the order of ranks.
const (
	Barrier            Operation = iota
	Bcast                        // Out has Size bytes, and the root's are copied to all.
	Reduce                       // In has Size bytes. The result is in Out at the root.
	Allreduce                    // In and Out have Size bytes.
	Scan                         // In and Out have Size bytes.
	Exscan                       // In and Out have Size bytes. Out of rank 0 is unchanged.
	ReduceScatterBlock           // In has Size bytes for each rank, and Out has Size bytes.
	ReduceScatter                // In follows Vectors, and Out has OwnSize bytes. Size is that of all of In.
	Gather                       // In has Size bytes. Out at the root has as many for each rank.
	Gatherv                      // In has OwnSize bytes. Out at the root follows Vectors. Size is 0.
	Scatter                      // In at the root has Size bytes for each rank, and Out has OwnSize bytes. The selection uses a size of 0.
	Scatterv                     // In at the root follows Vectors, and Out has OwnSize bytes. Size is 0.
	Allgather                    // In has Size bytes. Out has as many for each rank.
	Allgatherv                   // In has OwnSize bytes, and Out follows Vectors. Size is that of all of Out.
	Alltoall                     // In has Size bytes for each rank, and so has Out.
	Alltoallv                    // In and Out follow Vectors. Size is 0.
	operationCount
)

// Operations is the number of operations that components offer.
const Operations = int(operationCount)

// Operations among neighbors. A Neighborhood has their algorithms. Blocks are in the order of its
// Destinations and Sources. Members need not pass equal sizes.
const (
	NeighborAllgather  = operationCount + iota // In has OwnSize bytes, for each destination. Out has Size bytes of each source.
	NeighborAllgatherv                         // In has OwnSize bytes, and Out follows Vectors. Size is 0.
	NeighborAlltoall                           // In has Size bytes for each destination, and Out as many of each source.
	NeighborAlltoallv                          // In and Out follow Vectors. Size is 0.
)

var operationNames = [...]string{"barrier", "bcast", "reduce", "allreduce", "scan", "exscan", "reduce_scatter_block", "reduce_scatter",
	"gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv",
	"neighbor_allgather", "neighbor_allgatherv", "neighbor_alltoall", "neighbor_alltoallv"}

// String returns the name in MPI's notation.
func (o Operation) String() string { return operationNames[o] }

// Args are the arguments of a call that determine its schedule. Numbers of bytes are those of whole
// elements. Equal arguments have equal fields.
type Args struct {
	Root int
	// Size is the size of a block in bytes, by which algorithms are selected. It is equal in all
	// members. It is therefore 0 for operations whose members do not know each other's lengths.
	Size int
	// OwnSize is the size of this member's block where blocks differ, and Size otherwise.
	OwnSize int
	// IsInPlace means that In is Out, with the contents that the standard specifies.
	IsInPlace bool
	// ElemSize is the size of an element of a reduction, 0 for a type without bytes, whose sizes are
	// all 0. Unless IsOrdered is set, a reduction may combine operands in any order of ranks. An
	// ordered one computes ((0 op 1) op 2) ... up to associativity.
	ElemSize  int
	IsOrdered bool
	// IsQuick is Reducer.IsQuick, which may differ between members.
	IsQuick bool
	// Vectors has the positions of blocks whose sizes differ. Nil means consecutive blocks of Size
	// bytes.
	Vectors *Vectors
}

// Vectors has the sizes and offsets of blocks in bytes, by rank or by neighbor. A side that the
// operation does not have at this member is nil.
type Vectors struct{ SendCounts, SendOffsets, RecvCounts, RecvOffsets []int }

// Input returns the position of this member's contribution, which is In or, in place, Out.
func (a *Args) Input() Ref {
	if a.IsInPlace {
		return Ref{Slot: Out}
	}
	return Ref{Slot: In}
}

// SendBlock returns the position in the input of the block for rank, and its size in bytes.
func (a *Args) SendBlock(rank int) (Ref, int) {
	if v := a.Vectors; v != nil && v.SendCounts != nil {
		return a.Input().Plus(v.SendOffsets[rank]), v.SendCounts[rank]
	}
	return a.Input().Plus(rank * a.Size), a.Size
}

// RecvBlock returns the position in Out of the block from rank, and its size in bytes.
func (a *Args) RecvBlock(rank int) (Ref, int) {
	if v := a.Vectors; v != nil && v.RecvCounts != nil {
		return Ref{Out, v.RecvOffsets[rank]}, v.RecvCounts[rank]
	}
	return Ref{Out, rank * a.Size}, a.Size
}

// Reducer is a reduction of elements of one size.
type Reducer struct {
	// Apply computes inout = in op inout for each element, where in is the operand of the lower
	// ranks (MPI-4.1 section 6.9.5). The slices have the same length and do not overlap.
	Apply func(inout, in []byte)
	// Name is that of a predefined operation, such as "sum", and empty for a user's operation.
	Name string
	// IsQuick is set for predefined operations. A small one may run with the engine's lock held, also
	// in a step of kind Own. User functions never do.
	IsQuick bool
}

// MaxTag is the largest tag of a collective's messages.
const MaxTag = 1<<15 - 1
