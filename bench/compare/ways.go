package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// How a large message goes is chosen while a program runs. These rows set the choice
// beside each way that it chooses among, and beside the choice once more: ferry alternates with
// itself, and what the choice seems to lose or win against itself is how much the machine lets such a row say.

// moreRounds is how many times as many rounds there are as of other rows. A row is the worst of ten sizes
// beside the best of two or three ways, and says more about the machine's noise than any other.
const moreRounds = 2

// single is the parameter that chooses, or forces a way.
const single = "btl.shm.single_copy"

// A contest is one of these rows: a loop over several sizes of message, by the choice
// and by each way.
type contest struct {
	name   string
	wanted float64 // the choice to the best way, at least; 1: as fast
	parts  []figure
	flags  []string // of all
	ways   []string // values of single; the first is the choice
}

// contests are one way, both ways and a window of messages, in ordinary memory and in
// AllocMem memory; and messages after the machine has changed.
func contests() (list []contest) {
	const kib, mib = 1 << 10, 1 << 20
	one := latency("", 8*kib, 0, 0, "").through(4 * mib)
	both := window("", "bibw", "GB/s", 8*kib, 0, 0, "").through(4 * mib)
	many := window("", "bw", "GB/s", 8*kib, 0, 0, "").through(4 * mib)
	// The choice is to be a warm one: a window has 64 messages.
	one.iterations, one.warmup = 200, 200
	both.warmup, many.warmup = 16, 16
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
			list = append(list, contest{"auto to the best fixed way, " + loop.name + ", " + memory.name, loop.wanted, []figure{loop.f}, memory.flags, memory.ways})
		}
	}
	for _, change := range []struct{ name, how string }{
		{"both ranks have moved to the other's processor", "swapped"},
		{"a third process has come to a rank's processor", "neighbour"},
	} {
		f := latency("", 64*kib, 0, 0, "").through(mib)
		f.Bench, f.iterations, f.warmup = "change/"+change.how, 400, 1000
		f.typical = change.how == "neighbour" // the average is that of time slices
		f.job = func(program string) []string {
			return []string{program, "bench", "change", "--to", change.how, "-m", fmt.Sprintf("%d:%d", f.Size, f.largest()),
				"-i", fmt.Sprint(f.iterations), "-x", fmt.Sprint(f.warmup), "--format", "json"}
		}
		list = append(list, contest{"auto to the best fixed way, from 200 messages after " + change.name, 0.9, []figure{f}, nil, []string{"auto", "off", "cma"}})
	}
	return list
}

// A wayRow is one size of a contest.
type wayRow struct {
	Name   string             `json:"figure"`
	Size   int                `json:"size"`
	Unit   string             `json:"unit"`
	Values map[string]float64 `json:"values"` // medians, by value of btl.shm.single_copy
	Best   string             `json:"best"`   // of the fixed ones: that beside which the choice does worst
	Ratio  float64            `json:"ratio"`  // of the speed of the choice to that of the best, round by round
	Itself float64            `json:"itself"` // the same to the choice once more, in the same rounds; 0: not taken
}

// contend takes a contest. The row is its worst size; the others are told beside it.
func (c *comparison) contend(ctx context.Context, x contest) (own, []wayRow, error) {
	o := own{Name: x.name, Wanted: bound{Least: x.wanted}}
	var curves []*curve
	for _, way := range append(slices.Clone(x.ways), x.ways[0]) {
		curves = append(curves, c.curves(x.parts, nil, append(slices.Clone(x.flags), "--set", single+"="+way)...)...)
	}
	if err := c.sweep(ctx, x.name, x.parts, curves, moreRounds*c.pairs); err != nil {
		return o, nil, err
	}
	for _, cv := range curves {
		cv.settle(c.best)
	}
	rows, why := x.rows(curves[:len(x.ways)], curves[len(x.ways)], c.best)
	if o.NotMeasured = why; why != "" {
		return o, rows, nil
	}
	for i, w := range rows {
		if i == 0 || w.Ratio < o.Value {
			o.Value, o.Of = w.Ratio, w.of()
		}
	}
	o.Met = o.Wanted.meets(o.Value)
	c.note("%s: %s (%s)", o.Name, digits(o.Value), o.Of)
	return o, rows, nil
}

// rows sets the first curve beside the best of the others at each size, and beside itself; why says that it
// can't. A way that this machine refuses has no curve, and is left out.
func (x contest) rows(curves []*curve, again *curve, b bests) (rows []wayRow, why string) {
	for _, p := range curves[0].Points {
		w := wayRow{Name: x.name, Size: p.Size, Unit: curves[0].Unit, Values: map[string]float64{x.ways[0]: p.Value}}
		for i, cv := range curves[1:] {
			at := slices.IndexFunc(cv.Points, func(q point) bool { return q.Size == p.Size })
			if at < 0 {
				continue
			}
			way := x.ways[i+1]
			w.Values[way] = cv.Points[at].Value
			if ratio := x.speed(curves[0], cv, p, b); w.Best == "" || ratio < w.Ratio {
				w.Best, w.Ratio = way, ratio
			}
		}
		if w.Best == "" {
			continue
		}
		w.Itself = x.speed(curves[0], again, p, b)
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
	return nil, "no size has both the choice and a fixed way"
}

// speed is that of the choice at a point of its curve to that of another curve; 0: it has no such point.
func (x contest) speed(choice, other *curve, p point, b bests) float64 {
	ratio, ok := choice.beside(other, p.Size, b)
	if !ok {
		at := slices.IndexFunc(other.Points, func(q point) bool { return q.Size == p.Size })
		if at < 0 {
			return 0
		}
		ratio = p.Value / other.Points[at].Value
	}
	if x.parts[0].Lower {
		return 1 / ratio
	}
	return ratio
}

// of says what a ratio is made of.
func (w wayRow) of() string {
	return fmt.Sprintf("%d B: %s / %s %s (%s); to itself %s", w.Size, digits(w.Values["auto"]), digits(w.Values[w.Best]), w.Unit, w.Best, w.Noise())
}

// Noise is what the choice does beside itself, as a cell of a table.
func (w wayRow) Noise() string {
	if w.Itself > 0 {
		return fmt.Sprintf("%.2f", w.Itself)
	}
	return "-"
}

// Value is that of a way, as a cell of a table.
func (w wayRow) Value(way string) string {
	if v, ok := w.Values[way]; ok {
		return digits(v)
	}
	return "-"
}

// Short is the row's name without what all of them begin with.
func (w wayRow) Short() string { return strings.TrimPrefix(w.Name, "auto to the best fixed way, ") }
