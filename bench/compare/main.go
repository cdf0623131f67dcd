// Command compare measures ferry and other MPI libraries side by side on this
// machine. It writes a page (.md) and the samples (.json), named after the machine, and renews the plots and the section of
// the machine in docs/performance.md. `make compare` runs it.
//
// The state of a machine changes, so that figures of different times do not compare. Each sample of ferry is
// followed by one of the peer, the raw hop is measured before and after each, and samples are compared with samples of
// the same state: processors near each other, or far (raw_hops.go).
// Peers run the C programs in bench/peers, with the loops of `ferry bench` and
// the settings in bench/peers/peers.json.
//
// It uses internal/hop and the commands. Ferry runs as its users run it.
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
	ferryPath string
	// An earlier ferry instead of the peers, or empty.
	beforePath       string
	instructionsPath string
	// A ferry with examples/vendor-udp.
	vendorPath string
	// C sources and peers.json.
	peersDir string
	// Compiled peers.
	buildDir string
	// Two files per machine.
	resultsDir string
	// performance.md and the plots.
	docsDir    string
	rowPattern *regexp.Regexp
	// All rows are measured.
	hasAllRows    bool
	pairCount     int
	sweepRepeats  int
	runLimit      time.Duration
	sampleTimeout time.Duration
	isRender      bool
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
	f.StringVar(&o.ferryPath, "ferry", "bin/ferry", "ferry `PROGRAM`")
	f.StringVar(&o.beforePath, "before", "", "alternate with this ferry `PROGRAM`, of an earlier commit, in place of the peers; without -out the results go to bin/before")
	f.StringVar(&o.instructionsPath, "instructions", "bin/instructions", "`PROGRAM` that counts instructions")
	f.StringVar(&o.vendorPath, "vendor", "bin/ferry-udp", "ferry `PROGRAM` with examples/vendor-udp compiled in")
	f.StringVar(&o.peersDir, "peers", "bench/peers", "`FOLDER` of the peers' sources and peers.json")
	f.StringVar(&o.buildDir, "build", "bin/peers", "`FOLDER` for the compiled peers")
	f.StringVar(&o.resultsDir, "out", "", "`FOLDER` for the results, in place of bench/results, or of bin/rows if -rows leaves some out")
	f.StringVar(&o.docsDir, "docs", "docs", "`FOLDER` of performance.md and plots, which a run of all rows renews")
	rows := f.String("rows", "", "only figures whose name matches `REGEXP`, where case counts if it has a capital letter")
	f.IntVar(&o.pairCount, "pairs", 7, "required near samples `N` of each side of a figure")
	f.IntVar(&o.sweepRepeats, "repeat", 3, "samples `N` of each point of a plot")
	f.DurationVar(&o.runLimit, "limit", time.Hour, "after this `TIME`, take only the required samples")
	f.DurationVar(&o.sampleTimeout, "timeout", time.Minute, "`TIME` that one sample may take")
	quick := f.Bool("quick", false, "2 pairs of each figure, 1 sample of each point")
	f.BoolVar(&o.isRender, "render", false, "write the pages and plots of all machines from their .json files, without measuring")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %s", f.Arg(0))
	}
	if *quick {
		o.pairCount, o.sweepRepeats = 2, 1
	}
	if o.pairCount < 1 || o.sweepRepeats < 1 {
		return nil, fmt.Errorf("-pairs %d, -repeat %d: want at least 1", o.pairCount, o.sweepRepeats)
	}
	if o.sampleTimeout <= 0 || o.runLimit <= 0 {
		return nil, errors.New("-timeout and -limit: want more than 0")
	}
	var err error
	pattern := *rows
	if pattern == strings.ToLower(pattern) {
		pattern = "(?i)" + pattern
	}
	if o.rowPattern, err = regexp.Compile(pattern); err != nil {
		return nil, fmt.Errorf("-rows: %w", err)
	}
	o.hasAllRows = *rows == "" && o.beforePath == ""
	paths := []*string{&o.ferryPath, &o.instructionsPath, &o.vendorPath, &o.buildDir}
	if o.beforePath != "" {
		o.resultsDir = cmp.Or(o.resultsDir, "bin/before")
		paths = append(paths, &o.beforePath)
	}
	if *rows != "" && !o.isRender {
		o.resultsDir = cmp.Or(o.resultsDir, "bin/rows")
	}
	o.resultsDir = cmp.Or(o.resultsDir, "bench/results")
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
	if o.isRender {
		measured, err = load(o.resultsDir)
	} else {
		var rep *report
		rep, err = o.measure(ctx, stderr)
		measured = []*report{rep}
	}
	if err != nil {
		return err
	}
	for _, rep := range measured {
		if err := write(o.resultsDir, rep); err != nil {
			return err
		}
	}
	if !o.hasAllRows {
		return nil
	}
	// Sections of other machines stay.
	all, err := load(o.resultsDir)
	if err != nil {
		return err
	}
	return document(o.docsDir, all)
}

// install copies a program, like its installation. The output of go build's linker is in small pieces of the page
// cache; a job of 2 ranks with a copy takes 9 % less processor time.
func install(program, path, target string) (string, error) {
	b, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("%w: run make %s", err, target)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	// A running program cannot be written, and can be replaced.
	return path, renameio.WriteFile(path, b, 0o755)
}

