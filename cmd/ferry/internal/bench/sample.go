package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/montanaflynn/stats"
)

// The histogram counts picoseconds, so that batches of 50 ns keep three digits.
const (
	picosPerNano = 1000
	longest      = int64(100 * time.Second * picosPerNano)
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
	_ = s.hist.RecordValue(min(int64(d)*picosPerNano/int64(n), longest))
}

// times makes a row of times. scale turns nanoseconds per operation into the
// row's unit.
func (s *sample) times(r Row, scale float64) Row {
	return s.row(r, func(ns float64) float64 { return ns * scale })
}

// rates makes a row of rates: work per nanosecond of an operation, times scale.
func (s *sample) rates(r Row, work, scale float64) Row {
	return s.row(r, func(ns float64) float64 { return work / max(ns, 1e-3) * scale })
}

// row makes a row of what convert makes of nanoseconds per operation.
func (s *sample) row(r Row, convert func(ns float64) float64) Row {
	of := func(picos int64) float64 { return convert(float64(picos) / picosPerNano) }
	r.iterations = s.ops
	r.Avg = convert(float64(s.sum.Nanoseconds()) / float64(s.ops))
	r.Min, r.P50, r.P99, r.max = of(s.hist.Min()), of(s.hist.ValueAtQuantile(50)), of(s.hist.ValueAtQuantile(99)), of(s.hist.Max())
	if r.max < r.Min { // the longest time is the lowest rate, so that quantiles change sides
		r.Min, r.P99, r.max = r.max, of(s.hist.ValueAtQuantile(1)), r.Min
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
