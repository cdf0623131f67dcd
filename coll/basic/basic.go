// Package basic has a collective component that works everywhere: the classic
// algorithms with a logarithmic number of steps, over point-to-point messages.
//
// It stands on package coll alone, keeps no state, and starts no goroutine.
// Reductions keep the order of ranks in all cases where the operation does not
// commute, and every member of an allreduce computes bit for bit the same.
package basic

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// priority is low: anything that knows more about the machine does better.
const priority = 10

// The tags of the operations. One each is enough: messages between two ranks
// keep their order, and every member makes the same calls in the same order.
const (
	tagBarrier = iota
	tagBcast
	tagReduce
	tagAllreduce
	tagAllgather
)

// Component returns the component, for a registry.
func Component() coll.Component {
	return component{framework.Basic{
		Kind: framework.Coll, Name: "basic", Version: "1.0.0", Priority: priority,
		Summary: "collectives in a logarithmic number of point-to-point steps",
	}}
}

type component struct{ framework.Basic }

func (component) Query(any, coll.Peers) *coll.Ops {
	return &coll.Ops{
		Priority:  priority,
		Barrier:   barrier,
		Bcast:     bcast,
		Reduce:    reduce,
		Allreduce: allreduce,
		Allgather: allgather,
	}
}

// barrier is a dissemination barrier (Hensgen, Finkel and Manber 1988): in step
// k every member signals the one 2^k above it, so that after the last step each
// has heard, directly or not, of all.
func barrier(ctx context.Context, p coll.Peers) error {
	n, me := p.Size(), p.Rank()
	for k := 1; k < n; k <<= 1 {
		if _, err := p.SendRecv(ctx, nil, (me+k)%n, nil, (me-k+n)%n, tagBarrier); err != nil {
			return err
		}
	}
	return nil
}

// bcast sends down a binomial tree whose ranks count from the root.
func bcast(ctx context.Context, p coll.Peers, buf []byte, root int) error {
	n := p.Size()
	if n == 1 || len(buf) == 0 {
		return nil
	}
	me := relative(p.Rank(), root, n)
	bit := 1
	for ; bit < n && me&bit == 0; bit <<= 1 {
	}
	if me != 0 { // bit is the lowest one of me: the parent lacks it
		if err := recvAll(ctx, p, buf, absolute(me-bit, root, n), tagBcast); err != nil {
			return err
		}
	}
	for bit >>= 1; bit > 0; bit >>= 1 {
		if me+bit < n {
			if err := p.Send(ctx, buf, absolute(me+bit, root, n), tagBcast); err != nil {
				return err
			}
		}
	}
	return nil
}

// relative counts ranks from root; absolute is its inverse.
func relative(rank, root, n int) int { return (rank - root + n) % n }
func absolute(rel, root, n int) int  { return (rel + root) % n }

// recvAll receives exactly len(buf) bytes.
func recvAll(ctx context.Context, p coll.Peers, buf []byte, src, tag int) error {
	got, err := p.Recv(ctx, buf, src, tag)
	return whole(got, len(buf), src, err)
}

// whole turns a message that is too short into an error. One that is too long
// is ErrTruncate already.
func whole(got, want, src int, err error) error {
	if err == nil && got != want {
		return fmt.Errorf("collective: rank %d sent %d bytes where %d were expected: members must pass equal lengths", src, got, want)
	}
	return err
}
