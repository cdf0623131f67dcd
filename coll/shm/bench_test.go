package shm

import (
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
)

// BenchmarkRanks measures operations between goroutines, for comparison with coll/threads.
func BenchmarkRanks(b *testing.B) {
	for _, n := range []int{2, 16, 64} {
		for op, sizes := range map[coll.Operation][]int{
			coll.Barrier: {0}, coll.Allreduce: {1 << 10, 4 << 10, 16 << 10, 64 << 10}, coll.Reduce: {1 << 10, 4 << 10, 16 << 10, 64 << 10}, coll.Bcast: {1 << 10, 4 << 10, 16 << 10, 64 << 10},
		} {
			for _, size := range sizes {
				b.Run(fmt.Sprintf("%d/%v/%d", n, op, size), func(b *testing.B) {
					fastest, err := colltest.Measure(b.Context(), Component(), n, op, size, b.N)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(fastest.Nanoseconds()), "ns/fastest")
				})
			}
		}
	}
}
