package threads_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// batch is the number of messages whose time is taken together: short enough that most batches
// are not interrupted, on a machine that has other work.
const batch = 200

// BenchmarkCompare has goroutine ranks and processes of the kit (ob1 over shared memory) take
// turns, and reports the fastest batch and the tenth percentile of each, in ns per message.
func BenchmarkCompare(b *testing.B) { compare(b, stack(nil)) }

// BenchmarkCompareProcesses is BenchmarkCompare with the goroutine ranks in two processes.
func BenchmarkCompareProcesses(b *testing.B) { compare(b, overOb1(shm.Component(), nil)) }

func compare(b *testing.B, goroutines pmltest.Stack) {
	stacks := []struct {
		name  string
		stack pmltest.Stack
	}{
		{"goroutines", goroutines},
		{"processes", pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), shm.Component()}}},
	}
	for _, play := range []struct {
		name string
		f    func(ctx context.Context, rank int, c pml.Comm, size, n int) error
	}{{"latency", pingPong}, {"bandwidth", windows}} {
		for _, size := range []int{8, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%d", play.name, size), func(b *testing.B) {
				var comms [2][]pml.Comm
				for i, s := range stacks {
					comms[i] = pmltest.OpenWorld(b, s.stack, 2).Comms(b, cid.PolicyAgree)
				}
				n := max(32, min(batch, batch*(4<<10)/size))
				var times [2][]float64
				for b.Loop() {
					for i := range stacks {
						var took time.Duration
						err := pmltest.Each(comms[i], func(rank int, c pml.Comm) error {
							if err := play.f(b.Context(), rank, c, size, 4); err != nil { // both run
								return err
							}
							begin := time.Now()
							err := play.f(b.Context(), rank, c, size, n)
							if rank == 0 {
								took = time.Since(begin)
							}
							return err
						})
						if err != nil {
							b.Fatal(err)
						}
						times[i] = append(times[i], float64(took)/float64(n))
					}
				}
				for i, s := range stacks {
					slices.Sort(times[i])
					b.ReportMetric(times[i][len(times[i])/10], s.name+"-p10-ns")
					b.ReportMetric(times[i][0], s.name+"-min-ns")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// pingPong sends n messages, by turns.
func pingPong(ctx context.Context, rank int, c pml.Comm, size, n int) error {
	buf := pml.Buffer{Bytes: make([]byte, size)}
	for i := range n {
		if i%2 == rank {
			if err := c.Send(ctx, buf, 1-rank, 1, pml.PointToPoint, pml.Standard); err != nil {
				return err
			}
		} else if _, err := c.Recv(ctx, buf, 1-rank, 1, pml.PointToPoint); err != nil {
			return err
		}
	}
	return nil
}

// windows sends n messages from rank 0 to rank 1 in windows of 64, each of which is answered.
func windows(ctx context.Context, rank int, c pml.Comm, size, n int) error {
	const window = 64
	buf := pml.Buffer{Bytes: make([]byte, size)}
	var requests [window]*pml.Request
	var generations [window]uint32
	for ; n > 0; n -= window {
		k := min(n, window)
		for i := range k {
			var r *pml.Request
			var err error
			if rank == 0 {
				r, err = c.Isend(buf, 1, 1, pml.PointToPoint, pml.Standard)
			} else {
				r, err = c.Irecv(buf, 0, 1, pml.PointToPoint)
			}
			if err != nil {
				return err
			}
			requests[i], generations[i] = r, r.Generation()
		}
		for i, r := range requests[:k] {
			if _, err := r.Wait(ctx, generations[i]); err != nil {
				return err
			}
		}
		if rank == 1 {
			if err := c.Send(ctx, pml.Buffer{}, 0, 2, pml.PointToPoint, pml.Standard); err != nil {
				return err
			}
		} else if _, err := c.Recv(ctx, pml.Buffer{}, 1, 2, pml.PointToPoint); err != nil {
			return err
		}
	}
	return nil
}
