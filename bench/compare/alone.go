package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// own is the result of a row of ferry alone.
type own struct {
	Name  string  `json:"figure"`
	Value float64 `json:"value"`
	// Empty for a ratio.
	Unit           string `json:"unit"`
	ComparedValues string `json:"of"`
	WantedBound    bound  `json:"wanted"`
	IsMet          bool   `json:"met"`
	NotMeasured    string `json:"not_measured,omitempty"`
	// Of two alternating settings.
	Result *result `json:"result,omitempty"`
}

// A bound is the wanted range of a value. A limit of 0 is none.
type bound struct {
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
}

func (b bound) meets(v float64) bool { return v >= b.AtLeast && (b.AtMost == 0 || v <= b.AtMost) }

func (b bound) String() string {
	switch {
	case b.AtLeast == 0:
		return fmt.Sprintf("<= %.2f", b.AtMost)
	case b.AtMost == 0:
		return fmt.Sprintf(">= %.2f", b.AtLeast)
	}
	return fmt.Sprintf("%.2f to %.2f", b.AtLeast, b.AtMost)
}

// oneAnother is the bound of a ratio of values that may differ by a part in either direction.
func oneAnother(part float64) bound { return bound{1 / (1 + part), 1 + part} }

// policies are the compared pairs of policies of communicator ids.
var policies = [][2]string{{"gather", "agree"}, {"lazy", "agree"}, {"lazy", "gather"}}

// ownFigures are rows in which ferry in one setting alternates with ferry in
// another, as with a peer.
func ownFigures() []figure {
	versus := func(f figure, name string, flags []string, title string, other []string, wanted bound) figure {
		f.Name, f.ferryFlags, f.versusVariant, f.wantedBound = name, flags, &variant{Title: title, ferryFlags: other}, wanted
		return f
	}
	lat := latency("", 8, 0, 0, "")
	anyLat := lat
	anyLat.BenchName, anyLat.Ranks, anyLat.isPairOnly = "any_lat", 65, true
	rate := window("", "mbw_mr", "million/s", 8, 0, 0, "")
	multiple, single := []string{"--thread-level", "multiple"}, []string{"--thread-level", "single"}
	out := []figure{
		versus(anyLat, "any-source receive of 8 B, 64 connected peers to 1", []string{"--connected", "64"}, "1 peer", []string{"--connected", "1"}, bound{AtMost: 2}),
		versus(lat, "ThreadMultiple to ThreadSingle, 8 B latency", multiple, "ThreadSingle", single, bound{AtMost: 1.15}),
		versus(rate, "ThreadMultiple to ThreadSingle, 8 B message rate", multiple, "ThreadSingle", single, bound{AtLeast: 1 / 1.30}),
	}
	out = append(out,
		versus(lat, "8 B latency over TCP to cm over tcp;ofi_rxm", viaTCP, "cm over tcp;ofi_rxm", throughOFI(lat).ferryFlags, bound{AtMost: 1}),
		besideConnections(lat))
	out = append(out, besideProcesses()...)
	out = append(out, elasticRows()...)
	out = append(out, failureRows()...)
	out = append(out, exchangeRows()...)
	out = append(out, besideLanes()...)
	for _, f := range []figure{lat, window("", "bw", "GB/s", 1<<20, 0, 0, "")} {
		f = overUCX(f, "shm")
		none := append(slices.Clone(f.ferryFlags), "--set", "mtl.ucx.error_mode=none")
		name := map[string]string{"latency": "8 B latency", "bw": "bandwidth 1 MiB"}[f.BenchName] + " over UCX shm, error mode peer to none"
		out = append(out, versus(f, name, f.ferryFlags, "error mode none", none, map[bool]bound{true: {AtMost: 1.1}, false: {AtLeast: 0.9}}[f.LowerIsBetter]))
	}
	for _, f := range []figure{lat, throughOFI(lat)} {
		for _, p := range policies {
			under := func(policy string) []string {
				return append(slices.Clone(f.ferryFlags), "--set", "cid.policy="+policy)
			}
			name := fmt.Sprintf("cid.policy %s to %s, 8 B latency", p[0], p[1])
			if f.networkName != "" {
				name += " over " + f.networkName
			}
			out = append(out, versus(f, name, under(p[0]), p[1], under(p[1]), oneAnother(0.10)))
		}
	}
	return out
}

