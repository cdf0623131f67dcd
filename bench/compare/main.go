// Command compare measures ferry and other MPI libraries side by side on this
// machine, and writes results.md and results.json, from which follow the plots
// and the tables of docs/performance.md. `make compare` runs it.
//
// Machines drift, and ratios of figures that were taken apart mean little. So
// every sample of ours is followed at once by one of the peer's, the raw
// cache-line hop is taken before and after each, and pairs in which the
// processors were not near one another don't count (see near.go). A peer runs
// our own C programs in bench/peers, with the same loops as `ferry bench`; its
// settings are the fixed list in bench/peers/peers.json.
//
// It stands on internal/hop and on the commands: ferry itself runs as a user
// would run it.
package main

import (
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
	"syscall"
	"time"
)

// options of a run.
type options struct {
	ferry        string // ours
	instructions string // ours too
	peers        string // folder of the C sources and of peers.json
	build        string // folder for what is compiled from them
	out          string // folder of the results
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

// parse reads the command line.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.ferry, "ferry", "bin/ferry", "ferry `PROGRAM`")
	f.StringVar(&o.instructions, "instructions", "bin/instructions", "`PROGRAM` that counts instructions")
	f.StringVar(&o.peers, "peers", "bench/peers", "`FOLDER` of the peers' sources and peers.json")
	f.StringVar(&o.build, "build", "bin/peers", "`FOLDER` for the compiled peers")
	f.StringVar(&o.out, "out", "bench", "`FOLDER` for results.md and results.json")
	f.StringVar(&o.docs, "docs", "docs", "`FOLDER` of performance.md and plots, which follow the results of all figures")
	rows := f.String("rows", "", "only figures whose name matches `REGEXP`")
	f.IntVar(&o.pairs, "pairs", 7, "pairs `N` in the near state that each figure needs")
	f.IntVar(&o.repeat, "repeat", 3, "samples `N` of each point of a plot")
	f.DurationVar(&o.limit, "limit", 9*time.Minute, "after this `TIME`, no more samples than each figure needs at least")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "`TIME` that one sample may take")
	quick := f.Bool("quick", false, "2 pairs of each figure, 1 sample of each point")
	f.BoolVar(&o.render, "render", false, "measure nothing: write again what follows from results.json")
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
	if o.rows, err = regexp.Compile("(?i)" + *rows); err != nil {
		return nil, fmt.Errorf("-rows: %w", err)
	}
	o.complete = *rows == ""
	for _, path := range []*string{&o.ferry, &o.instructions, &o.build} {
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
	rep := &report{}
	if o.render {
		rep, err = load(o.out)
	} else {
		rep, err = o.measure(ctx, stderr)
	}
	if err != nil {
		return err
	}
	if err := write(o.out, *rep); err != nil || !o.complete {
		return err
	}
	return document(o.docs, *rep)
}

// install copies a program, as its installation would. What go build's linker has
// written lies in the page cache in small pieces; of a job of 2 ranks a copy takes
// 9 % less processor time.
func install(program, dir string) (string, error) {
	b, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "ferry")
	// A program that runs can't be written to, but another one can take its name.
	if err := os.WriteFile(path+".new", b, 0o755); err != nil {
		return "", err
	}
	return path, os.Rename(path+".new", path)
}

// measure takes all that is asked for.
func (o *options) measure(ctx context.Context, stderr io.Writer) (*report, error) {
	wants := o.rows.MatchString
	figs := selected(append(figures(), ownFigures()...), o.rows)
	sweeps := slices.DeleteFunc(sweeps(), func(s sweep) bool { return !wants(s.Name) })
	memory := wants(memoryName) || wants(growthName)
	if len(figs)+len(sweeps) == 0 && !memory && !slices.ContainsFunc(otherNames(), wants) {
		return nil, fmt.Errorf("-rows %s: no figure has such a name", o.rows)
	}
	for _, program := range []string{o.ferry, o.instructions} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("%w: run make build build-instructions", err)
		}
	}
	peers, err := loadPeers(filepath.Join(o.peers, "peers.json"))
	if err != nil {
		return nil, err
	}
	r := &runner{build: o.build, instructions: o.instructions, timeout: o.timeout}
	if r.ferry, err = install(o.ferry, o.build); err != nil {
		return nil, err
	}
	for _, p := range peers {
		if err := r.compile(ctx, o.peers, p); err != nil {
			return nil, err
		}
	}
	about, err := r.describe(ctx, peers)
	if err != nil {
		return nil, err
	}
	gauge, err := newGauge()
	if err != nil {
		return nil, err
	}
	defer gauge.close()
	if err := gauge.calibrate(ctx); err != nil {
		return nil, err
	}
	c := &comparison{
		runner: r, gauge: gauge, want: o.pairs, end: time.Now().Add(o.limit),
		note: func(format string, a ...any) { fmt.Fprintf(stderr, "compare: "+format+"\n", a...) },
	}
	start := time.Now()
	series, err := c.measure(ctx, figs, peers)
	if err != nil {
		return nil, err
	}
	var curves []*curve
	for _, s := range sweeps {
		list := c.curves(s.parts, peers)
		if err := c.sweep(ctx, s.Name, s.parts, list, o.repeat); err != nil {
			return nil, err
		}
		curves = append(curves, list...)
	}
	var kept []memoryRow
	if memory {
		if kept, err = c.memories(ctx, peers); err != nil {
			return nil, err
		}
	}
	others, err := c.alone(ctx, peers, kept, wants)
	if err != nil {
		return nil, err
	}
	// Only now all hops have been seen.
	for _, s := range series {
		s.judge(c.best)
	}
	for _, cv := range curves {
		cv.settle(c.best)
	}
	about.Seconds = time.Since(start).Seconds()
	rep := summarize(about, series, gauge.best, o.pairs)
	rep.Alone, rep.Kept, rep.Curves = append(rep.Alone, others...), kept, curves
	return &rep, nil
}
