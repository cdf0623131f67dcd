package mesh

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// All processes share this machine's processors, and have no connections yet.
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
					begin, used := time.Now(), cpuTime(b)
					if err := inAll(j.clients, func(c *client) error {
						_, err := c.Construct(b.Context(), world, "w", make([]byte, 256))
						return err
					}); err != nil {
						b.Fatal(err)
					}
					constructs += time.Since(begin)
					cpu += cpuTime(b) - used
					if err := inAll(j.clients, (*client).Close); err != nil {
						b.Fatal(err)
					}
					for _, c := range j.clients {
						c.Crash()
					}
				}
				b.ReportMetric(float64(constructs.Microseconds())/float64(b.N), "µs/construct")
				b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/construct") // Processors may be busy otherwise.
			})
		}
	}
}

// cpuTime returns the processor time of this program so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// All processes are connected.
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