// besideConnections is the latency over shared memory of two ranks with a TCP connection each to a sleeping third one on another
// node, beside that of three ranks on one node without btl/tcp, with a sleeping third one.
func besideConnections(f figure) figure {
	ranks := func(options ...string) jobOf {
		return func(program string) []string {
			args := append([]string{program, "run", "-n", "3", "--bind-to", "core"}, options...)
			return append(args, program, "bench", f.BenchName, "--connected", "2",
				"-m", fmt.Sprintf("%d:%d", f.MessageBytes, f.MessageBytes), "-i", fmt.Sprint(f.iterations), "-x", fmt.Sprint(f.warmupIterations), "--format", "json")
		}
	}
	f.Name, f.Ranks, f.isPairOnly, f.wantedBound = "8 B latency over shared memory beside connections over TCP, to alone", 3, true, bound{AtMost: 1.03}
	f.commandLine = ranks("--nodes", "2", "--set", "btl=self,shm,tcp", "--set", "btl.tcp.address_include=127.0.0.0/8")
	f.versusVariant = &variant{Title: "alone", commandLine: ranks("--set", "btl=self,shm")}
	return f
}

// pairsOfOurs makes a row of a series of ours beside ours.
func pairsOfOurs(s *series, want int) own {
	o := own{Name: s.fig.Name, WantedBound: s.fig.wantedBound}
	r, ok := s.result(want)
	if !ok {
		o.NotMeasured = s.lastFailure
		return o
	}
	o.Value, o.Result = r.Ratio, &r
	o.ComparedValues = fmt.Sprintf("%s / %s %s", digits(r.Ours), digits(r.Theirs), s.fig.Unit)
	o.IsMet = o.WantedBound.meets(o.Value)
	return o
}

// memoryName begins the names of rows that are about memory.
const memoryName = "memory"

const growthName = memoryName + " in /dev/shm for each rank, 130 ranks to 32"

// An ownRow is a row of ferry alone, without pairs.
type ownRow struct {
	name         string
	wantedBound  bound
	unit         string
	measureValue func(context.Context) (value float64, of string, err error)
}

// alone are the rows of ours alone that are no pairs.
func (c *comparison) alone() []ownRow {
	var rows []ownRow
	counts := c.counts()
	for _, pml := range counted {
		for _, p := range policies {
			rows = append(rows, ownRow{
				fmt.Sprintf("cid.policy %s to %s, instructions of 8 B through %s", p[0], p[1], pml), oneAnother(0.02), "",
				func(ctx context.Context) (float64, string, error) {
					each, err := counts(ctx)
					a, b := each[countedPath{pml, p[0]}], each[countedPath{pml, p[1]}]
					return a / b, fmt.Sprintf("%.0f / %.0f instructions", a, b), err
				},
			})
		}
	}
	rows = append(rows, ownRow{"instructions of 8 B through ob1", bound{AtMost: 736}, "", func(ctx context.Context) (float64, string, error) {
		each, err := counts(ctx)
		return each[countedPath{"ob1", "agree"}], "cid.policy agree", err
	}})
	for _, x := range cliffs() {
		rows = append(rows, ownRow{x.name, bound{AtMost: 1.10}, "", func(ctx context.Context) (float64, string, error) { return c.cliff(ctx, x) }})
	}
	rows = append(rows, c.elsewheres()...)
	return append(rows,
		ownRow{"partitioned send of 1 MiB that 4 goroutines fill, to a Send after all of them", bound{AtMost: 1.1}, "", c.partitioned},
		ownRow{"a rank that is blocked in a receive, use of a processor", bound{AtMost: 2}, "%", c.idle},
		ownRow{"private memory of a rank with one peer, TCP to cm over tcp;ofi_rxm", bound{AtMost: 0.1}, "", c.privateOverTCP},
		ownRow{growthName, bound{AtMost: 2}, "", func(context.Context) (float64, string, error) { return growth(c.memoryRows) }})
}

// counted are the PMLs with a count of instructions.
var counted = []string{"ob1", "cm"}

// own measures a row. A failed measurement is part of the row; an error ends the comparison.
func (c *comparison) own(ctx context.Context, r ownRow) (o own, err error) {
	o = own{Name: r.name, WantedBound: r.wantedBound, Unit: r.unit}
	o.Value, o.ComparedValues, err = r.measureValue(ctx)
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	if err != nil { // The value may be one that JSON lacks.
		o.Value, o.NotMeasured = 0, err.Error()
	} else {
		o.IsMet = o.WantedBound.meets(o.Value)
	}
	c.note("%s: %s%s (%s)", o.Name, digits(o.Value), o.Unit, o.ComparedValues+o.NotMeasured)
	return o, nil
}

// counts returns a function that returns the instructions of one message. Its first call counts them.
func (c *comparison) counts() func(context.Context) (map[countedPath]float64, error) {
	var each map[countedPath]float64
	var err error
	var once sync.Once
	return func(ctx context.Context) (map[countedPath]float64, error) {
		once.Do(func() {
			var output string
			if output, _, err = c.command(ctx, []string{c.instructionsPath}); err == nil {
				each, err = parseCounts(output)
			}
		})
		return each, err
	}
}

