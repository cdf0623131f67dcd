package colltest

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/ferrympi/ferry/coll"
)

// checkedOperations are the operations of Check.
var checkedOperations = []coll.Operation{coll.Allreduce, coll.Barrier, coll.Reduce, coll.Bcast}

// Check executes all operations of the team in turn, with changing roots, on the given sizes, which
// are multiples of 8 bytes. The error names the first wrong result.
func (t *Team) Check(ctx context.Context, turns int, sizes ...int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return t.Run(func(r *Rank) error {
		for turn := range turns {
			for k, size := range sizes {
				for _, op := range checkedOperations {
					if err := t.checkOne(ctx, r, op, (turn+k)%r.Size, turn, size); err != nil {
						cancel()
						return fmt.Errorf("rank %d of %d, turn %d: %v of %d bytes: %w", r.Rank, r.Size, turn, op, size, err)
					}
				}
			}
		}
		return nil
	})
}

// checkOne executes an operation. An element of an operand is the sum of rank, turn and offset.
func (t *Team) checkOne(ctx context.Context, r *Rank, op coll.Operation, root, turn, size int) error {
	if op == coll.Barrier {
		size = 0
	}
	n := r.Size
	in, out := make([]byte, size), make([]byte, size)
	for i := 0; i < size; i += 8 {
		binary.LittleEndian.PutUint64(in[i:], uint64(r.Rank+turn+i))
	}
	b := coll.Buffers{In: in, Out: out}
	want := func(i int) uint64 { return uint64(n*(n-1)/2 + n*(turn+i)) }
	switch {
	case op == coll.Reduce && r.Rank != root:
		b.Out, out = nil, nil
	case op == coll.Bcast:
		if b.In = nil; r.Rank == root {
			copy(out, in)
		}
		want = func(i int) uint64 { return uint64(root + turn + i) }
	}
	args := coll.Args{Root: root, Size: size, OwnSize: size, ElemSize: 8, IsQuick: true}
	s, err := t.Plan(r, op, args)
	if err == nil {
		err = r.Execute(ctx, s, b, Sum64)
	}
	for i := 0; i < len(out) && err == nil; i += 8 {
		if got := binary.LittleEndian.Uint64(out[i:]); got != want(i) {
			err = fmt.Errorf("%d at byte %d, want %d", got, i, want(i))
		}
	}
	return err
}
