// Package coll is the contract of collective components. A component looks at
// a communicator and says which operations it would do there, and how well;
// package mpi takes the best per operation. Operations run over a tiny
// point-to-point interface, so that a component needs to know neither PMLs nor
// transports.
package coll

import (
	"context"

	"github.com/ferrympi/ferry/framework"
)

// Component is what a collective component registers.
type Component interface {
	framework.Component
	// Query returns the operations that the component offers on a communicator,
	// or nil if none. It exchanges nothing, and every member's Query must come to
	// the same answer: it may look at the size of p, and not at its rank.
	Query(params any, p Peers) *Ops
}

// Peers is a communicator as collectives see it. Messages travel on the
// collective plane: they never meet the user's. Tags are the library's: an
// operation uses any tag from 0 to MaxTag, and may rely on the order of messages
// between two ranks.
//
// Buffers are the callee's until the call returns (Send, Recv, SendRecv).
// Errors are those of package mpi; a collective returns the first one as it is.
type Peers interface {
	Rank() int
	Size() int
	Send(ctx context.Context, buf []byte, dst, tag int) error
	// Recv fails with ErrTruncate if the message is longer than buf, and returns
	// the number of bytes received.
	Recv(ctx context.Context, buf []byte, src, tag int) (int, error)
	// SendRecv does both at once, without deadlock.
	SendRecv(ctx context.Context, send []byte, dst int, recv []byte, src, tag int) (int, error)
	// Scratch returns n bytes of working memory; Release gives them back. What
	// they hold is undefined.
	Scratch(n int) []byte
	Release([]byte)
}

// MaxTag is the largest tag a collective may use.
const MaxTag = 1<<15 - 1

// Reducer is a reduction over elements of one size.
type Reducer struct {
	// ElemSize is the size of an element in bytes; buffers hold whole elements.
	ElemSize int
	// Commutative operations may be combined in any order of ranks. Others must
	// be combined in the order of ranks: ((0 op 1) op 2) ... up to associativity.
	Commutative bool
	// Apply computes inout = in op inout, element by element: in is the operand of
	// the lower ranks (MPI-4.1 section 6.9.5). The slices have the same length and
	// do not overlap.
	Apply func(inout, in []byte)
}

// Ops are the operations of one component on one communicator. A nil function
// is an operation that it leaves to others. Priority decides among those that
// offer the same one. All functions block until this member's part is done.
type Ops struct {
	Priority int

	Barrier func(ctx context.Context, p Peers) error
	// Bcast sends root's buf to all others' buf, which has the same length.
	Bcast func(ctx context.Context, p Peers, buf []byte, root int) error
	// Reduce combines every member's send into root's recv. recv is used at the
	// root only; send and recv may be the same slice there (in place).
	Reduce func(ctx context.Context, p Peers, send, recv []byte, r Reducer, root int) error
	// Allreduce combines every member's send into every recv. send and recv may
	// be the same slice (in place).
	Allreduce func(ctx context.Context, p Peers, send, recv []byte, r Reducer) error
	// Allgather concatenates every member's send, all of the same length, in the
	// order of ranks into every recv.
	Allgather func(ctx context.Context, p Peers, send, recv []byte) error
}
