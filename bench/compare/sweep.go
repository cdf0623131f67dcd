package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A sweep is a figure over the size of the message, with one curve for ferry and one per
// setting of each peer.
type sweep struct {
	Name string
	// Ranges of sizes with different loops.
	parts []figure
}

// sweeps are those of the plots.
func sweeps() []sweep {
	const kib, mib = 1 << 10, 1 << 20
	return []sweep{
		{"sweep of latency", ranges(latency("", 1, 0, 0, ""), 8*kib, 4*mib)},
		{"sweep of bandwidth", ranges(window("", "bw", "GB/s", 1, 0, 0, ""), 8*kib, 4*mib)},
		{"sweep of message rate", ranges(window("", "mbw_mr", "million/s", 1, 0, 0, ""), 8*kib)},
	}
}

// ranges returns the parts of a sweep, with sizes that double from that of f. ends are the
// last sizes of the parts.
func ranges(f figure, ends ...int) (parts []figure) {
	for _, end := range ends {
		parts = append(parts, f.through(end))
		f.Size = 2 * end
	}
	return parts
}

// A curve is a sweep of ours or of one setting of a peer.
type curve struct {
	Bench       string  `json:"bench"`
	Unit        string  `json:"unit"`
	Of          string  `json:"of"` // "ferry", or a peer's title
	Setting     string  `json:"setting"`
	Points      []point `json:"points"`
	NotMeasured string  `json:"not_measured,omitempty"`

	sides   []side // one for each part
	samples map[int][]sample
}

// A point is the median of the samples of one size.
type point struct {
	Size  int     `json:"size"`
	Value float64 `json:"value"`
	Hop   float64 `json:"raw_hop_ns"` // median
	Kept  int     `json:"kept"`
	Taken int     `json:"taken"`
	Other float64 `json:"other"` // the median of those that were taken in the other state, if Kept is not Taken
}

// MarshalJSON keeps five digits.
func (p point) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"size":%d,"value":%.5g,"raw_hop_ns":%.5g,"kept":%d,"taken":%d,"other":%.5g}`, p.Size, p.Value, p.Hop, p.Kept, p.Taken, p.Other), nil
}

// curves returns the empty curves of a sweep.
func (o *options) curves(parts []figure, peers []peer, flags ...string) []*curve {
	mine := &curve{Bench: parts[0].Bench, Unit: parts[0].Unit, Of: "ferry", samples: map[int][]sample{}}
	for _, f := range parts {
		args := o.ours(o.ferry, f, flags)
		if f.job != nil {
			args = append(f.job(o.ferry), flags...)
		}
		mine.sides = append(mine.sides, side{args, ferryRanks})
	}
	all := []*curve{mine}
	for _, p := range peers {
		for _, st := range p.Settings {
			if st.Only != "" {
				continue
			}
			c := &curve{Bench: mine.Bench, Unit: mine.Unit, Of: p.Title, Setting: st.Title, samples: map[int][]sample{}}
			for _, f := range parts {
				c.sides = append(c.sides, side{o.theirs(p, st, f), p.Name})
			}
			all = append(all, c)
		}
	}
	return all
}

// sweep measures each part of each curve in turn, repeat times, or once after the end of the
// time limit.
func (c *comparison) sweep(ctx context.Context, name string, parts []figure, all []*curve, repeat int) error {
	started := time.Now()
	for round := range repeat {
		if round > 0 && time.Now().After(c.end) {
			break
		}
		for i, f := range parts {
			for _, cv := range all {
				list, err := c.between(ctx, f, cv.sides[i])
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil {
					cv.NotMeasured = err.Error()
					c.note("%s of %s: a sample failed: %v", name, cv.Of, err)
				}
				for _, s := range list {
					s.round = round
					cv.samples[s.size] = append(cv.samples[s.size], s)
				}
			}
		}
	}
	c.note("%s (%.1f s)", name, time.Since(started).Seconds())
	return nil
}

// settle computes the points from the near samples, by all raw hops so far, with the median of the others beside them.
// If fewer than half of a size's samples are near, all count.
func (cv *curve) settle(b bests) {
	cv.Points = nil
	for _, size := range slices.Sorted(maps.Keys(cv.samples)) {
		taken := cv.samples[size]
		counted := slices.DeleteFunc(slices.Clone(taken), func(s sample) bool { return !b.sample(s) })
		others := slices.DeleteFunc(slices.Clone(taken), b.sample)
		if 2*len(counted) < len(taken) {
			counted, others = taken, nil
		}
		var values, hops, far []float64
		for _, s := range counted {
			values, hops = append(values, s.Value), append(hops, s.hop())
		}
		for _, s := range others {
			far = append(far, s.Value)
		}
		cv.Points = append(cv.Points, point{size, median(values), median(hops), len(counted), len(taken), median(far)})
	}
	if len(cv.Points) > 0 {
		cv.NotMeasured = ""
	}
}

// beside returns the ratio of one curve to another at a size: the median of the rounds with
// both samples in the same state, or of all rounds if those are fewer than half. A change of
// state between two rounds then affects both curves. ok is false without such samples.
func (cv *curve) beside(other *curve, size int, b bests) (ratio float64, ok bool) {
	var same, all []float64
	for _, s := range cv.samples[size] {
		for _, o := range other.samples[size] {
			if s.round != o.round || o.Value == 0 {
				continue
			}
			all = append(all, s.Value/o.Value)
			if b.sample(s) == b.sample(o) {
				same = append(same, s.Value/o.Value)
			}
		}
	}
	if 2*len(same) < len(all) {
		same = all
	}
	return median(same), len(same) > 0
}