// countedPath is a PML with a policy of ids.
type countedPath struct{ pml, policy string }

// parseCounts parses the output of bench/instructions.
func parseCounts(output string) (map[countedPath]float64, error) {
	type row struct {
		PML, Policy  string
		Instructions float64
	}
	rows, err := parseRows[row](output)
	if err != nil {
		return nil, fmt.Errorf("instructions: %w", err)
	}
	each := map[countedPath]float64{}
	for _, r := range rows {
		each[countedPath{r.PML, r.Policy}] = r.Instructions
	}
	for _, pml := range counted {
		for _, p := range policies {
			if !(each[countedPath{pml, p[0]}] > 0) || !(each[countedPath{pml, p[1]}] > 0) {
				return nil, fmt.Errorf("instructions: want those of %s under %s and %s, got %.200q", pml, p[0], p[1], output)
			}
		}
	}
	return each, nil
}

// A cliff is a row with the worst ratio of a size to a larger one.
type cliff struct {
	name       string
	sizeRanges []figure
	// worseRatio returns the ratio of a smaller size to a larger one, above 1 for a cliff.
	worseRatio func(small, large float64) float64
}

// cliffs are rows that compare each size with larger ones, among the powers of two and the sizes half way between them.
// The median of a size counts, because among so many sizes some are always disturbed.
func cliffs() []cliff {
	const kib = 1 << 10
	list := []cliff{
		{"no cliff: latency of any size from 1 B to 64 KiB to that of any larger one", ranges(latency("", 1, 0, 0, ""), 8*kib, 64*kib), slower},
		{"no cliff: message rate of any size up to 8 KiB to that of any smaller one", ranges(window("", "mbw_mr", "million/s", 1, 0, 0, ""), 8*kib), rarer},
		{"no cliff: bandwidth of any size from 1 B to 64 KiB to that of any larger one", ranges(window("", "bw", "GB/s", 1, 0, 0, ""), 8*kib, 64*kib), slower},
		{"no cliff: bidirectional bandwidth of any size from 1 B to 64 KiB to that of any larger one", ranges(window("", "bibw", "GB/s", 1, 0, 0, ""), 8*kib, 64*kib), slower},
	}
	for _, x := range list {
		for i := range x.sizeRanges {
			x.sizeRanges[i].usesMedian = true
			if i > 0 { // between the last of the part before and its double is a half step
				x.sizeRanges[i].MessageBytes = x.sizeRanges[i].MessageBytes / 4 * 3
			}
		}
	}
	return list
}

// slower is the ratio for latencies and bandwidths. Each should not exceed that of a larger size.
func slower(small, large float64) float64 { return small / large }

// rarer is the ratio for rates. Each should not be below that of a larger size.
func rarer(small, large float64) float64 { return large / small }

// cliff measures one.
func (c *comparison) cliff(ctx context.Context, x cliff) (worst float64, of string, err error) {
	curves := c.curves(x.sizeRanges, nil, "--half-steps")
	if err := c.sweep(ctx, x.name, x.sizeRanges, curves, c.pairCount); err != nil {
		return 0, "", err
	}
	curves[0].settle(c.bestHops)
	return steepest(curves[0], x.worseRatio)
}

// steepest returns how much worse a size stands than a larger one, at worst.
func steepest(cv *curve, worse func(small, large float64) float64) (worst float64, of string, err error) {
	if len(cv.Points) == 0 {
		return 0, "", fmt.Errorf("%s", cv.NotMeasured)
	}
	for i, small := range cv.Points {
		for _, large := range cv.Points[i+1:] {
			if r := worse(small.Value, large.Value); r > worst {
				worst = r
				of = fmt.Sprintf("%d B %s / %d B %s %s", small.MessageBytes, digits(small.Value), large.MessageBytes, digits(large.Value), cv.Unit)
			}
		}
	}
	return worst, of, nil
}

// idle measures how much of a processor a blocked rank uses; the peers' figures
// stand beside it for information.
func (c *comparison) idle(ctx context.Context) (percent float64, of string, err error) {
	f := figure{BenchName: "idle", Ranks: 2, Unit: "%", LowerIsBetter: true, loop: loop{iterations: 3}}
	list, err := c.between(ctx, f, side{c.ours(c.ferryPath, f, nil), ferryRanks})
	if err != nil {
		return 0, "", err
	}
	var theirs []string
	f.iterations = 1
	for _, p := range c.comparedPeers {
		plain, ok := p.plain()
		if !ok {
			continue
		}
		s, err := c.between(ctx, f, side{c.theirs(p, plain, f), p.Name})
		if err != nil {
			return 0, "", err
		}
		theirs = append(theirs, fmt.Sprintf("%s %.0f %%", p.Title, s[0].Value))
	}
	return list[0].Value, strings.Join(theirs, ", "), nil
}
