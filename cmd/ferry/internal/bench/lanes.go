package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/mpi"
)

// pairGoroutines makes mbw_mr the message rate of pairs of goroutines, if --threads is given.
func (o *options) pairGoroutines() {
	if o.isPaired = o.isGiven("threads"); !o.isPaired {
		return
	}
	o.measureAll, o.measureRow = (*rank).rateOnLanes, (*rank).pairedRate
	lane := "dup"
	if o.onStreams {
		lane = "stream"
	}
	o.osuTitle += fmt.Sprintf(", %d goroutines of each rank, a %s for each pair", o.goroutinesPerRank, lane)
}

// pairsEach is the number of goroutines of a rank that are paired, 1 if ranks are.
func (o *rankOptions) pairsEach() int {
	if o.isPaired {
		return o.goroutinesPerRank
	}
	return 1
}

// checkThreads checks --threads and --streams.
func (o *options) checkThreads() error {
	isThreaded := o.name == "latency_mt" || o.isPaired
	switch {
	case o.isGiven("threads") && !isThreaded:
		return exit.Usagef("--threads: %s has one goroutine of each rank; latency_mt and mbw_mr have several", o.name)
	case o.goroutinesPerRank < 1 || o.goroutinesPerRank > mostThreads:
		return exit.Usagef("--threads %d: want 1 to %d", o.goroutinesPerRank, mostThreads)
	case isThreaded && o.goroutinesPerProcess > 0:
		return exit.Usagef("--threads: a goroutine rank is one goroutine: leave out --goroutines or --threads")
	case isThreaded && o.threadLevel != "multiple":
		return exit.Usagef("--thread-level %s: %s has several goroutines of a rank in calls at once: leave it out", o.threadLevel, o.name)
	case o.onStreams && !o.isPaired:
		return exit.Usagef("--streams: %s has no pairs of goroutines; mbw_mr --threads has", o.name)
	}
	return nil
}

// rateOnLanes is mbw_mr for pairs of goroutines. Each pair has a communicator for all sizes.
func (r *rank) rateOnLanes(ctx context.Context) (err error) {
	defer func() {
		for _, c := range r.laneComms {
			err = errors.Join(err, c.Close())
		}
	}()
	for range r.o.goroutinesPerRank {
		c, err := r.newLane(ctx)
		if err != nil {
			return err
		}
		r.laneComms = append(r.laneComms, c)
	}
	return r.sizes(func(size int) error { return r.one(ctx, size) })
}

// newLane creates the communicator of a pair of goroutines.
func (r *rank) newLane(ctx context.Context) (*mpi.Comm, error) {
	if !r.o.onStreams {
		return r.comm.Dup(ctx)
	}
	stream, err := r.session.NewStream()
	if err != nil {
		return nil, err
	}
	return r.comm.WithStream(ctx, stream)
}

// pairedRate is the loop of mbw_mr in each lane at once. Goroutines that share processors do not start at once, and
// a rate over the mean of their times would be too high. The average is over the time of a rank from
// the first start to the last end. The other figures are those of the windows of rank 0, times the pairs.
func (r *rank) pairedRate(ctx context.Context, size int) (Row, error) {
	var transfers []func(ctx context.Context, l loop) (*sample, error)
	for _, c := range r.laneComms { // Buffers are allocated before any message.
		transfer, err := r.windowsOn(c, size)
		if err != nil {
			return Row{}, err
		}
		transfers = append(transfers, transfer)
	}
	warmup, timed := r.o.windows(size), r.o.windows(size)
	warmup.iterations, timed.warmupIterations = 0, 0
	samples := make([]*sample, len(transfers))
	inAll := func(l loop) error {
		group, ctx := errgroup.WithContext(ctx)
		for i, transfer := range transfers {
			group.Go(func() (err error) {
				samples[i], err = transfer(ctx, l)
				return err
			})
		}
		return group.Wait()
	}
	if err := inAll(warmup); err != nil {
		return Row{}, err
	}
	start := clock()
	if err := inAll(timed); err != nil {
		return Row{}, err
	}
	return r.pairedRow(ctx, samples, clock()-start, timed.iterations)
}

// pairedRow makes the row of all lanes, each with a number of windows.
func (r *rank) pairedRow(ctx context.Context, samples []*sample, elapsed time.Duration, windows int) (Row, error) {
	pairsOfRanks := r.comm.Size() / 2
	if r.comm.Rank() >= pairsOfRanks { // A receiver.
		elapsed = 0
	}
	total := make([]float64, 1)
	err := mpi.Reduce(ctx, r.comm, []float64{float64(elapsed)}, total, mpi.Sum[float64](), 0)
	if err != nil || r.comm.Rank() != 0 {
		return Row{}, err
	}
	all := samples[0]
	for _, s := range samples[1:] {
		all.merge(s)
	}
	pairs := pairsOfRanks * len(samples)
	row := all.rates(Row{Unit: "messages/s"}, float64(pairs)*window, 1e9)
	row.Avg = rateOf(pairs, windows, total[0]/float64(pairsOfRanks))
	return row, nil
}

// rateOf is the messages/s of pairs that have each sent a number of windows in some nanoseconds.
func rateOf(pairs, windows int, elapsed float64) float64 {
	return float64(pairs) * window * float64(windows) / elapsed * 1e9
}
