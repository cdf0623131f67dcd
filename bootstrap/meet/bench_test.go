package meet

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// A job of processes that have never met makes its first communicator; all of them share
// this machine's processors.
func BenchmarkFirstConstruct(b *testing.B) {
	for _, c := range []struct{ ranks, nodes int }{{2, 1}, {32, 1}, {32, 4}, {128, 1}, {128, 4}} {
		for _, on := range []network{unix, tcp} {
			b.Run(fmt.Sprintf("%s/%d-on-%d", on, c.ranks, c.nodes), func(b *testing.B) {
				var constructs, cpu time.Duration
				for b.Loop() {
					j := newTestJob(b, on, c.ranks)
					j.nodes = c.nodes
					j.openAll()
					world := j.world()
					begin, used := time.Now(), processorTime(b)
					if err := inAll(j.clients, func(c *client) error {
						_, err := c.Construct(b.Context(), world, "w", make([]byte, 256))
						return err
					}); err != nil {
						b.Fatal(err)
					}
					constructs += time.Since(begin)
					cpu += processorTime(b) - used
					if err := inAll(j.clients, (*client).Close); err != nil {
						b.Fatal(err)
					}
					for _, c := range j.clients {
						c.Crash()
					}
				}
				b.ReportMetric(float64(constructs.Microseconds())/float64(b.N), "µs/construct")
				b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/construct") // on a busy machine
			})
		}
	}
}

// processorTime is what this program has used so far.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Those who have met make another one.
func BenchmarkNextConstruct(b *testing.B) {
	for _, on := range []network{unix, tcp} {
		for _, n := range []int{2, 32} {
			b.Run(fmt.Sprintf("%s/%d", on, n), func(b *testing.B) {
				j := newTestJob(b, on, n)
				j.fence("start", j.openAll()...)
				world := j.world()
				for b.Loop() {
					if err := inAll(j.clients, func(c *client) error {
						_, err := c.Construct(b.Context(), world, "w", make([]byte, 256))
						return err
					}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
