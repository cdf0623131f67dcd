// Command compare measures ferry and other MPI libraries side by side on this
// machine, and writes two files with its name, .md and .json, from which follow the
// plots and the tables of docs/performance.md, beside those of the machines that were
// measured before. `make compare` runs it.
//
// Machines drift, and ratios of figures that were taken apart mean little. So
// every sample of ours is followed at once by one of the peer's, the raw
// cache-line hop is taken before and after each, and samples are compared with those
// that were taken in the same state: processors near one another, or far (see near.go).
// A peer runs our own C programs in bench/peers, with the same loops as `ferry bench`;
// its settings are the fixed list in bench/peers/peers.json.
//
// It stands on internal/hop and on the commands: ferry itself runs as a user
// would run it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ferrympi/ferry/internal/progressline"
)

// options of a run.
type options struct {
	ferry        string // ours
	before       string // ours of an earlier commit, in place of the peers; empty: the peers
	instructions string // ours too
	vendor       string // ours with examples/vendor-udp compiled in
	peers        string // folder of the C sources and of peers.json
	build        string // folder for what is compiled from them
	out          string // folder of the results, two files for each machine
	docs         string // folder of performance.md and the plots
	rows         *regexp.Regexp
	complete     bool // all rows
	pairs        int
	repeat       int // of sweeps
	limit        time.Duration
	timeout      time.Duration
	render       bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.ferry, "ferry", "bin/ferry", "ferry `PROGRAM`")
	f.StringVar(&o.before, "before", "", "alternate with this ferry `PROGRAM`, of an earlier commit, in place of the peers; without -out the results go to bin/before")
	f.StringVar(&o.instructions, "instructions", "bin/instructions", "`PROGRAM` that counts instructions")
	f.StringVar(&o.vendor, "vendor", "bin/ferry-udp", "ferry `PROGRAM` with examples/vendor-udp compiled in")
	f.StringVar(&o.peers, "peers", "bench/peers", "`FOLDER` of the peers' sources and peers.json")
	f.StringVar(&o.build, "build", "bin/peers", "`FOLDER` for the compiled peers")
	f.StringVar(&o.out, "out", "", "`FOLDER` for the results, in place of bench/results, or of bin/rows if -rows leaves some out")
	f.StringVar(&o.docs, "docs", "docs", "`FOLDER` of performance.md and plots, which follow the results of all figures")
	rows := f.String("rows", "", "only figures whose name matches `REGEXP`, where case counts if it has a capital letter")
	f.IntVar(&o.pairs, "pairs", 7, "near samples `N` of each side that each figure needs")
	f.IntVar(&o.repeat, "repeat", 3, "samples `N` of each point of a plot")
	f.DurationVar(&o.limit, "limit", time.Hour, "after this `TIME`, no more samples than each figure needs at least")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "`TIME` that one sample may take")
	quick := f.Bool("quick", false, "2 pairs of each figure, 1 sample of each point")
	f.BoolVar(&o.render, "render", false, "measure nothing: write again what follows from the .json of each machine")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %s", f.Arg(0))
	}
	if *quick {
		o.pairs, o.repeat = 2, 1
	}
	if o.pairs < 1 || o.repeat < 1 {
		return nil, fmt.Errorf("-pairs %d, -repeat %d: want at least 1", o.pairs, o.repeat)
	}
	if o.timeout <= 0 || o.limit <= 0 {
		return nil, errors.New("-timeout and -limit: want more than 0")
	}
	var err error
	pattern := *rows
	if pattern == strings.ToLower(pattern) {
		pattern = "(?i)" + pattern
	}
	if o.rows, err = regexp.Compile(pattern); err != nil {
		return nil, fmt.Errorf("-rows: %w", err)
	}
	o.complete = *rows == "" && o.before == ""
	paths := []*string{&o.ferry, &o.instructions, &o.vendor, &o.build}
	if o.before != "" {
		o.out = cmp.Or(o.out, "bin/before")
		paths = append(paths, &o.before)
	}
	if *rows != "" && !o.render {
		o.out = cmp.Or(o.out, "bin/rows")
	}
	o.out = cmp.Or(o.out, "bench/results")
	for _, path := range paths {
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var measured []*report
	if o.render {
		measured, err = load(o.out)
	} else {
		var rep *report
		rep, err = o.measure(ctx, stderr)
		measured = []*report{rep}
	}
	if err != nil {
		return err
	}
	for _, rep := range measured {
		if err := write(o.out, rep); err != nil {
			return err
		}
	}
	if !o.complete {
		return nil
	}
	// Machines that were measured before keep their sections.
	all, err := load(o.out)
	if err != nil {
		return err
	}
	return document(o.docs, all)
}

