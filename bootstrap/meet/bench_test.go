package meet

import (
	"fmt"
	"testing"
	"time"
)

// A job of processes that have never met makes its first communicator.
func BenchmarkFirstConstruct(b *testing.B) {
	for _, on := range []network{unix, tcp} {
		for _, n := range []int{2, 32, 130} {
			b.Run(fmt.Sprintf("%s/%d", on, n), func(b *testing.B) {
				var constructs time.Duration
				for b.Loop() {
					j := newTestJob(b, on, n)
					j.openAll()
					world := j.world()
					begin := time.Now()
					if err := inAll(j.clients, func(c *client) error {
						_, err := c.Construct(b.Context(), world, "w", make([]byte, 256))
						return err
					}); err != nil {
						b.Fatal(err)
					}
					constructs += time.Since(begin)
					if err := inAll(j.clients, (*client).Close); err != nil {
						b.Fatal(err)
					}
					for _, c := range j.clients {
						c.Crash()
					}
				}
				b.ReportMetric(float64(constructs.Microseconds())/float64(b.N), "µs/construct")
			})
		}
	}
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
