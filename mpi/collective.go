package mpi

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// The collective operations. All members of a communicator call them in the same
// order, with arguments that fit together. A wrong argument is an error of that
// member alone, and the others go on waiting for it.
//
// A context that ends during a collective, an operation (Op) that panics, or any
// other failure in its middle breaks the communicator's collectives, because members
// don't agree any more on what has happened: each further one, creation of
// communicators included, is ErrBroken. The other members, who would wait for that one,
// are told: theirs end with ErrBroken too, which names it. Messages between two members
// are not concerned.

// operations returns what the selected components offer on the communicator.
// Inside do.
func (k *collective) operations() (_ *coll.Ops, err error) {
	if k.ops == nil {
		k.ops, err = k.comm().session.engine.Coll(&k.peers)
	}
	return k.ops, err
}

func errNoColl(op string) error {
	return fmt.Errorf("%w: no selected coll component offers %s", ErrUnsupported, op)
}

// run makes one collective call.
func (k *collective) run(ctx context.Context, op string, f func(*coll.Ops) error) error {
	return k.do(ctx, op, func() error {
		ops, err := k.operations()
		if err != nil {
			return err
		}
		return f(ops)
	})
}

// Barrier returns when all members have called it (MPI_Barrier).
func Barrier(ctx context.Context, c *Comm) error {
	return c.collective.run(ctx, "barrier", func(o *coll.Ops) error {
		if o.Barrier == nil {
			return errNoColl("barrier")
		}
		return o.Barrier(background(ctx), &c.collective.peers)
	})
}

// Bcast sends root's buf to all others' buf (MPI_Bcast), which has the same
// length.
func Bcast[T any](ctx context.Context, c *Comm, buf []T, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	return c.collective.run(ctx, "bcast", func(o *coll.Ops) error {
		if o.Bcast == nil {
			return errNoColl("bcast")
		}
		return o.Bcast(background(ctx), &c.collective.peers, mem.Bytes(buf), root)
	})
}

// Reduce combines every member's send, element by element, into root's recv
// (MPI_Reduce), in the order of ranks unless op commutes. All pass equal lengths;
// recv is used at the root only. To work in place the root passes nil for send,
// or the same slice twice.
func Reduce[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T], root int) error {
	if err := c.checkRoot(root); err != nil {
		return err
	}
	if c.rank != root {
		recv = nil
	} else if send == nil {
		send = recv
	}
	r, in, out, err := reduction(send, recv, op, c.rank == root)
	if err != nil {
		return err
	}
	return c.collective.run(ctx, "reduce", func(o *coll.Ops) error {
		if o.Reduce == nil {
			return errNoColl("reduce")
		}
		return o.Reduce(background(ctx), &c.collective.peers, in, out, r, root)
	})
}

// Allreduce is Reduce with the result in every member's recv (MPI_Allreduce).
// All members get the same bits. nil for send works in place.
func Allreduce[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	if send == nil {
		send = recv
	}
	r, in, out, err := reduction(send, recv, op, true)
	if err != nil {
		return err
	}
	return c.collective.run(ctx, "allreduce", func(o *coll.Ops) error {
		if o.Allreduce == nil {
			return errNoColl("allreduce")
		}
		return o.Allreduce(background(ctx), &c.collective.peers, in, out, r)
	})
}

func (c *Comm) checkRoot(root int) error {
	if c.closed.Load() {
		return c.errClosed()
	}
	if root < 0 || root >= c.size {
		return fmt.Errorf("root: %w", c.errRank(root))
	}
	return nil
}

// reduction checks the arguments of one and returns them as bytes.
func reduction[T any](send, recv []T, op Op[T], receives bool) (r coll.Reducer, in, out []byte, err error) {
	if err := sendable[T](); err != nil {
		return r, nil, nil, err
	}
	if op.apply == nil {
		return r, nil, nil, fmt.Errorf("%w: the zero Op, or that of NewOp(nil), is no operation; use Sum or another constructor", ErrUnsupported)
	}
	if receives {
		if len(recv) < len(send) {
			return r, nil, nil, fmt.Errorf("%w: %d elements do not fit into a result of %d", ErrTruncate, len(send), len(recv))
		}
		out = mem.Bytes(recv[:len(send)])
	}
	return coll.Reducer{ElemSize: mem.Size[T](), Commutative: op.commutative, Apply: op.apply}, mem.Bytes(send), out, nil
}

// peers is a communicator as a collective component sees it. One collective is
// in progress at a time, so that scratch memory needs no lock.
type peers struct {
	c       *Comm
	scratch [][]byte // free pieces, the smallest first
}

// What a communicator keeps of scratch memory: no algorithm uses more pieces at
// a time, and what is larger is worth an allocation.
const (
	scratchPieces = 3
	scratchLimit  = 64 << 10
)

func (p *peers) Rank() int { return p.c.rank }
func (p *peers) Size() int { return p.c.size }

func (p *peers) Send(ctx context.Context, buf []byte, dst, tag int) error {
	return p.c.pml.Send(ctx, pml.Buffer{Bytes: buf}, dst, tag, pml.Collective, pml.Standard)
}

func (p *peers) Recv(ctx context.Context, buf []byte, src, tag int) (int, error) {
	st, err := p.c.pml.Recv(ctx, pml.Buffer{Bytes: buf}, src, tag, pml.Collective)
	return st.Bytes, err
}

func (p *peers) SendRecv(ctx context.Context, send []byte, dst int, recv []byte, src, tag int) (int, error) {
	st, err := p.c.sendrecv(ctx, send, dst, tag, recv, src, tag, pml.Collective)
	return st.Bytes, err
}

// Scratch returns the smallest kept piece that is large enough, or a new one,
// aligned for every element type.
func (p *peers) Scratch(n int) []byte {
	i := p.firstOf(n)
	if i == len(p.scratch) {
		// A power of two of at least 64 bytes: the pieces fit again, and Go
		// aligns what is that large to 8 bytes.
		return make([]byte, n, max(64, 1<<bits.Len(uint(n-1))))
	}
	b := p.scratch[i]
	p.scratch = slices.Delete(p.scratch, i, i+1)
	return b[:n]
}

// Release keeps b, in place of the smallest piece if there are enough.
func (p *peers) Release(b []byte) {
	if cap(b) == 0 || cap(b) > scratchLimit {
		return
	}
	p.scratch = slices.Insert(p.scratch, p.firstOf(cap(b)), b)
	if len(p.scratch) > scratchPieces {
		p.scratch = slices.Delete(p.scratch, 0, 1)
	}
}

// firstOf returns the index of the first piece that has n bytes.
func (p *peers) firstOf(n int) int {
	for i, b := range p.scratch {
		if cap(b) >= n {
			return i
		}
	}
	return len(p.scratch)
}
