package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/montanaflynn/stats"
)

// The histogram counts picoseconds, so that batches of 50 ns keep three digits.
const (
	picos   = 1000 // per nanosecond
	longest = int64(100 * time.Second * picos)
)

// sample collects the times of batches of operations.
type sample struct {
	hist *hdrhistogram.Histogram
	sum  time.Duration
	ops  int
}

func newSample() *sample { return &sample{hist: hdrhistogram.New(1, longest, 3)} }

// add records that n operations took d.
func (s *sample) add(d time.Duration, n int) {
	s.sum += d
	s.ops += n
	// Beyond the longest only the extremes lose precision, not the average.
	_ = s.hist.RecordValue(min(int64(d)*picos/int64(n), longest))
}

// nanos converts a value of the histogram.
func nanos(v int64) float64 { return float64(v) / picos }

// times makes a row of times. scale turns nanoseconds per operation into the
// row's unit.
func (s *sample) times(r Row, scale float64) Row {
	r.Avg = float64(s.sum.Nanoseconds()) / float64(s.ops) * scale
	r.Min = nanos(s.hist.Min()) * scale
	r.P50 = nanos(s.hist.ValueAtQuantile(50)) * scale
	r.P99 = nanos(s.hist.ValueAtQuantile(99)) * scale
	r.max = nanos(s.hist.Max()) * scale
	r.iterations = s.ops
	return r
}

// rates makes a row of rates: work per nanosecond of an operation, times scale.
// The longest time is the lowest rate, so that quantiles change sides.
func (s *sample) rates(r Row, work, scale float64) Row {
	rate := func(ns float64) float64 { return work / max(ns, 1e-3) * scale }
	r.Avg = rate(float64(s.sum.Nanoseconds()) / float64(s.ops))
	r.Min = rate(nanos(s.hist.Max()))
	r.P50 = rate(nanos(s.hist.ValueAtQuantile(50)))
	r.P99 = rate(nanos(s.hist.ValueAtQuantile(1)))
	r.max = rate(nanos(s.hist.Min()))
	r.iterations = s.ops
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
