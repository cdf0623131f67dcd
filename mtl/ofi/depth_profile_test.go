package ofi_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mtl"
)

// firstTag is the tag of the first receive of deepLine.
const firstTag = 1000

func must(t testing.TB) func(*once, error) *once {
	return func(o *once, err error) *once {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
}

// deepLine is a crowd whose first process has n receives more that wait, with a tag each.
func deepLine(t testing.TB, n int) (a, b *member, waiting []*once) {
	a, b = crowded(t, "data")
	for i := range n {
		waiting = append(waiting, must(t)(a.receive(b, int32(firstTag+i), make([]byte, 8))))
	}
	return a, b, waiting
}

// polls polls both until o is over, and returns how often.
func polls(t testing.TB, a, b *member, o *once) (n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); o.ends == 0; n++ {
		a.m.Poll()
		if b.m.Poll(); n%1000 == 0 && time.Now().After(end) {
			t.Fatal("an operation does not end")
		}
	}
	return n
}

// probeFor probes until it has found a message from b.
func probeFor(t testing.TB, a, b *member, tag int32, claim bool) *once {
	t.Helper()
	for {
		o := newOnce()
		if err := a.m.Probe(&o.Op, a.to(b), mtl.Envelope{CID: 1, Source: b.rank, Tag: tag}, claim); err != nil {
			t.Fatal(err)
		}
		if polls(t, a, b, o); o.Found {
			return o
		}
	}
}

// receiveInVain posts a receive, and cancels it.
func receiveInVain(t testing.TB, a, b *member) {
	o := must(t)(a.receive(b, 5, make([]byte, 8)))
	a.m.Cancel(&o.Op)
	polls(t, a, b, o)
}

// deepCases are what may be done behind n receives that wait for room: each does it once more.
var deepCases = []struct {
	name string
	of   func(t testing.TB, n int) (once func())
}{
	{"message for the youngest", func(t testing.TB, n int) func() {
		a, b, waiting := deepLine(t, n)
		return func() {
			i := len(waiting) - 1
			youngest := waiting[i]
			must(t)(b.send(a, int32(firstTag+i), make([]byte, 8), mtl.Standard))
			polls(t, a, b, youngest)
			waiting[i] = must(t)(a.receive(b, int32(firstTag+i), make([]byte, 8)))
		}
	}},
	{"probe", func(t testing.TB, n int) func() {
		a, b, _ := deepLine(t, n)
		must(t)(b.send(a, 7, make([]byte, 8), mtl.Standard))
		return func() { probeFor(t, a, b, 7, false) }
	}},
	{"claim", func(t testing.TB, n int) func() {
		a, b, _ := deepLine(t, n)
		return func() {
			must(t)(b.send(a, 7, make([]byte, 8), mtl.Standard))
			o := probeFor(t, a, b, 7, true)
			o.ends = 0
			if err := a.m.RecvClaimed(&o.Op, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			polls(t, a, b, o)
		}
	}},
	{"receive and cancel", func(t testing.TB, n int) func() {
		a, b, _ := deepLine(t, n)
		return func() { receiveInVain(t, a, b) }
	}},
	{"receive of one of many ids", func(t testing.TB, n int) func() {
		a, b := crowded(t, "data")
		for i := range n {
			o := newOnce()
			if err := a.m.Recv(&o.Op, a.to(b), mtl.Envelope{CID: uint32(2 + i), Source: b.rank, Tag: 7}, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
		return func() { receiveInVain(t, a, b) }
	}},
	{"receive behind messages that nobody wants", func(t testing.TB, n int) func() {
		a, b := crowded(t, "data")
		for i := range n {
			must(t)(b.send(a, int32(firstTag+i), make([]byte, 8), mtl.Standard))
			a.m.Poll()
		}
		probeFor(t, a, b, int32(firstTag+n-1), false) // they are here
		return func() {
			o := must(t)(a.receive(b, int32(firstTag+n-1), make([]byte, 8)))
			polls(t, a, b, o)
			must(t)(b.send(a, int32(firstTag+n-1), make([]byte, 8), mtl.Standard))
			probeFor(t, a, b, int32(firstTag+n-1), false)
		}
	}},
}

// TestWhatWaitsForRoomIsNotWalked: each costs the same behind 20,000 as behind 10.
func TestWhatWaitsForRoomIsNotWalked(t *testing.T) {
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