// install copies a program, as its installation would. What go build's linker has
// written lies in the page cache in small pieces; of a job of 2 ranks a copy takes
// 9 % less processor time.
func install(program, path, target string) (string, error) {
	b, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("%w: run make %s", err, target)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	// A program that runs can't be written to, but another one can take its name.
	return path, renameio.WriteFile(path, b, 0o755)
}

// measure takes all that is asked for.
func (o *options) measure(ctx context.Context, stderr io.Writer) (*report, error) {
	line := progressline.Start(stderr, "compare", "compiling the peers' programs")
	defer line.Close()
	c := &comparison{options: o, note: func(format string, a ...any) { fmt.Fprintf(line, "compare: "+format+"\n", a...) }}
	figs, sweeps, contests, alone, memory := append(figures(), ownFigures()...), sweeps(), contests(), c.alone(), o.rows.MatchString(memoryName)
	if o.before != "" {
		figs, sweeps, contests, alone, memory = besideBefore(filepath.Join(o.build, "before")), nil, nil, nil, false
	}
	figs = matching(figs, o.rows, func(f figure) string { return f.Name })
	sweeps = matching(sweeps, o.rows, func(s sweep) string { return s.Name })
	contests = matching(contests, o.rows, func(x contest) string { return x.name })
	alone = matching(alone, o.rows, func(r ownRow) string { return r.name })
	memory = memory || slices.ContainsFunc(alone, func(r ownRow) bool { return r.name == growthName })
	total := len(figs) + len(sweeps) + len(contests) + len(alone)
	if total == 0 && !memory {
		return nil, fmt.Errorf("-rows %s: no figure has such a name", o.rows)
	}
	done := 0
	if memory {
		total++
	}
	c.began = func(what string) {
		line.Update(done, total, what)
		done++
	}
	var err error
	if o.ferry, err = install(o.ferry, filepath.Join(o.build, "ferry"), "build"); err != nil {
		return nil, err
	}
	if o.before != "" {
		o.before, err = install(o.before, filepath.Join(o.build, "before"), "build")
	} else if c.list, err = loadPeers(filepath.Join(o.peers, "peers.json")); err == nil {
		if _, err = os.Stat(o.instructions); err != nil {
			err = fmt.Errorf("%w: run make build-instructions", err)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, p := range c.list {
		if err := c.compile(ctx, o.peers, p); err != nil {
			return nil, err
		}
	}
	about, err := c.describe(ctx)
	if err != nil {
		return nil, err
	}
	if c.gauge, err = newGauge(); err != nil {
		return nil, err
	}
	line.Update(0, total, "looking at the processors")
	if err := c.best.of(outside).Calibrate(ctx, c.now); err != nil {
		return nil, err
	}
	start := time.Now()
	c.end = start.Add(o.limit)
	series, err := c.measure(ctx, figs)
	if err != nil {
		return nil, err
	}
	var curves []*curve
	for _, s := range sweeps {
		c.began(s.Name)
		list := c.curves(s.parts, c.list)
		if err := c.sweep(ctx, s.Name, s.parts, list, o.repeat); err != nil {
			return nil, err
		}
		curves = append(curves, list...)
	}
	if memory {
		c.began(memoryName)
		if err := c.memories(ctx); err != nil {
			return nil, err
		}
	}
	var others []own
	var ways []wayRow
	for _, x := range contests {
		c.began(x.name)
		mine, rows, err := c.contend(ctx, x)
		if err != nil {
			return nil, err
		}
		others, ways = append(others, mine), append(ways, rows...)
	}
	for _, r := range alone {
		c.began(r.name)
		mine, err := c.own(ctx, r)
		if err != nil {
			return nil, err
		}
		others = append(others, mine)
	}
	// Only now all hops have been seen.
	for _, s := range series {
		s.judge(c.best)
	}
	for _, cv := range curves {
		cv.settle(c.best)
	}
	about.Seconds = time.Since(start).Seconds()
	rep := summarize(about, series, c.best, o.pairs)
	rep.Alone, rep.Ways, rep.Kept, rep.Curves = append(rep.Alone, others...), ways, c.kept, curves
	return rep, nil
}

func matching[T any](list []T, re *regexp.Regexp, name func(T) string) []T {
	return slices.DeleteFunc(list, func(x T) bool { return !re.MatchString(name(x)) })
}
