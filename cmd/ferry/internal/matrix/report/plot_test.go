package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// latencies is a report with a curve for each list of values, at sizes from 8 on.
func latencies(curves ...[]float64) *Report {
	r := &Report{}
	for i, values := range curves {
		row := Row{Stack: fmt.Sprint("stack ", i), Case: "bench/latency", Status: Pass}
		for k, v := range values {
			row.Points = append(row.Points, Point{Size: 8 << k, Value: v, Unit: "us"})
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

func TestCharts_NamesOfCurves_DoNotOverlap(t *testing.T) {
	for _, n := range []int{1, 2, 9, 40} {
		var curves [][]float64
		for i := range n {
			curves = append(curves, []float64{1, 2 + float64(i)/1000})
		}
		c := charts(latencies(curves...))[0]
		var at []float64
		for _, k := range c.Curves {
			at = append(at, k.Key.Y)
			if k.Key.Y < 0 || k.Key.Y > c.Height {
				t.Errorf("%d curves: the name of %s is at %v of %v", n, k.Name, k.Key.Y, c.Height)
			}
		}
		slices.Sort(at)
		for i := 1; i < len(at); i++ {
			if at[i]-at[i-1] < lineHeight-0.2 {
				t.Errorf("%d curves: names at %v and %v", n, at[i-1], at[i])
			}
		}
	}
}

func TestCharts_InvalidFigures_AreLeftOut(t *testing.T) {
	for what, c := range map[string]struct {
		r      *Report
		charts int
	}{
		"nothing":              {latencies(), 0},
		"one size":             {latencies([]float64{3}), 0},
		"zeros":                {latencies([]float64{0, 0, 0}), 0},
		"two sizes":            {latencies([]float64{3, 3}), 1},
		"one size beside more": {latencies([]float64{3}, []float64{1, 2}), 1},
		"from tiny to huge":    {latencies([]float64{1e-300, 1e300}), 1},
		"infinite":             {latencies([]float64{math.Inf(1), math.NaN(), 1}), 0},
	} {
		got := charts(c.r)
		if len(got) != c.charts {
			t.Errorf("%s: %d charts", what, len(got))
		}
		for _, chart := range got {
			for _, k := range chart.Curves {
				if strings.Contains(k.Path, "NaN") || strings.Contains(k.Path, "Inf") {
					t.Errorf("%s: drawn at %s", what, k.Path)
				}
			}
		}
	}
}

func TestCharts_SizesAndValues_AreRounded(t *testing.T) {
	for size, want := range map[int]string{0: "0 B", 1: "1 B", 1000: "1000 B", 1024: "1 KiB", 1536: "1536 B", 4 << 20: "4 MiB"} {
		if got := sizeText(size); got != want {
			t.Errorf("%d is %q, not %q", size, got, want)
		}
	}
	for p, want := range map[Point]string{
		{Value: 0.02, Unit: "us"}: "0.02 us", {Value: 5, Unit: "us"}: "5 us", {Value: 20_000, Unit: "us"}: "20 ms",
		{Value: 200, Unit: "MB/s"}: "200 MB/s", {Value: 1000, Unit: "MB/s"}: "1 GB/s", {Value: 1e6, Unit: "msg/s"}: "1 M/s",
	} {
		if got := valueText(p.Value, p.Unit); got != want {
			t.Errorf("%v is %q, not %q", p, got, want)
		}
	}
}
