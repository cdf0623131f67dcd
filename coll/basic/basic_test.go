package basic

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/framework/kittest"
	"go.uber.org/goleak"
)

func TestContract(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(Component()).Run(t)
}

// quiet is one member of a communicator in which all messages are free.
type quiet struct {
	rank, size int
	scratch    [][]byte
}

func (q *quiet) Rank() int                                               { return q.rank }
func (q *quiet) Size() int                                               { return q.size }
func (q *quiet) Send(context.Context, []byte, int, int) error            { return nil }
func (q *quiet) Recv(_ context.Context, b []byte, _, _ int) (int, error) { return len(b), nil }
func (q *quiet) Release(b []byte)                                        { q.scratch = append(q.scratch, b) }
func (q *quiet) SendRecv(_ context.Context, _ []byte, _ int, b []byte, _, _ int) (int, error) {
	return len(b), nil
}

func (q *quiet) Scratch(n int) []byte {
	if last := len(q.scratch) - 1; last >= 0 {
		b := q.scratch[last]
		q.scratch = q.scratch[:last]
		return b[:n]
	}
	return make([]byte, n, 4096)
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	r := coll.Reducer{ElemSize: 8, Apply: func(inout, in []byte) { inout[0] += in[0] }}
	send, recv := make([]byte, 64), make([]byte, 64*7)
	for rank := range 7 {
		var p coll.Peers = &quiet{rank: rank, size: 7}
		n := testing.AllocsPerRun(100, func() {
			for _, err := range []error{
				barrier(ctx, p), bcast(ctx, p, send, 3), reduce(ctx, p, send, recv[:64], r, 3),
				allreduce(ctx, p, send, recv[:64], r), allgather(ctx, p, send, recv),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		})
		if n != 0 {
			t.Errorf("rank %d: %v allocations", rank, n)
		}
	}
}

// TestLargeBlocksGoRound: the kit's blocks are small enough for the other algorithm.
func TestLargeBlocksGoRound(t *testing.T) {
	const m = bruckLimit + 1
	for _, n := range []int{2, 3, 6} {
		w := colltest.NewWorld(n, colltest.Options{Synchronous: true})
		var want []byte
		for r := range n {
			want = append(want, bytes.Repeat([]byte{byte(r + 1)}, m)...)
		}
		errs := w.Run(t.Context(), func(ctx context.Context, p *colltest.Peer) error {
			send, recv := want[p.Rank()*m:][:m], make([]byte, len(want))
			if err := allgather(ctx, p, send, recv); err != nil {
				return err
			}
			return kittest.Differ(recv, want)
		})
		if err := errors.Join(append(errs, w.Left())...); err != nil {
			t.Errorf("%d members: %v", n, err)
		}
	}
}

func TestMembersWithDifferentLengthsGetAnError(t *testing.T) {
	w := colltest.NewWorld(2, colltest.Options{})
	errs := w.Run(t.Context(), func(ctx context.Context, p *colltest.Peer) error {
		return bcast(ctx, p, make([]byte, 8+8*p.Rank()), 0)
	})
	if errs[1] == nil {
		t.Error("a broadcast of 8 bytes into 16 succeeds")
	}
}
