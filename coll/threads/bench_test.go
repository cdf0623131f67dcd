package threads

import (
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
)

// BenchmarkRanks measures operations between goroutines, for comparison with the same benchmark of
// coll/shm.
func BenchmarkRanks(b *testing.B) {
	for _, n := range []int{2, 16, 64} {
		for _, op := range []coll.Operation{coll.Barrier, coll.Allreduce, coll.Reduce, coll.Bcast} {
			for size := 1 << 10; size <= 1<<20; size *= 4 {
				if op == coll.Barrier {
					size = 0
				}
				b.Run(fmt.Sprintf("%d/%v/%d", n, op, size), func(b *testing.B) {
					fastest, err := colltest.Measure(b.Context(), Component(), n, op, size, b.N)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(fastest.Nanoseconds()), "ns/fastest")
				})
				if op == coll.Barrier {
					break
				}
			}
		}
	}
}
