package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/framework"
)

// Live memory and allocations of a program are work for the garbage collector, which needs a processor.
// With --live or --alloc, latency measures single messages, down to the slowest.

// tail has the live memory and the allocations of ranks.
type tail struct {
	liveBytes  int // Objects with pointers.
	allocBytes int // For each message.

	lastAlloc []byte // Keeps allocations on the heap.
}

// leaf is an object for the collector to follow.
type leaf struct {
	to [2]*leaf
	_  [48]byte
}

// slot is the size of a leaf with the pointer that keeps it alive.
const slot = 72

// checkTail reads --live and --alloc.
func (o *options) checkTail() error {
	if !o.isGiven("live") && !o.isGiven("alloc") {
		return nil
	}
	if o.name != "latency" || o.isGiven("connected") {
		return exit.Usagef("--live, --alloc: %s has no garbage; latency between 2 ranks has", o.name)
	}
	live, err := framework.ParseSize(o.liveSize)
	if err != nil {
		return exit.Usagef("--live %s: %w", o.liveSize, err)
	}
	alloc, err := framework.ParseSize(o.allocSize)
	if err != nil {
		return exit.Usagef("--alloc %s: %w", o.allocSize, err)
	}
	if live < 0 || alloc < 0 {
		return exit.Usagef("--live %s, --alloc %s: want sizes", o.liveSize, o.allocSize)
	}
	o.parsedTail = &tail{liveBytes: int(live), allocBytes: int(alloc)}
	o.measureRow = (*rank).latencyTail
	o.columnHeads = columns(10, "# Size", "Latency (us)", "p50", "p99.9", "p99.99", "Longest") + fmt.Sprintf("%14s", "Collections")
	if !o.isGiven("m") {
		o.minSize, o.maxSize = 8, 8
	}
	return nil
}

// keep makes objects that point to one another in no order, as those of maps and trees do.
func (t *tail) keep() []*leaf {
	all := make([]*leaf, t.liveBytes/slot)
	for i := range all {
		all[i] = new(leaf)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, l := range all {
		l.to[0], l.to[1] = all[random.IntN(len(all))], all[random.IntN(len(all))]
	}
	return all
}

// latencyTail is latency's loop with a time per round trip and an allocation per
// message.
func (r *rank) latencyTail(ctx context.Context, size int) (Row, error) {
	t := r.o.parsedTail
	all := t.keep()
	defer func() { runtime.KeepAlive(all); runtime.KeepAlive(t.lastAlloc) }()
	l, ping, pong, err := r.pingPong(ctx, size, 1-r.comm.Rank(), 1-r.comm.Rank(), 0)
	if err != nil {
		return Row{}, err
	}
	l = r.o.loop(size, 1_000_000, 1000, 100_000, 100)
	l.opsPerIteration = 2
	play := ping
	if r.comm.Rank() == 1 {
		play = pong
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := l.time(func(int) error {
		if t.allocBytes > 0 {
			t.lastAlloc = make([]byte, t.allocBytes)
		}
		return play(1)
	}, nil)
	if err != nil {
		return Row{}, err
	}
	runtime.ReadMemStats(&after)
	us := func(quantile float64) float64 { return float64(s.hist.ValueAtQuantile(quantile)) / picosPerNano * 1e-3 }
	row := s.times(Row{Unit: "us"}, 1e-3)
	row.Tail = &Tail{us(99.9), us(99.99), row.max, int(after.NumGC - before.NumGC)}
	return row, nil
}
