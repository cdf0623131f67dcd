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
	sizeRanges []figure
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
		f.MessageBytes = 2 * end
	}
	return parts
}

// A curve is a sweep of ours or of one setting of a peer.
type curve struct {
	BenchName    string  `json:"bench"`
	Unit         string  `json:"unit"`
	ProgramTitle string  `json:"of"` // "ferry", or a peer's title
	Setting      string  `json:"setting"`
	Points       []point `json:"points"`
	NotMeasured  string  `json:"not_measured,omitempty"`

	sidesByPart   []side
	samplesBySize map[int][]sample
}

// A point is the median of the samples of one size.
type point struct {
	MessageBytes int     `json:"size"`
	Value        float64 `json:"value"`
	RawHopNS     float64 `json:"raw_hop_ns"`
	KeptCount    int     `json:"kept"`
	TakenCount   int     `json:"taken"`
	OtherMedian  float64 `json:"other"` // the median of those that were taken in the other state, if KeptCount is not TakenCount
}

// MarshalJSON keeps five digits.
func (p point) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"size":%d,"value":%.5g,"raw_hop_ns":%.5g,"kept":%d,"taken":%d,"other":%.5g}`, p.MessageBytes, p.Value, p.RawHopNS, p.KeptCount, p.TakenCount, p.OtherMedian), nil
}

// curves returns the empty curves of a sweep.
func (o *options) curves(parts []figure, peers []peer, flags ...string) []*curve {
	mine := &curve{BenchName: parts[0].BenchName, Unit: parts[0].Unit, ProgramTitle: "ferry", samplesBySize: map[int][]sample{}}
	for _, f := range parts {
		args := o.ours(o.ferryPath, f, flags)
		if f.commandLine != nil {
			args = append(f.commandLine(o.ferryPath), flags...)
		}
		mine.sidesByPart = append(mine.sidesByPart, side{args, ferryRanks})
	}
	all := []*curve{mine}
	for _, p := range peers {
		for _, st := range p.Settings {
			if st.OnlyNetwork != "" {
				continue
			}
			c := &curve{BenchName: mine.BenchName, Unit: mine.Unit, ProgramTitle: p.Title, Setting: st.Title, samplesBySize: map[int][]sample{}}
			for _, f := range parts {
				c.sidesByPart = append(c.sidesByPart, side{o.theirs(p, st, f), p.Name})
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
		if round > 0 && time.Now().After(c.extraSamplesUntil) {
			break
		}
		for i, f := range parts {
			for _, cv := range all {
				list, err := c.between(ctx, f, cv.sidesByPart[i])
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil {
					cv.NotMeasured = err.Error()
					c.note("%s of %s: a sample failed: %v", name, cv.ProgramTitle, err)
				}
				for _, s := range list {
					s.sweepRound = round
					cv.samplesBySize[s.messageBytes] = append(cv.samplesBySize[s.messageBytes], s)
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
	for _, size := range slices.Sorted(maps.Keys(cv.samplesBySize)) {
		taken := cv.samplesBySize[size]
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
	for _, s := range cv.samplesBySize[size] {
		for _, o := range other.samplesBySize[size] {
			if s.sweepRound != o.sweepRound || o.Value == 0 {
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
