package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// collectives are the operations with a benchmark, and with one of the nonblocking form
// under the name with i in front. barrier has a separate loop.
var collectives = []struct {
	name string
	does string
	// It reduces elements of elementBytes.
	reduces bool
	// Number of buffers of the size per rank, those of the library included.
	buffers func(ranks int) int
}{
	{"bcast", "rank 0's buffer goes to all", false, func(int) int { return 1 }},
	{"reduce", "a sum of 4-byte floats (or ints, --type int) over all ranks, at rank 0", true, func(int) int { return 4 }},
	{"allreduce", "a sum of 4-byte floats over all ranks", true, func(int) int { return 4 }},
	{"gather", "a block of each rank to rank 0", false, func(n int) int { return 2*n + 1 }},
	{"scatter", "a block of rank 0's to each rank", false, func(n int) int { return n + 1 }},
	{"allgather", "a block of each rank to all", false, func(n int) int { return 2*n + 1 }},
	{"alltoall", "a block of each rank to each", false, func(n int) int { return 4 * n }},
	{"reduce_scatter", "a sum over all ranks; each gets its part", true, func(int) int { return 5 }},
}

// collectiveBenchmarks are the benchmarks of these.
func collectiveBenchmarks() (list []benchmark) {
	for _, c := range collectives {
		list = append(list, benchmark{name: c.name, hasSizes: true, measureRow: (*rank).collective,
			osuTitle: c.name + " latency test", columnHeads: columns(10, "# Size", "Avg Latency(us)")})
	}
	overlap := func(name string) benchmark {
		return benchmark{name: "i" + name, hasSizes: name != "barrier", measureRow: (*rank).overlap,
			osuTitle:    "nonblocking " + name + " overlap test",
			columnHeads: columns(10, "# Size", "Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)")}
	}
	list = append(list, overlap("barrier"))
	for _, c := range collectives {
		list = append(list, overlap(c.name))
	}
	return list
}

// isCollective reports whether the benchmark is one of collectives in its blocking form.
func (o *options) isCollective() bool {
	for _, c := range collectives {
		if o.name == c.name {
			return true
		}
	}
	return false
}

// traits returns the entry of collectives for a benchmark of either form.
func (o *options) traits() (reduces bool, buffers int) {
	for _, c := range collectives {
		if o.name == c.name || o.name == "i"+c.name {
			return c.reduces, c.buffers(o.rankCount)
		}
	}
	if o.name == "halo" {
		return false, 2 * haloNeighbors
	}
	return false, 2 // one to send from and one to receive into
}

// exchange has the forms of a collective over separate buffers.
type exchange struct {
	runBlocking      func() error
	startNonblocking func() (mpi.Request, error)
	initPersistent   func() (*mpi.Persistent, error)
}

// exchange returns the one of a benchmark.
func (r *rank) exchange(ctx context.Context, size int) (x exchange, err error) {
	c := r.comm
	name := r.o.name
	if name != "ibarrier" {
		name = strings.TrimPrefix(name, "i")
	}
	if reduces, _ := r.o.traits(); reduces {
		return r.reduction(ctx, name, size), nil
	}
	sends, recvs := 1, 1
	switch name {
	case "ibarrier":
		sends, recvs = 0, 0
	case "bcast":
		recvs = 0
	case "gather", "allgather":
		recvs = c.Size()
	case "scatter":
		sends = c.Size()
	case "alltoall":
		sends, recvs = c.Size(), c.Size()
	}
	send, err := r.buffer(sends * size)
	if err != nil {
		return x, err
	}
	recv, err := r.buffer(recvs * size)
	if err != nil {
		return x, err
	}
	switch name {
	case "ibarrier":
		x.startNonblocking = func() (mpi.Request, error) { return mpi.Ibarrier(c) }
	case "bcast":
		x.runBlocking = func() error { return mpi.Bcast(ctx, c, send, 0) }
		x.startNonblocking = func() (mpi.Request, error) { return mpi.Ibcast(c, send, 0) }
		x.initPersistent = func() (*mpi.Persistent, error) { return mpi.BcastInit(ctx, c, send, 0) }
	case "gather":
		x.runBlocking = func() error { return mpi.Gather(ctx, c, send, recv, 0) }
		x.startNonblocking = func() (mpi.Request, error) { return mpi.Igather(c, send, recv, 0) }
		x.initPersistent = func() (*mpi.Persistent, error) { return mpi.GatherInit(ctx, c, send, recv, 0) }
	case "scatter":
		x.runBlocking = func() error { return mpi.Scatter(ctx, c, send, recv, 0) }
		x.startNonblocking = func() (mpi.Request, error) { return mpi.Iscatter(c, send, recv, 0) }
		x.initPersistent = func() (*mpi.Persistent, error) { return mpi.ScatterInit(ctx, c, send, recv, 0) }
	case "allgather":
		x.runBlocking = func() error { return mpi.Allgather(ctx, c, send, recv) }
		x.startNonblocking = func() (mpi.Request, error) { return mpi.Iallgather(c, send, recv) }
		x.initPersistent = func() (*mpi.Persistent, error) { return mpi.AllgatherInit(ctx, c, send, recv) }
	case "alltoall":
		x.runBlocking = func() error { return mpi.Alltoall(ctx, c, send, recv) }
		x.startNonblocking = func() (mpi.Request, error) { return mpi.Ialltoall(c, send, recv) }
		x.initPersistent = func() (*mpi.Persistent, error) { return mpi.AlltoallInit(ctx, c, send, recv) }
	}
	return x, nil
}

