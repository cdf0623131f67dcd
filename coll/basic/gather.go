package basic

import (
	"context"

	"github.com/ferrympi/ferry/coll"
)

// bruckLimit is the size of a block, in bytes, up to which few steps matter more
// than copying every byte once more: as much as is copied while a message travels.
const bruckLimit = 4 << 10

// allgather takes Bruck's algorithm for small blocks and a ring for large ones.
func allgather(ctx context.Context, p coll.Peers, send, recv []byte) error {
	n, rank, m := p.Size(), p.Rank(), len(send)
	if m == 0 {
		return nil
	}
	if n == 1 || m > bruckLimit {
		copyOnce(recv[rank*m:], send)
		return ring(ctx, p, recv, m)
	}
	blocks := p.Scratch(n * m)
	copy(blocks, send)
	err := bruck(ctx, p, blocks, m)
	if err == nil {
		for i := range n {
			copy(recv[(rank+i)%n*m:][:m], blocks[i*m:])
		}
	}
	p.Release(blocks)
	return err
}

// bruck fills blocks, which count from this member's own, in ceil(log2 n) steps
// (Bruck et al. 1997): each step doubles the number that every member has.
func bruck(ctx context.Context, p coll.Peers, blocks []byte, m int) error {
	n, rank := p.Size(), p.Rank()
	for have := 1; have < n; have *= 2 {
		count := min(have, n-have)
		from := (rank + have) % n
		got, err := p.SendRecv(ctx, blocks[:count*m], (rank-have+n)%n,
			blocks[have*m:(have+count)*m], from, tagAllgather)
		if err := whole(got, count*m, from, err); err != nil {
			return err
		}
	}
	return nil
}

// ring passes every block round: n-1 steps, each byte sent once by each member.
func ring(ctx context.Context, p coll.Peers, recv []byte, m int) error {
	n, rank := p.Size(), p.Rank()
	to, from := (rank+1)%n, (rank-1+n)%n
	for step := range n - 1 {
		out, in := (rank-step+n)%n, (rank-step-1+n)%n
		got, err := p.SendRecv(ctx, recv[out*m:][:m], to, recv[in*m:][:m], from, tagAllgather)
		if err := whole(got, m, from, err); err != nil {
			return err
		}
	}
	return nil
}
