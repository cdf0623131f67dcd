package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/montanaflynn/stats"

	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
)

// Row is one measurement. Times are in us, of init, startup, hello and recover in ms, of hop and match in
// ns, bandwidth in 10^6 bytes per second (MB/s), rates in messages/s, memory in KiB, and the use of a
// processor in %. A benchmark with several figures appends their names to its own, as in memory/private.
// The percentiles are those of the figure itself, with Min <= P50 <= P99 also where less is worse.
type Row struct {
	Bench     string `json:"bench"`
	Size      int    `json:"size"` // bytes; 0 where there is no message; of match the depth of the queue; of grow and shrink the number of processes that come or go
	RankCount int    `json:"ranks"`
	// GoroutineRanks is the number of goroutine ranks of each process. It is 0 if processes are the ranks.
	GoroutineRanks int `json:"goroutines,omitempty"`
	// Number for each rank, of mbw_mr with --threads.
	PairedGoroutines int `json:"threads,omitempty"`
	// Each pair has a stream.
	HasStreams   bool `json:"streams,omitempty"`
	IsPersistent bool `json:"persistent,omitempty"`
	// Of halo and isendrecv with --isend-irecv.
	IsendIrecv bool    `json:"isend_irecv,omitempty"`
	Unit       string  `json:"unit"`
	Avg        float64 `json:"avg"`
	Min        float64 `json:"min"`
	P50        float64 `json:"p50"`
	P99        float64 `json:"p99"`
	RawHop     float64 `json:"raw_hop_ns"` // 0 where there is only one rank, or ranks share processors

	// Values of isend and of nonblocking collectives, with Avg as the time with computation: the time of the
	// computation, the time of the collective alone, and the overlapping part, in %.
	ComputeTime float64 `json:"compute_us,omitempty"`
	// Of partitioned, the time of a Send of the whole buffer.
	PureTime       float64 `json:"pure_us,omitempty"`
	OverlapPercent float64 `json:"overlap_percent,omitempty"`

	Tail *Tail `json:"tail,omitempty"` // of latency with --live or --alloc

	iterations int
	max        float64
}

// Tail has the times of the slowest single messages, in us, and the number of garbage collections in rank 0
// meanwhile.
type Tail struct {
	P999            float64 `json:"p99_9"`
	P9999           float64 `json:"p99_99"`
	Longest         float64 `json:"longest"`
	CollectionCount int     `json:"collections"`
}

// format writes the head of a table and its rows.
type format struct {
	headText func(o *options) string
	writeRow func(w io.Writer, r Row) error
}

var formats = map[string]format{
	osuFormat:  {func(o *options) string { return o.benchmark.osuHead(o.rankCount * o.pairsEach()) }, osuRow},
	jsonFormat: {func(*options) string { return "" }, func(w io.Writer, r Row) error { return json.NewEncoder(w).Encode(r) }},
	"csv":      {func(*options) string { return "bench,size,ranks,unit,avg,min,p50,p99,raw_hop_ns\n" }, csvRow},
	// The format of `go test -bench` (golang.org/x/perf), which benchstat reads.
	"gobench": {func(*options) string { return "ferry: " + version.String() + "\n" }, goRow},
}

// mostSkew is the largest ratio of mean and p50 that needs no remark.
const mostSkew = 3

// isSkewed reports whether the mean of a time is far above p50, or that of a rate far below it. A row with a tail has p50
// as a column.
func (r Row) isSkewed() bool {
	switch {
	case r.P50 <= 0 || r.Avg <= 0 || r.Tail != nil:
		return false
	case slices.Contains([]string{"us", "ms", "ns"}, r.Unit):
		return r.Avg > mostSkew*r.P50
	case slices.Contains([]string{"MB/s", "messages/s"}, r.Unit):
		return r.P50 > mostSkew*r.Avg
	}
	return false
}

