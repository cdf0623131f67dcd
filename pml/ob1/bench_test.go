package ob1_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// BenchmarkHop measures the core-to-core latency, half the round trip of a cache line. All
// other latencies contain it.
func BenchmarkHop(b *testing.B) {
	var line struct {
		_ [64]byte
		v atomic.Uint64
		_ [64]byte
	}
	n := uint64(b.N)
	go func() {
		runtime.LockOSThread()
		for i := uint64(1); i <= n; i++ {
			for line.v.Load() != 2*i-1 {
				cpu.Pause()
			}
			line.v.Store(2 * i)
		}
	}()
	b.ResetTimer()
	for i := uint64(1); i <= n; i++ {
		line.v.Store(2*i - 1)
		for line.v.Load() != 2*i {
			cpu.Pause()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/2, "ns/hop")
}

func BenchmarkLatency(b *testing.B) {
	for _, size := range []int{8, 1024, 4096, 16384, 65536, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w, err := pmltest.NewWorld(stack(), 2)
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			comms, err := w.Comm(cid.PolicyAgree)
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			b.ReportAllocs()
			err = pmltest.Each(comms, func(rank int, c pml.Comm) error {
				buf := pml.Buffer{Bytes: make([]byte, size)}
				for i := range b.N {
					if i%2 == rank {
						if err := c.Send(ctx, buf, 1-rank, 1, pml.PointToPoint, pml.Standard); err != nil {
							return err
						}
					} else if _, err := c.Recv(ctx, buf, 1-rank, 1, pml.PointToPoint); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
		})
	}
}

// BenchmarkSelf measures the software cost of one message, sent and received by one goroutine,
// without any transfer between cores (docs/decisions/hot-path.md).
func BenchmarkSelf(b *testing.B) {
	w, err := pmltest.NewWorld(stack(), 1)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	comms, err := w.Comm(cid.PolicyAgree)
	if err != nil {
		b.Fatal(err)
	}
	c, ctx := comms[0], context.Background()
	buf := pml.Buffer{Bytes: make([]byte, 8)}
	for b.Loop() {
		if err := c.Send(ctx, buf, 0, 1, pml.PointToPoint, pml.Standard); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Recv(ctx, buf, 0, 1, pml.PointToPoint); err != nil {
			b.Fatal(err)
		}
	}
}
