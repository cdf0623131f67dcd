package threads_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// pair plays f at two goroutine ranks.
func pair(b *testing.B, f func(ctx context.Context, rank int, c pml.Comm) error) {
	b.Helper()
	w := pmltest.OpenWorld(b, stack(nil), 2)
	comms := w.Comms(b, cid.PolicyAgree)
	b.ReportAllocs()
	b.ResetTimer()
	if err := pmltest.Each(comms, func(rank int, c pml.Comm) error { return f(b.Context(), rank, c) }); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
}

// BenchmarkLatency is one way of a message; `ferry bench latency` is the same between processes.
func BenchmarkLatency(b *testing.B) {
	for _, size := range []int{8, 64, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			pair(b, func(ctx context.Context, rank int, c pml.Comm) error { return pingPong(ctx, rank, c, size, b.N) })
		})
	}
}

// BenchmarkBandwidth is windows of 64 messages, each of which is answered; `ferry bench bw` is
// the same between processes.
func BenchmarkBandwidth(b *testing.B) {
	for _, size := range []int{8, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			pair(b, func(ctx context.Context, rank int, c pml.Comm) error { return windows(ctx, rank, c, size, b.N) })
		})
	}
}

// BenchmarkSelf is the software of one message, sent and received by one goroutine: no cache
// line travels.
func BenchmarkSelf(b *testing.B) {
	w := pmltest.OpenWorld(b, stack(nil), 1)
	c, ctx := w.Comms(b, cid.PolicyAgree)[0], b.Context()
	for _, size := range []int{8, 1 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			buf := pml.Buffer{Bytes: make([]byte, size)}
			for b.Loop() {
				if err := c.Send(ctx, buf, 0, 1, pml.PointToPoint, pml.Standard); err != nil {
					b.Fatal(err)
				}
				if _, err := c.Recv(ctx, buf, 0, 1, pml.PointToPoint); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