func osuRow(w io.Writer, r Row) error {
	var err error
	switch r.Bench {
	case "mbw_mr":
		_, err = fmt.Fprintf(w, "%-10d%18.2f%18.2f\n", r.Size, r.Avg*float64(r.Size)/1e6, r.Avg)
	case "partitioned":
		_, err = fmt.Fprintf(w, "%-10d%18.2f%18.2f\n", r.Size, r.Avg, r.PureTime)
	case "barrier", "dup", "create", "agree", "shrink", "idle", "hop":
		_, err = fmt.Fprintf(w, "%17.2f\n", r.Avg)
	case "init", "hello", "recover":
		_, err = fmt.Fprintf(w, "nprocs: %d, min: %.2f ms, max: %.2f ms, avg: %.2f ms\n", r.RankCount, r.Min, r.max, r.Avg)
	default:
		if queue, ok := strings.CutPrefix(r.Bench, "match/"); ok {
			_, err = fmt.Fprintf(w, "%-28s%10d%18.1f\n", queue, r.Size, r.Avg)
			break
		}
		if change, ok := strings.CutPrefix(r.Bench, "change/"); ok {
			_, err = fmt.Fprintf(w, "%-12s%10d%18.2f\n", change, r.Size, r.Avg)
			break
		}
		if order, ok := strings.CutPrefix(r.Bench, "ring/"); ok {
			_, err = fmt.Fprintf(w, "%-10s%18.2f\n", order, r.Avg)
			break
		}
		if step, ok := strings.CutPrefix(r.Bench, "startup/"); ok {
			_, err = fmt.Fprintf(w, "%-20s%6s%18.2f%18.2f\n", step, r.Unit, r.Avg, r.max)
			break
		}
		if r.Unit == "ms" { // Of grow and shrink.
			_, figure, _ := strings.Cut(r.Bench, "/")
			_, err = fmt.Fprintf(w, "%-8s%12d%18.2f%18.2f%18.2f\n", figure, r.Size, r.Avg, r.Min, r.max)
			break
		}
		if _, what, ok := strings.Cut(r.Bench, "/"); ok {
			_, err = fmt.Fprintf(w, "%-20s%18.0f%18.0f\n", what, r.Avg, r.max)
			break
		}
		if t := r.Tail; t != nil {
			_, err = fmt.Fprintf(w, "%-10d%18.2f%18.2f%18.2f%18.2f%18.2f%14d\n", r.Size, r.Avg, r.P50, t.P999, t.P9999, t.Longest, t.CollectionCount)
			break
		}
		if r.PureTime > 0 {
			_, err = fmt.Fprintf(w, "%-10d%18.2f%18.2f%18.2f%18.2f\n", r.Size, r.Avg, r.ComputeTime, r.PureTime, r.OverlapPercent)
			break
		}
		_, err = fmt.Fprintf(w, "%-10d%18.2f\n", r.Size, r.Avg)
	}
	return err
}

func csvRow(w io.Writer, r Row) error {
	_, err := fmt.Fprintf(w, "%s,%d,%d,%s,%g,%g,%g,%g,%g\n", r.Bench, r.Size, r.RankCount, r.Unit, r.Avg, r.Min, r.P50, r.P99, r.RawHop)
	return err
}

func goRow(w io.Writer, r Row) error {
	scale, unit := 1.0, r.Unit
	switch r.Unit {
	case "us":
		scale, unit = 1e3, "ns/op"
	case "ms":
		scale, unit = 1e6, "ns/op"
	case "ns":
		unit = "ns/op"
	}
	name := fmt.Sprintf("BenchmarkFerry/%s/size=%d/ranks=%d", r.Bench, r.Size, r.RankCount)
	if r.GoroutineRanks > 0 {
		name += fmt.Sprintf("/goroutines=%d", r.GoroutineRanks)
	}
	if r.IsPersistent {
		name += "/persistent"
	}
	if r.IsendIrecv {
		name += "/isend-irecv"
	}
	_, err := fmt.Fprintf(w, "%s\t%d\t%g %s\t%g p50-%s\t%g raw-hop-ns\n", name, r.iterations, r.Avg*scale, unit, r.P50*scale, unit, r.RawHop)
	return err
}

// The histogram counts picoseconds, so that batches of 50 ns keep three digits.
const (
	picosPerNano = 1000
	longest      = int64(100 * time.Second * picosPerNano)
)

