package ofi_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mtl"
)

// firstTag is the tag of the first receive of openWithOverflow.
const firstTag = 1000

func mustPost(t testing.TB) func(*onceOp, error) *onceOp {
	return func(o *onceOp, err error) *onceOp {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
}

// openWithOverflow is openOverflowing with n more waiting receives at the first module, each with its own tag.
func openWithOverflow(t testing.TB, n int) (a, b *member, waiting []*onceOp) {
	a, b = openOverflowing(t, "data")
	for i := range n {
		waiting = append(waiting, mustPost(t)(a.receive(b, int32(firstTag+i), make([]byte, 8))))
	}
	return a, b, waiting
}

// pollsUntilDone polls both modules until o is complete, and returns the number of polls.
func pollsUntilDone(t testing.TB, a, b *member, o *onceOp) (n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); o.completions == 0; n++ {
		a.m.Poll()
		if b.m.Poll(); n%1000 == 0 && time.Now().After(end) {
			t.Fatal("an operation does not end")
		}
	}
	return n
}

// probeFor probes until it has found a message from b.
func probeFor(t testing.TB, a, b *member, tag int32, claim bool) *onceOp {
	t.Helper()
	for {
		o := newOnceOp()
		if err := a.m.Probe(&o.Op, a.to(b), mtl.Envelope{CID: 1, Source: b.rank, Tag: tag}, claim); err != nil {
			t.Fatal(err)
		}
		if pollsUntilDone(t, a, b, o); o.Found {
			return o
		}
	}
}

func postAndCancel(t testing.TB, a, b *member) {
	o := mustPost(t)(a.receive(b, 5, make([]byte, 8)))
	a.m.Cancel(&o.Op)
	pollsUntilDone(t, a, b, o)
}

// deepCases are operations behind n waiting receives. Each call performs the operation once.
var deepCases = []struct {
	name string
	of   func(t testing.TB, n int) (once func())
}{
	{"message for the youngest", func(t testing.TB, n int) func() {
		a, b, waiting := openWithOverflow(t, n)
		return func() {
			i := len(waiting) - 1
			youngest := waiting[i]
			mustPost(t)(b.send(a, int32(firstTag+i), make([]byte, 8), mtl.Standard))
			pollsUntilDone(t, a, b, youngest)
			waiting[i] = mustPost(t)(a.receive(b, int32(firstTag+i), make([]byte, 8)))
		}
	}},
	{"probe", func(t testing.TB, n int) func() {
		a, b, _ := openWithOverflow(t, n)
		mustPost(t)(b.send(a, 7, make([]byte, 8), mtl.Standard))
		return func() { probeFor(t, a, b, 7, false) }
	}},
	{"claim", func(t testing.TB, n int) func() {
		a, b, _ := openWithOverflow(t, n)
		return func() {
			mustPost(t)(b.send(a, 7, make([]byte, 8), mtl.Standard))
			o := probeFor(t, a, b, 7, true)
			o.completions = 0
			if err := a.m.RecvClaimed(&o.Op, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			pollsUntilDone(t, a, b, o)
		}
	}},
	{"receive and cancel", func(t testing.TB, n int) func() {
		a, b, _ := openWithOverflow(t, n)
		return func() { postAndCancel(t, a, b) }
	}},
	{"receive of one of many ids", func(t testing.TB, n int) func() {
		a, b := openOverflowing(t, "data")
		for i := range n {
			o := newOnceOp()
			if err := a.m.Recv(&o.Op, a.to(b), mtl.Envelope{CID: uint32(2 + i), Source: b.rank, Tag: 7}, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
		return func() { postAndCancel(t, a, b) }
	}},
	{"receive behind messages that nobody wants", func(t testing.TB, n int) func() {
		a, b := openOverflowing(t, "data")
		for i := range n {
			mustPost(t)(b.send(a, int32(firstTag+i), make([]byte, 8), mtl.Standard))
			a.m.Poll()
		}
		probeFor(t, a, b, int32(firstTag+n-1), false) // All messages have arrived.
		return func() {
			o := mustPost(t)(a.receive(b, int32(firstTag+n-1), make([]byte, 8)))
			pollsUntilDone(t, a, b, o)
			mustPost(t)(b.send(a, int32(firstTag+n-1), make([]byte, 8), mtl.Standard))
			probeFor(t, a, b, int32(firstTag+n-1), false)
		}
	}},
}

// Each operation costs the same behind 20,000 receives as behind 10.
func TestOverflow_ManyReceives_TakesConstantTime(t *testing.T) {
	const few, many, ratio = 10, 20_000, 12
	for _, c := range deepCases {
		t.Run(c.name, func(t *testing.T) {
			cost := func(n int) time.Duration {
				once := c.of(t, n)
				best := time.Hour
				for i, begin := 0, time.Now(); i < 300 && (i < 5 || time.Since(begin) < 5*time.Second); i++ {
					begin := time.Now()
					once()
					best = min(best, time.Since(begin))
				}
				return best
			}
			shallow, deep := cost(few), cost(many)
			if t.Log(shallow, deep); deep > ratio*shallow {
				t.Errorf("it takes %v behind %d, and %v behind %d", deep, many, shallow, few)
			}
		})
	}
}

func BenchmarkDepth(b *testing.B) {
	for _, c := range deepCases {
		for _, n := range []int{10, 1000, 10_000, 50_000} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				once := c.of(b, n)
				for b.Loop() {
					once()
				}
			})
		}
	}
}
