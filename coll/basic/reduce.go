package basic

import (
	"context"

	"github.com/ferrympi/ferry/coll"
)

// reduce goes up a binomial tree. The member with relative rank v combines, in
// step k, what it has for [v, v+2^k) with what v+2^k brings for the range above.
// Ranges are contiguous, so that the order of ranks is kept if relative ranks
// are the real ones. That is the case for an operation that does not commute:
// its tree ends at rank 0, which sends the result to the root.
func reduce(ctx context.Context, p coll.Peers, send, recv []byte, r coll.Reducer, root int) error {
	n, rank := p.Size(), p.Rank()
	if len(send) == 0 {
		return nil
	}
	if n == 1 {
		copyOnce(recv, send)
		return nil
	}
	top := root
	if !r.Commutative {
		top = 0
	}
	me := relative(rank, top, n)
	sum, bit := send, 1
	if me&1 == 0 { // no leaf: there is something to combine
		in, acc := p.Scratch(len(send)), recv
		defer p.Release(in)
		if rank != root || rank != top {
			acc = p.Scratch(len(send))
			defer p.Release(acc)
		}
		acc = acc[:len(send)]
		copyOnce(acc, send)
		var err error
		if sum, bit, err = climb(ctx, p, acc, in, r, top); err != nil {
			return err
		}
	}
	to := absolute(me-bit, top, n)
	if rank == top {
		to = root
	}
	if to == rank {
		copyOnce(recv, sum)
		return nil
	}
	err := p.Send(ctx, sum, to, tagReduce)
	if err == nil && rank == root { // of a tree that ends elsewhere
		err = recvAll(ctx, p, recv, top, tagReduce)
	}
	return err
}

// climb takes in the children of this member, and returns the sum, which is in
// one of acc and in, and the bit by which the parent differs.
func climb(ctx context.Context, p coll.Peers, acc, in []byte, r coll.Reducer, top int) (sum []byte, bit int, err error) {
	n := p.Size()
	me := relative(p.Rank(), top, n)
	for bit = 1; bit < n && me&bit == 0; bit <<= 1 {
		if me+bit >= n {
			continue
		}
		if err := recvAll(ctx, p, in, absolute(me+bit, top, n), tagReduce); err != nil {
			return nil, 0, err
		}
		r.Apply(in, acc) // in = acc op in: acc has the lower ranks
		acc, in = in, acc
	}
	return acc, bit, nil
}

// allreduce is recursive doubling: in step k members 2^k apart exchange what
// they have and both combine it, lower ranks first. If the size is no power of
// two, the first pairs of neighbours act as one member: so every partial result
// covers consecutive ranks, and the order is kept.
func allreduce(ctx context.Context, p coll.Peers, send, recv []byte, r coll.Reducer) error {
	n, rank := p.Size(), p.Rank()
	if len(send) == 0 {
		return nil
	}
	recv = recv[:len(send)]
	copyOnce(recv, send)
	if n == 1 {
		return nil
	}
	actors := 1
	for actors*2 <= n {
		actors *= 2
	}
	pairs := n - actors // the ranks below 2*pairs form pairs
	if rank < 2*pairs && rank%2 == 0 {
		// The neighbour acts for this one too.
		if err := p.Send(ctx, recv, rank+1, tagAllreduce); err != nil {
			return err
		}
		return recvAll(ctx, p, recv, rank+1, tagAllreduce)
	}
	in := p.Scratch(len(recv))
	err := double(ctx, p, recv, in, r, actors, pairs)
	p.Release(in)
	if err == nil && rank < 2*pairs {
		err = p.Send(ctx, recv, rank-1, tagAllreduce)
	}
	return err
}

// double is the part of allreduce for a member that acts. The result is in acc.
func double(ctx context.Context, p coll.Peers, acc, in []byte, r coll.Reducer, actors, pairs int) error {
	rank, result := p.Rank(), acc
	actor := rank - pairs
	if rank < 2*pairs {
		actor = rank / 2
		if err := recvAll(ctx, p, in, rank-1, tagAllreduce); err != nil {
			return err
		}
		r.Apply(acc, in)
	}
	for bit := 1; bit < actors; bit <<= 1 {
		peer := actor ^ bit
		rank := peer + pairs
		if peer < pairs {
			rank = peer*2 + 1
		}
		got, err := p.SendRecv(ctx, acc, rank, in, rank, tagAllreduce)
		if err := whole(got, len(in), rank, err); err != nil {
			return err
		}
		if peer < actor {
			r.Apply(acc, in)
		} else {
			r.Apply(in, acc)
			acc, in = in, acc
		}
	}
	copyOnce(result, acc)
	return nil
}

// copyOnce copies unless both are the same memory (in place).
func copyOnce(dst, src []byte) {
	if len(src) > 0 && &dst[0] != &src[0] {
		copy(dst, src)
	}
}