// A selection has the rows of a run.
type selection struct {
	figures   []figure
	sweeps    []sweep
	protocols []protocolRow
	aloneRows []ownRow
	// The memory of ranks is measured.
	hasMemory bool
}

// selected returns the rows that match o.rowPattern. Beside an earlier ferry there are figures only.
func (o *options) selected(alone []ownRow) (s selection, err error) {
	if o.beforePath != "" {
		s.figures = besideBefore(filepath.Join(o.buildDir, "before"))
	} else {
		s = selection{append(figures(), ownFigures()...), sweeps(), protocolRows(), alone, o.rowPattern.MatchString(memoryName)}
	}
	s.figures = matching(s.figures, o.rowPattern, func(f figure) string { return f.Name })
	s.sweeps = matching(s.sweeps, o.rowPattern, func(s sweep) string { return s.Name })
	s.protocols = matching(s.protocols, o.rowPattern, func(x protocolRow) string { return x.name })
	s.aloneRows = matching(s.aloneRows, o.rowPattern, func(r ownRow) string { return r.name })
	s.hasMemory = s.hasMemory || slices.ContainsFunc(s.aloneRows, func(r ownRow) bool { return r.name == growthName })
	if s.steps() == 0 {
		err = fmt.Errorf("-rows %s: no figure has such a name", o.rowPattern)
	}
	return s, err
}

// steps is the number of rows.
func (s selection) steps() int {
	n := len(s.figures) + len(s.sweeps) + len(s.protocols) + len(s.aloneRows)
	if s.hasMemory {
		n++
	}
	return n
}

// measure measures the selected rows.
func (o *options) measure(ctx context.Context, stderr io.Writer) (*report, error) {
	line := progressline.Start(stderr, "compare", "compiling the peers' programs")
	defer line.Close()
	c := &comparison{options: o, note: func(format string, a ...any) { fmt.Fprintf(line, "compare: "+format+"\n", a...) }}
	rows, err := o.selected(c.alone())
	if err != nil {
		return nil, err
	}
	done := 0
	c.onRowStart = func(what string) {
		line.Update(done, rows.steps(), what)
		done++
	}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	about, err := c.describe(ctx)
	if err != nil {
		return nil, err
	}
	if c.gauge, err = newGauge(); err != nil {
		return nil, err
	}
	line.Update(0, rows.steps(), "calibrating the raw hop")
	if err := c.bestHops.of(outside).Calibrate(ctx, c.now); err != nil {
		return nil, err
	}
	return c.run(ctx, rows, about)
}

// prepare installs ferry and compiles the peers.
func (c *comparison) prepare(ctx context.Context) (err error) {
	o := c.options
	if o.ferryPath, err = install(o.ferryPath, filepath.Join(o.buildDir, "ferry"), "build"); err != nil {
		return err
	}
	if o.beforePath != "" {
		o.beforePath, err = install(o.beforePath, filepath.Join(o.buildDir, "before"), "build")
		return err
	}
	if c.comparedPeers, err = loadPeers(filepath.Join(o.peersDir, "peers.json")); err != nil {
		return err
	}
	if _, err := os.Stat(o.instructionsPath); err != nil {
		return fmt.Errorf("%w: run make build-instructions", err)
	}
	for _, p := range c.comparedPeers {
		if err := c.compile(ctx, o.peersDir, p); err != nil {
			return err
		}
	}
	return nil
}

// run measures the rows and summarizes them.
func (c *comparison) run(ctx context.Context, rows selection, about machineInfo) (*report, error) {
	start := time.Now()
	c.extraSamplesUntil = start.Add(c.runLimit)
	series, err := c.measure(ctx, rows.figures)
	if err != nil {
		return nil, err
	}
	var curves []*curve
	for _, s := range rows.sweeps {
		c.onRowStart(s.Name)
		list := c.curves(s.sizeRanges, c.comparedPeers)
		if err := c.sweep(ctx, s.Name, s.sizeRanges, list, c.sweepRepeats); err != nil {
			return nil, err
		}
		curves = append(curves, list...)
	}
	if rows.hasMemory {
		c.onRowStart(memoryName)
		if err := c.memories(ctx); err != nil {
			return nil, err
		}
	}
	var others []own
	var points []protocolPoint
	for _, x := range rows.protocols {
		c.onRowStart(x.name)
		mine, sizes, err := c.compareProtocols(ctx, x)
		if err != nil {
			return nil, err
		}
		others, points = append(others, mine), append(points, sizes...)
	}
	for _, r := range rows.aloneRows {
		c.onRowStart(r.name)
		mine, err := c.own(ctx, r)
		if err != nil {
			return nil, err
		}
		others = append(others, mine)
	}
	// The states of samples need all raw hops of the run.
	for _, s := range series {
		s.judge(c.bestHops)
	}
	for _, cv := range curves {
		cv.settle(c.bestHops)
	}
	about.ElapsedSeconds = time.Since(start).Seconds()
	rep := summarize(about, series, c.bestHops, c.pairCount)
	rep.AloneRows, rep.Protocols, rep.MemoryRows, rep.Curves = append(rep.AloneRows, others...), points, c.memoryRows, curves
	return rep, nil
}

func matching[T any](list []T, re *regexp.Regexp, name func(T) string) []T {
	return slices.DeleteFunc(list, func(x T) bool { return !re.MatchString(name(x)) })
}