// elementBytes is the size of an element of reductions, a float32 as in OSU's or an int32.
const elementBytes = 4

// elementTypes are the values of --type.
var elementTypes = []string{"float", "int"}

// reduction returns the exchange of a reduction, sums of ones.
func (r *rank) reduction(ctx context.Context, name string, size int) exchange {
	if r.o.elementType == "int" {
		return reduction[int32](ctx, r.comm, name, size)
	}
	return reduction[float32](ctx, r.comm, name, size)
}

func reduction[T float32 | int32](ctx context.Context, c *mpi.Comm, name string, size int) (x exchange) {
	sum := mpi.Sum[T]()
	send, recv := slices.Repeat([]T{1}, size/elementBytes), slices.Repeat([]T{2}, size/elementBytes)
	switch name {
	case "reduce":
		x.runBlocking = func() error { return mpi.Reduce(ctx, c, send, recv, sum, 0) }
		x.startNonblocking = func() (mpi.Request, error) { return mpi.Ireduce(c, send, recv, sum, 0) }
		x.initPersistent = func() (*mpi.Persistent, error) { return mpi.ReduceInit(ctx, c, send, recv, sum, 0) }
	case "allreduce":
		x.runBlocking = func() error { return mpi.Allreduce(ctx, c, send, recv, sum) }
		x.startNonblocking = func() (mpi.Request, error) { return mpi.Iallreduce(c, send, recv, sum) }
		x.initPersistent = func() (*mpi.Persistent, error) { return mpi.AllreduceInit(ctx, c, send, recv, sum) }
	case "reduce_scatter":
		counts := make([]int, c.Size()) // as equal as can be
		for i := range counts {
			counts[i] = (len(send) + c.Size() - 1 - i) / c.Size()
		}
		x.runBlocking = func() error { return mpi.ReduceScatter(ctx, c, send, recv, counts, sum) }
		x.startNonblocking = func() (mpi.Request, error) { return mpi.IreduceScatter(c, send, recv, counts, sum) }
		x.initPersistent = func() (*mpi.Persistent, error) { return mpi.ReduceScatterInit(ctx, c, send, recv, counts, sum) }
	}
	return x
}

// collective is the loop of osu_allreduce and the like. An untimed barrier separates the
// iterations.
func (r *rank) collective(ctx context.Context, size int) (Row, error) {
	x, err := r.exchange(ctx, size)
	if err != nil {
		return Row{}, err
	}
	return r.timeCollective(ctx, size, x)
}

// timeCollective times a blocking collective, or with --persistent Start and Wait of the persistent one.
func (r *rank) timeCollective(ctx context.Context, size int, x exchange) (row Row, err error) {
	if r.o.isPersistent {
		p, err := x.initPersistent()
		if err != nil {
			return Row{}, err
		}
		defer func() { err = errors.Join(err, p.Free()) }()
		x.runBlocking = func() error {
			if err := p.Start(); err != nil {
				return err
			}
			_, err := p.Wait(ctx)
			return err
		}
	}
	return r.together(ctx, size, 1, 100,
		func(int) error { return x.runBlocking() },
		func() error { return mpi.Barrier(ctx, r.comm) })
}

// overlap is the loop of osu_iallreduce and the like. It first measures the collective alone. Then each rank
// computes for that time between start and wait. Parts of the operation without overlap add to the total.
func (r *rank) overlap(ctx context.Context, size int) (Row, error) {
	x, err := r.exchange(ctx, size)
	if err != nil {
		return Row{}, err
	}
	var compute time.Duration
	each := func(int) error {
		q, err := x.startNonblocking()
		if err != nil {
			return err
		}
		work(compute)
		_, err = q.Wait(ctx)
		return err
	}
	between := func() error { return mpi.Barrier(ctx, r.comm) }
	pure, err := r.together(ctx, size, 1, 100, each, between)
	if err != nil {
		return Row{}, err
	}
	average := []float64{pure.Avg} // rank 0's is that of all
	if err := mpi.Bcast(ctx, r.comm, average, 0); err != nil {
		return Row{}, err
	}
	compute = time.Duration(average[0] * float64(time.Microsecond))
	row, err := r.together(ctx, size, 1, 100, each, between)
	row.ComputeTime, row.PureTime = average[0], average[0]
	row.OverlapPercent = min(100, max(0, 100-(row.Avg-row.ComputeTime)/row.PureTime*100))
	return row, err
}

// work computes for some time, without a call of the library.
func work(d time.Duration) {
	const batch = 64 // multiplications between two looks at the clock
	x := 1.0
	for start := time.Now(); time.Since(start) < d; {
		for range batch {
			x = x*0.999 + 0.5
		}
	}
	runtime.KeepAlive(x)
}

// describeCollectives is a part of the help.
func describeCollectives() string {
	var b strings.Builder
	for _, c := range collectives {
		fmt.Fprintf(&b, "  %-9s %s\n", c.name, c.does)
	}
	return b.String()
}
