// Package coll is the contract of collective components, and what carries
// collective operations out.
//
// A component looks at the shape of a communicator and offers algorithms. Package
// mpi takes the best for each operation and size (Table). An algorithm writes a
// Schedule: steps, and what each waits for, made from the arguments alone. It is
// written once: a blocking call carries the schedule out inline, on the caller's
// goroutine (Schedule.Inline); for a nonblocking one the progress engine moves it
// on (Run). So a component knows neither PMLs nor transports, and never waits.
// Query and Plan run on the goroutine that calls the collective, without the engine's lock.
//
// docs/decisions/collectives.md has the reasons.
package coll

import (
	"fmt"
	"hash/fnv"
	"math"

	"github.com/ferrympi/ferry/framework"
)

// Component is what a collective component registers.
type Component interface {
	framework.Component
	// Query returns what the component offers on a communicator of that shape, or nil.
	// It exchanges nothing. Every member's comes to the same answer.
	Query(params any, shape Shape) *Offer
}

// Shape describes a communicator, equally in all members. It has no entry for each rank, so that it is small for large communicators, too.
type Shape struct {
	Size int
	// Nodes has the node of each rank, and is nil if all are on one. A process with an unknown node has a separate one.
	Nodes Placement
	// Procs has the process of each rank in place of the node, and is nil if each rank is a separate process.
	Procs Placement
}

// Proc returns the process of a rank.
func (s Shape) Proc(rank int) int {
	if s.Procs == nil {
		return rank
	}
	return s.Procs.Node(rank)
}

// ProcMates returns the ranks of a process, ascending.
func (s Shape) ProcMates(proc int) []int {
	if s.Procs == nil {
		return []int{proc}
	}
	return s.Procs.Ranks(proc)
}

// SharesProcs reports whether a process has several ranks.
func (s Shape) SharesProcs() bool {
	return s.Procs != nil && s.Procs.Count() < s.Size
}

// MostPerProc returns the largest number of ranks of a process.
func (s Shape) MostPerProc() int {
	if s.Procs == nil {
		return 1
	}
	return s.Procs.Largest()
}

// ProcsAsNodes returns the shape for components whose members share memory on a node: each
// process counts as a node if a process has several ranks. Otherwise it is the shape itself.
func (s Shape) ProcsAsNodes() Shape {
	if !s.SharesProcs() {
		return s
	}
	if s.Nodes = s.Procs; s.Nodes.Count() == 1 {
		s.Nodes = nil
	}
	return s
}

// ByNode returns the nodes of the ranks, also if all are on one.
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

// Mates returns the ranks on a node, ascending.
func (s Shape) Mates(node int) []int { return s.ByNode().Ranks(node) }

// Offer is what a component would do on communicators of one shape. It is immutable.
type Offer struct {
	// Priority decides between components that offer an operation at the same size.
	Priority   int
	Algorithms []Algorithm
	// Open, if not nil, opens this member's part of what the algorithms need besides
	// messages. It is called in all members, in a blocking collective: the second one at the
	// earliest, so that a communicator with a single one costs nothing. Until then the offer
	// doesn't count.
	Open func(Env) (Instance, error)
}

// Terms is a sum over what all members must offer alike. Parameters that differ make
// another one.
func (o *Offer) Terms() uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, o.Priority)
	for _, a := range o.Algorithms {
		fmt.Fprintf(h, " %v:%s %d %d", a.Op, a.Name, a.From, a.Below)
	}
	return h.Sum32()
}

// Algorithm is one way to do one operation.
type Algorithm struct {
	Op   Operation
	Name string // of the field: "ring", "binomial"
	// From and Below bound Args.Size: From <= size < Below; Below 0 is no bound, and From
	// Never leaves it to coll.force.
	From, Below int
	// Plan writes what this member does. It is a function of the arguments alone,
	// and keeps none of them. s is empty, and the caller's.
	Plan func(s *Schedule, m Member, a *Args)
}

// Never is a From that no size reaches.
const Never = math.MaxInt

// Member is a rank of a communicator.
type Member struct{ Rank, Size int }

// Plus returns the rank k further round the communicator, -Size < k < Size.
func (m Member) Plus(k int) int { return (m.Rank + k + m.Size) % m.Size }

// Operation is a collective operation.
type Operation uint8

