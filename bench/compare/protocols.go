package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// The rendezvous protocol of a large message is selected at run time. These rows compare the selector (auto) with each
// fixed value of btl.shm.single_copy, and with itself. The latter ratio is the noise of
// the row.

// moreRounds is a factor for the number of rounds. A row is the worst of ten sizes beside the best of two or three
// values, and therefore the noisiest one.
const moreRounds = 2

// copyParam is the parameter that selects or forces a copy.
const copyParam = "btl.shm.single_copy"

// A protocolRow is a loop over several sizes of message, by the selector
// and by each fixed value.
type protocolRow struct {
	name string
	// Least speed of the selector to that of the best fixed value.
	wantedRatio float64
	sizeRanges  []figure
	ferryFlags  []string
	// Values of copyParam, with the selector first.
	copyValues []string
}

// protocolRows returns rows of messages in one direction, in both, and in windows, in ordinary and
// AllocMem buffers; and of messages after a change of the machine.
func protocolRows() (list []protocolRow) {
	const kib, mib = 1 << 10, 1 << 20
	one := latency("", 8*kib, 0, 0, "").through(4 * mib)
	both := window("", "bibw", "GB/s", 8*kib, 0, 0, "").through(4 * mib)
	many := window("", "bw", "GB/s", 8*kib, 0, 0, "").through(4 * mib)
	// The selector must have adapted. A window has 64 messages.
	one.iterations, one.warmupIterations = 200, 200
	both.warmupIterations, many.warmupIterations = 16, 16
	for _, memory := range []struct {
		name  string
		flags []string
		ways  []string
	}{
		{"ordinary buffers", nil, []string{"auto", "off", "cma"}},
		{"AllocMem buffers", []string{"--alloc-mem"}, []string{"auto", "off", "cma", "memory"}},
	} {
		for _, loop := range []struct {
			name   string
			wanted float64
			f      figure
		}{
			{"one way", 0.95, one},
			{"both ways", 0.92, both},
			{"a window of 64", 0.95, many},
		} {
			list = append(list, protocolRow{"auto to the best fixed way, " + loop.name + ", " + memory.name, loop.wanted, []figure{loop.f}, memory.flags, memory.ways})
		}
	}
	for _, change := range []struct{ name, how string }{
		{"both ranks have moved to the other's processor", "swapped"},
		{"a third process has come to a rank's processor", "neighbour"},
	} {
		f := latency("", 64*kib, 0, 0, "").through(mib)
		f.BenchName, f.iterations, f.warmupIterations = "change/"+change.how, 400, 1000
		f.usesMedian = change.how == "neighbour" // The average would be that of time slices.
		f.commandLine = func(program string) []string {
			return []string{program, "bench", "change", "--to", change.how, "-m", fmt.Sprintf("%d:%d", f.MessageBytes, f.largest()),
				"-i", fmt.Sprint(f.iterations), "-x", fmt.Sprint(f.warmupIterations), "--format", "json"}
		}
		list = append(list, protocolRow{"auto to the best fixed way, from 200 messages after " + change.name, 0.9, []figure{f}, nil, []string{"auto", "off", "cma"}})
	}
	return list
}

// A protocolPoint is one size of a protocolRow.
type protocolPoint struct {
	Name string `json:"figure"`
	Size int    `json:"size"`
	Unit string `json:"unit"`
	// Keyed by value of btl.shm.single_copy.
	MediansByValue map[string]float64 `json:"values"`
	// Fixed value with the worst ratio of the selector.
	BestFixed string `json:"best"`
	// Speed of the selector to that of the best, round by round.
	Ratio float64 `json:"ratio"`
	// The same ratio of the selector to itself, or 0 if not measured.
	RatioToItself float64 `json:"itself"`
}

