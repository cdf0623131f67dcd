package threads

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/coll/shm"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/kernels"
	"github.com/ferrympi/ferry/progress"
)

// batch is the number of operations between two readings of the clock. The fastest batch counts:
// the machine may be busy with other work.
const batch = 50

// measure carries schedules out in n ranks, and reports the fastest batch of rank 0.
func measure(b *testing.B, c coll.Component, n int, op coll.Operation, size int) {
	team, err := colltest.NewTeam(c, kittest.Params(c, nil), n, progress.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer team.Close()
	best := time.Hour
	args := coll.Args{Size: size, Own: size, Elem: 8, Quick: true}
	if op == coll.Barrier {
		args = coll.Args{}
	}
	add := coll.Reducer{Quick: true, Apply: sum64}
	err = team.Run(func(r *colltest.Rank) error {
		s, err := team.Plan(r, op, args)
		if err != nil {
			return err
		}
		buffers := coll.Buffers{In: make([]byte, size), Out: make([]byte, size)}
		for range max(b.N/batch, 2) {
			start := time.Now()
			for range batch {
				if err := r.Carry(b.Context(), s, buffers, add); err != nil {
					return err
				}
			}
			if took := time.Since(start); r.Rank == 0 {
				best = min(best, took)
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(best.Nanoseconds())/batch, "ns/fastest")
}

func BenchmarkCompare(b *testing.B) {
	components := map[string]coll.Component{"threads": Component(), "shm": shm.Component()}
	for _, name := range []string{"threads", "shm"} {
		b.Run("barrier/"+name, func(b *testing.B) { measure(b, components[name], 2, coll.Barrier, 0) })
	}
	for size := 8; size <= 1<<20; size *= 2 {
		if size > 8 && size < 64 {
			continue
		}
		for _, op := range []coll.Operation{coll.Allreduce, coll.Reduce, coll.Bcast} {
			for _, name := range []string{"threads", "shm"} {
				if size > 64<<10 && name == "shm" {
					continue
				}
				b.Run(fmt.Sprintf("%v/%d/%s", op, size, name), func(b *testing.B) { measure(b, components[name], 2, op, size) })
			}
		}
		b.Run(fmt.Sprintf("sequential/%d", size), func(b *testing.B) {
			x, y := make([]byte, size), make([]byte, size)
			best := time.Hour
			for range max(b.N/batch, 2) {
				start := time.Now()
				for range batch {
					copy(y, x)
					sum64(y, x)
				}
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(best.Nanoseconds())/batch, "ns/fastest")
		})
	}
}

// BenchmarkOversubscribed has more ranks than processors.
func BenchmarkOversubscribed(b *testing.B) {
	components := map[string]coll.Component{"threads": Component(), "shm": shm.Component()}
	for _, n := range []int{4, 8, 16, 64} {
		for _, size := range []int{0, 8, 1024, 8192} {
			for _, op := range []coll.Operation{coll.Barrier, coll.Allreduce, coll.Reduce, coll.Bcast} {
				if (op == coll.Barrier) != (size == 0) {
					continue
				}
				for _, name := range []string{"threads", "shm"} {
					b.Run(fmt.Sprintf("%d/%v/%d/%s", n, op, size, name), func(b *testing.B) { measure(b, components[name], n, op, size) })
				}
			}
		}
	}
}

var kernel = kernels.Of[int64](kernels.Sum)

// sum64 is mpi.Sum of int64.
func sum64(inout, in []byte) {
	if kernel == nil {
		sum.Apply(inout, in)
		return
	}
	n := kernel.Run(inout, in)
	sum.Apply(inout[n:], in[n:])
}
