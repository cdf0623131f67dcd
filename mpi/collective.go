package mpi

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// The collective operations. All members of a communicator call them in the same
// order, with arguments that fit together. A wrong argument is an error of that
// member alone, and the others go on waiting for it.
//
// A context that ends during a collective, or any other failure in its middle,
// breaks the communicator's collectives, because members don't agree any more on
// what has happened: each further one, creation of communicators included, is
// ErrBroken. Messages between two members are not concerned.

// collOps are the operations of a communicator; queried at the first use.
type collOps struct {
	coll.Ops
	queried bool
}

// operations returns what the selected components offer on the communicator.
// Between enter and leave.
func (k *collective) operations() (*coll.Ops, error) {
	if !k.ops.queried {
		found, err := k.comm().session.engine.Coll(&k.peers)
		if err != nil {
			return nil, err
		}
		k.ops = collOps{*found, true}
	}
	return &k.ops.Ops, nil
}

func errNoColl(op string) error {
	return fmt.Errorf("%w: no selected coll component offers %s", ErrUnsupported, op)
}

// run makes one collective call.
func (k *collective) run(ctx context.Context, op string, f func(*coll.Ops) error) error {
	if err := k.enter(ctx); err != nil {
		return err
	}
	ops, err := k.operations()
	if err == nil {
		err = f(ops)
	}
	return k.leave(ctx, op, err)
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
	b, err := bytesOf(buf)
	if err != nil {
		return err
	}
	if err := c.checkRoot(root); err != nil {
		return err
	}
	return c.collective.run(ctx, "bcast", func(o *coll.Ops) error {
		if o.Bcast == nil {
			return errNoColl("bcast")
		}
		return o.Bcast(background(ctx), &c.collective.peers, b, root)
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
	if in, err = bytesOf(send); err != nil {
		return r, nil, nil, err
	}
	if op.apply == nil {
		return r, nil, nil, fmt.Errorf("%w: the zero Op is no operation; use NewOp, Sum or another constructor", ErrUnsupported)
	}
	if receives {
		if len(recv) < len(send) {
			return r, nil, nil, fmt.Errorf("%w: %d elements do not fit into a result of %d", ErrTruncate, len(send), len(recv))
		}
		out = mem.Bytes(recv[:len(send)])
	}
	return coll.Reducer{ElemSize: mem.Size[T](), Commutative: op.commutative, Apply: op.apply}, in, out, nil
}

// peers is a communicator as a collective component sees it. One collective is
// in progress at a time, so that scratch memory needs no lock.
type peers struct {
	c       *Comm
	plane   pml.Plane
	scratch [scratchPieces][]byte // free ones
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
	return p.c.pml.Send(ctx, pml.Buffer{Bytes: buf}, dst, tag, p.plane, pml.Standard)
}

func (p *peers) Recv(ctx context.Context, buf []byte, src, tag int) (int, error) {
	st, err := p.c.pml.Recv(ctx, pml.Buffer{Bytes: buf}, src, tag, p.plane)
	return st.Bytes, err
}

func (p *peers) SendRecv(ctx context.Context, send []byte, dst int, recv []byte, src, tag int) (int, error) {
	st, err := p.c.sendrecv(ctx, send, dst, tag, recv, src, tag, p.plane)
	return st.Bytes, err
}

// Scratch returns the smallest kept piece that is large enough, or a new one,
// aligned for every element type.
func (p *peers) Scratch(n int) []byte {
	best := -1
	for i, b := range p.scratch {
		if b != nil && cap(b) >= n && (best < 0 || cap(b) < cap(p.scratch[best])) {
			best = i
		}
	}
	if best < 0 {
		// A power of two of at least 64 bytes: the pieces fit again, and Go
		// aligns what is that large to 8 bytes.
		size := 64
		for size < n {
			size *= 2
		}
		return make([]byte, size)[:n]
	}
	b := p.scratch[best]
	p.scratch[best] = nil
	return b[:n]
}

// Release keeps b in place of a smaller piece, if there is no free place.
func (p *peers) Release(b []byte) {
	if cap(b) == 0 || cap(b) > scratchLimit {
		return
	}
	least := 0
	for i, have := range p.scratch {
		if cap(have) < cap(p.scratch[least]) {
			least = i
		}
	}
	if cap(p.scratch[least]) < cap(b) {
		p.scratch[least] = b[:0]
	}
}
