package bench

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSizes_ParsedLikeOSU(t *testing.T) {
	for in, want := range map[string][2]int{"1:4MiB": {1, 4 << 20}, "8:8": {8, 8}, "64KiB": {1, 64 << 10}, "0:1": {0, 1}} {
		low, high, err := parseSizes(in)
		if err != nil || low != want[0] || high != want[1] {
			t.Errorf("%s: %d:%d, error %v", in, low, high, err)
		}
	}
	for _, in := range []string{"", "8:1", ":", "x", "1:2:3", "-1:8"} {
		if _, _, err := parseSizes(in); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
	var sizes []int
	for n := 0; n <= 4; n = (&options{}).next(n) {
		sizes = append(sizes, n)
	}
	if !slices.Equal(sizes, []int{0, 1, 2, 4}) {
		t.Errorf("sizes from 0 to 4: %v", sizes)
	}
	sizes = nil
	for n := 0; n <= 16; n = (&options{sizeOptions: sizeOptions{halfSteps: true}}).next(n) {
		sizes = append(sizes, n)
	}
	if !slices.Equal(sizes, []int{0, 1, 2, 3, 4, 6, 8, 12, 16}) {
		t.Errorf("half steps from 0 to 16: %v", sizes)
	}
}

func TestIterations_EqualOSU(t *testing.T) {
	o := &options{loopOptions: loopOptions{warmupIterations: -1}}
	if l := o.loop(largeMessage, 10000, 100, 1000, 10); l.iterations != 10000 || l.warmupIterations != 100 {
		t.Errorf("small: %d, %d", l.iterations, l.warmupIterations)
	}
	if l := o.loop(largeMessage+1, 10000, 100, 1000, 10); l.iterations != 1000 || l.warmupIterations != 10 {
		t.Errorf("large: %d, %d", l.iterations, l.warmupIterations)
	}
	o.iterations, o.warmupIterations = 7, 0
	if l := o.loop(1, 10000, 100, 1000, 10); l.iterations != 7 || l.warmupIterations != 0 {
		t.Errorf("the user's: %d, %d", l.iterations, l.warmupIterations)
	}
}

// A wrong unit would make every comparison void.
func TestRows_Units(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.002*want {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	s := newSample()
	s.add(100*time.Nanosecond, 2)   // 50 ns each
	s.add(1500*time.Nanosecond, 10) // 150 ns each
	r := s.times(Row{}, 1e-3)
	near("average in us", r.Avg, 1.6/12)
	near("minimum in us", r.Min, 0.05)
	near("maximum in us", r.max, 0.15)

	s = newSample()
	s.add(time.Millisecond, 1) // a window of 64 messages of 1000 bytes
	s.add(3*time.Millisecond, 1)
	r = s.rates(Row{}, 64*1000, 1e3)
	near("bandwidth in MB/s", r.Avg, 32)
	near("slowest in MB/s", r.Min, 64.0/3)
	near("fastest in MB/s", r.max, 64)
	for i := range 96 { // 1.5 to 2.5 ms
		s.add(1500*time.Microsecond+time.Duration(i)*time.Millisecond/96, 1)
	}
	if r = s.rates(Row{}, 64*1000, 1e3); !(r.Min <= r.P50 && r.P50 <= r.P99 && r.P99 <= r.max) || r.P50 == r.P99 {
		t.Errorf("percentiles of a rate run backwards: min %g, p50 %g, p99 %g, max %g", r.Min, r.P50, r.P99, r.max)
	}
	s = newSample()
	s.add(4*time.Millisecond, 2)
	near("messages/s", s.rates(Row{}, 64, 1e9).Avg, 32000)
}

func TestOfValues_QuantilesOverRanks(t *testing.T) {
	values := make([]float64, 130)
	for i := range values {
		values[i] = float64(130 - i)
	}
	if r := ofValues(Row{}, values); r.Avg != 65.5 || r.Min != 1 || r.P50 != 65 || r.P99 != 129 || r.max != 130 {
		t.Errorf("%+v", r)
	}
	if r := ofValues(Row{}, []float64{7}); r.Avg != 7 || r.Min != 7 || r.P50 != 7 || r.P99 != 7 || r.max != 7 {
		t.Errorf("one value: %+v", r)
	}
}

func TestTable_FewSlowBatches_HasCommentWithP50(t *testing.T) {
	slow := newSample() // 99 batches of 100 ns and one of 1 ms.
	for range 99 {
		slow.add(100*time.Nanosecond, 1)
	}
	even := newSample()
	even.merge(slow)
	slow.add(time.Millisecond, 1)
	latency, rate, depth := Row{Bench: "latency", Size: 8, Unit: "us"}, Row{Bench: "bw", Size: 64, Unit: "MB/s"}, Row{Bench: "match/posted", Size: 10, Unit: "ns"}
	var out strings.Builder
	table, err := (&options{outputFormat: osuFormat}).begin(&out)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Row{slow.times(latency, 1e-3), even.times(latency, 1e-3), slow.rates(rate, 8, 1e3), even.rates(rate, 8, 1e3), slow.times(depth, 1)} {
		if err := table.row(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.close(); err != nil {
		t.Fatal(err)
	}
	const want = `8                      10.10
8                       0.10
64                      0.79
64                     80.00
posted                              10           10099.0
# p50 in us where slow batches dominate the mean: 8=0.10
# p50 in MB/s where slow batches dominate the mean: 64=79.98
# p50 in ns where slow batches dominate the mean: posted:10=100.03
`
	if _, rows, _ := strings.Cut("\n"+out.String(), "\n8"); "8"+rows != want {
		t.Errorf("got\n%swant\n%s", "8"+rows, want)
	}
	out.Reset()
	if err := goRow(&out, slow.times(latency, 1e-3)); err != nil || !strings.Contains(out.String(), " ns/op\t100") || !strings.Contains(out.String(), " p50-ns/op\t") {
		t.Errorf("%v, %q", err, &out)
	}
}