// The operations. In has what a member gives, Out what it gets, block after block in
// the order of ranks where there are several.
const (
	Barrier            Operation = iota
	Bcast                        // Out, of Size bytes: the root's becomes everybody's
	Reduce                       // In, of Size bytes; Out at the root
	Allreduce                    // In and Out of Size bytes
	Scan                         // In and Out of Size bytes
	Exscan                       // In and Out of Size bytes; rank 0's Out stays as it is
	ReduceScatterBlock           // In: Size bytes for each rank; Out: Size bytes
	ReduceScatter                // In: Vectors; Out: Own bytes. Size: all of In
	Gather                       // In: Size bytes; Out, at the root: as many for each rank
	Gatherv                      // In: Own bytes; Out, at the root: Vectors. Size: 0
	Scatter                      // In, at the root: Size bytes for each rank; Out: Own bytes. Chosen as if Size were 0
	Scatterv                     // In, at the root: Vectors; Out: Own bytes. Size: 0
	Allgather                    // In: Size bytes; Out: as many of each rank
	Allgatherv                   // In: Own bytes; Out: Vectors. Size: all of Out
	Alltoall                     // In: Size bytes for each rank; Out: as many of each
	Alltoallv                    // In and Out: Vectors. Size: 0
	operations
)

// Operations is the number of operations that components offer.
const Operations = int(operations)

// The operations among neighbors. A Neighborhood has their algorithms, and blocks are in the order of its Destinations and
// Sources. Members need not pass equal sizes.
const (
	NeighborAllgather  = operations + iota // In has Own bytes, for each destination. Out has Size bytes of each source.
	NeighborAllgatherv                     // In has Own bytes, and Out follows Vectors. Size is 0.
	NeighborAlltoall                       // In has Size bytes for each destination, and Out as many of each source.
	NeighborAlltoallv                      // In and Out follow Vectors. Size is 0.
)

var names = [...]string{"barrier", "bcast", "reduce", "allreduce", "scan", "exscan", "reduce_scatter_block", "reduce_scatter",
	"gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv",
	"neighbor_allgather", "neighbor_allgatherv", "neighbor_alltoall", "neighbor_alltoallv"}

// String is the name as MPI writes it.
func (o Operation) String() string { return names[o] }

// Args are the arguments of a call, as far as they make its schedule. All numbers of
// bytes are in whole elements. Arguments are equal if their fields are.
type Args struct {
	Root int
	// Size is the size of a block in bytes, and what algorithms are chosen by. That is the
	// same in all members, hence 0 where they don't know each other's lengths: see the
	// operations.
	Size int
	// Own is the size of this member's own block where blocks differ, and Size elsewhere.
	Own int
	// InPlace: In is Out, with what the standard says lies there.
	InPlace bool
	// Elem is the size of an element of a reduction: 0 for a type without bytes, where all
	// sizes are 0. A reduction that is not Ordered may combine
	// operands in any order of ranks; otherwise ((0 op 1) op 2) ... up to associativity.
	Elem    int
	Ordered bool
	// Quick: the reduction is (Reducer.Quick). It may differ between members.
	Quick bool
	// Vectors are where blocks lie whose sizes differ; nil: block after block of Size.
	Vectors *Vectors
}

// Vectors are the sizes and places of blocks by rank, or by neighbor, in bytes. A side that the
// operation does not have at this member is nil.
type Vectors struct{ SendCounts, SendAt, RecvCounts, RecvAt []int }

// Input is where this member's contribution lies: In or, in place, Out.
func (a *Args) Input() Ref {
	if a.InPlace {
		return Ref{Slot: Out}
	}
	return Ref{Slot: In}
}

// SendBlock is where what goes to rank lies in the input, and how many bytes it has.
func (a *Args) SendBlock(rank int) (Ref, int) {
	if v := a.Vectors; v != nil && v.SendCounts != nil {
		return a.Input().Plus(v.SendAt[rank]), v.SendCounts[rank]
	}
	return a.Input().Plus(rank * a.Size), a.Size
}

// RecvBlock is where what comes from rank lies in Out, and how many bytes it has.
func (a *Args) RecvBlock(rank int) (Ref, int) {
	if v := a.Vectors; v != nil && v.RecvCounts != nil {
		return Ref{Out, v.RecvAt[rank]}, v.RecvCounts[rank]
	}
	return Ref{Out, rank * a.Size}, a.Size
}

// Reducer is a reduction over elements of one size.
type Reducer struct {
	// Apply computes inout = in op inout, element by element: in is the operand of
	// the lower ranks (MPI-4.1 section 6.9.5). The slices have the same length and
	// do not overlap.
	Apply func(inout, in []byte)
	// Name is "sum", "max" and so on; empty: the program's own.
	Name string
	// Quick says that Apply is the library's own, so that a small one may run with the
	// engine's lock held, also in a step of kind Own. The program's never do.
	Quick bool
}

// MaxTag is the largest tag of a collective's messages.
const MaxTag = 1<<15 - 1