// sample collects the times of batches of operations.
type sample struct {
	hist *hdrhistogram.Histogram
	// Not in hist yet, because others would wait for that.
	pendingPicos   []int64
	totalTime      time.Duration
	operationCount int
}

// mostLate is how many batches are kept until they go to the histogram together.
const mostLate = 4096

func newSample() *sample {
	return &sample{hist: hdrhistogram.New(1, longest, 3), pendingPicos: make([]int64, 0, mostLate)}
}

// add records that n operations took d.
func (s *sample) add(d time.Duration, n int) {
	s.totalTime += d
	s.operationCount += n
	if len(s.pendingPicos) == mostLate {
		s.flush()
	}
	s.pendingPicos = append(s.pendingPicos, int64(d)*picosPerNano/int64(n))
}

// merge adds another sample.
func (s *sample) merge(other *sample) {
	s.flush()
	other.flush()
	s.hist.Merge(other.hist)
	s.totalTime += other.totalTime
	s.operationCount += other.operationCount
}

// flush has all in the histogram.
func (s *sample) flush() {
	for _, picos := range s.pendingPicos { // beyond the longest only the extremes lose precision, not the average
		_ = s.hist.RecordValue(min(picos, longest))
	}
	s.pendingPicos = s.pendingPicos[:0]
}

// times makes a row of times. scale turns nanoseconds per operation into the
// row's unit.
func (s *sample) times(r Row, scale float64) Row { return s.summary().times(r, scale) }

// rates makes a row of rates: work per nanosecond of an operation, times scale.
func (s *sample) rates(r Row, work, scale float64) Row { return s.summary().rates(r, work, scale) }

// summary returns the figures of the batches, zeros if there are none.
func (s *sample) summary() (f summary) {
	if s.operationCount == 0 {
		return f
	}
	s.flush()
	of := func(quantile float64) float64 { return float64(s.hist.ValueAtQuantile(quantile)) / picosPerNano }
	f.operationCount, f.nsPerOperation[mean] = s.operationCount, float64(s.totalTime.Nanoseconds())/float64(s.operationCount)
	f.nsPerOperation[fastest], f.nsPerOperation[slowest] = float64(s.hist.Min())/picosPerNano, float64(s.hist.Max())/picosPerNano
	f.nsPerOperation[percentile1], f.nsPerOperation[median], f.nsPerOperation[percentile99] = of(1), of(50), of(99)
	return f
}

// summary has figures of batches, in nanoseconds per operation.
type summary struct {
	operationCount int
	nsPerOperation [figures]float64
}

// Figures of a summary.
const (
	mean = iota
	fastest
	percentile1
	median
	percentile99
	slowest
	figures
)

func (f summary) times(r Row, scale float64) Row {
	return f.row(r, func(ns float64) float64 { return ns * scale })
}

func (f summary) rates(r Row, work, scale float64) Row {
	return f.row(r, func(ns float64) float64 { return work / max(ns, 1e-3) * scale })
}

// row makes a row of the values that convert returns for nanoseconds per operation.
func (f summary) row(r Row, convert func(ns float64) float64) Row {
	of := func(figure int) float64 { return convert(f.nsPerOperation[figure]) }
	r.iterations = f.operationCount
	r.Avg, r.Min, r.P50, r.P99, r.max = of(mean), of(fastest), of(median), of(percentile99), of(slowest)
	if r.max < r.Min { // the longest time is the lowest rate, so that quantiles change sides
		r.Min, r.P99, r.max = r.max, of(percentile1), r.Min
	}
	return r
}

// ofValues makes a row of figures that are in its unit already; there is at least
// one.
func ofValues(r Row, values []float64) Row {
	r.iterations = len(values)
	r.Avg, _ = stats.Mean(values) // like all of these fails without values only
	r.Min, _ = stats.Min(values)
	r.P50, _ = stats.PercentileNearestRank(values, 50)
	r.P99, _ = stats.PercentileNearestRank(values, 99)
	r.max, _ = stats.Max(values)
	return r
}