// compareProtocols measures a protocolRow. The result is that of its worst size, with all sizes beside it.
func (c *comparison) compareProtocols(ctx context.Context, x protocolRow) (own, []protocolPoint, error) {
	o := own{Name: x.name, WantedBound: bound{AtLeast: x.wantedRatio}}
	var curves []*curve
	for _, way := range append(slices.Clone(x.copyValues), x.copyValues[0]) {
		curves = append(curves, c.curves(x.sizeRanges, nil, append(slices.Clone(x.ferryFlags), "--set", copyParam+"="+way)...)...)
	}
	if err := c.sweep(ctx, x.name, x.sizeRanges, curves, moreRounds*c.pairCount); err != nil {
		return o, nil, err
	}
	for _, cv := range curves {
		cv.settle(c.bestHops)
	}
	rows, why := x.rows(curves[:len(x.copyValues)], curves[len(x.copyValues)], c.bestHops)
	if o.NotMeasured = why; why != "" {
		return o, rows, nil
	}
	for i, w := range rows {
		if i == 0 || w.Ratio < o.Value {
			o.Value, o.ComparedValues = w.Ratio, w.describe()
		}
	}
	o.IsMet = o.WantedBound.meets(o.Value)
	c.note("%s: %s (%s)", o.Name, digits(o.Value), o.ComparedValues)
	return o, rows, nil
}

// rows compares the first curve with the best of the others at each size, and with itself. why is the reason of a
// failure. A value that this machine refuses has no curve, and is omitted.
func (x protocolRow) rows(curves []*curve, again *curve, b bests) (rows []protocolPoint, why string) {
	for _, p := range curves[0].Points {
		w := protocolPoint{Name: x.name, Size: p.MessageBytes, Unit: curves[0].Unit, MediansByValue: map[string]float64{x.copyValues[0]: p.Value}}
		for i, cv := range curves[1:] {
			at := slices.IndexFunc(cv.Points, func(q point) bool { return q.MessageBytes == p.MessageBytes })
			if at < 0 {
				continue
			}
			way := x.copyValues[i+1]
			w.MediansByValue[way] = cv.Points[at].Value
			if ratio := x.speed(curves[0], cv, p, b); w.BestFixed == "" || ratio < w.Ratio {
				w.BestFixed, w.Ratio = way, ratio
			}
		}
		if w.BestFixed == "" {
			continue
		}
		w.RatioToItself = x.speed(curves[0], again, p, b)
		rows = append(rows, w)
	}
	if len(rows) > 0 {
		return rows, ""
	}
	for _, cv := range curves {
		if cv.NotMeasured != "" {
			return nil, cv.NotMeasured
		}
	}
	return nil, "no size has both auto and a fixed value"
}

// speed returns the speed of the selector at a point to that of another curve, or 0 without such a point.
func (x protocolRow) speed(choice, other *curve, p point, b bests) float64 {
	ratio, ok := choice.beside(other, p.MessageBytes, b)
	if !ok {
		at := slices.IndexFunc(other.Points, func(q point) bool { return q.MessageBytes == p.MessageBytes })
		if at < 0 {
			return 0
		}
		ratio = p.Value / other.Points[at].Value
	}
	if x.sizeRanges[0].LowerIsBetter {
		return 1 / ratio
	}
	return ratio
}

// describe formats the values of the ratio.
func (w protocolPoint) describe() string {
	return fmt.Sprintf("%d B: %s / %s %s (%s); to itself %s", w.Size, digits(w.MediansByValue["auto"]), digits(w.MediansByValue[w.BestFixed]), w.Unit, w.BestFixed, w.Noise())
}

// Noise formats RatioToItself for a table.
func (w protocolPoint) Noise() string {
	if w.RatioToItself > 0 {
		return fmt.Sprintf("%.2f", w.RatioToItself)
	}
	return "-"
}

// Value formats the median with a value of the parameter for a table.
func (w protocolPoint) Value(way string) string {
	if v, ok := w.MediansByValue[way]; ok {
		return digits(v)
	}
	return "-"
}

// Short returns the name without the common prefix of all rows.
func (w protocolPoint) Short() string {
	return strings.TrimPrefix(w.Name, "auto to the best fixed way, ")
}
