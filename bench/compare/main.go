// Command compare measures ferry and other MPI libraries side by side on this
// machine, and writes results.md and results.json. `make compare` runs it.
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
	"syscall"
	"time"
)

// options of a run.
type options struct {
	ferry   string // ours
	peers   string // folder of the C sources and of peers.json
	build   string // folder for what is compiled from them
	out     string // folder of the results
	rows    *regexp.Regexp
	pairs   int
	limit   time.Duration
	timeout time.Duration
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
	f.StringVar(&o.peers, "peers", "bench/peers", "`FOLDER` of the peers' sources and peers.json")
	f.StringVar(&o.build, "build", "bin/peers", "`FOLDER` for the compiled peers")
	f.StringVar(&o.out, "out", "bench", "`FOLDER` for results.md and results.json")
	rows := f.String("rows", "", "only figures whose name matches `REGEXP`")
	f.IntVar(&o.pairs, "pairs", 7, "pairs `N` in the near state that each figure needs")
	f.DurationVar(&o.limit, "limit", 12*time.Minute, "after this `TIME`, no more pairs than each figure needs at least")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "`TIME` that one sample may take")
	quick := f.Bool("quick", false, "2 pairs of each figure")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %s", f.Arg(0))
	}
	if *quick {
		o.pairs = 2
	}
	if o.pairs < 1 {
		return nil, fmt.Errorf("-pairs %d: want at least 1", o.pairs)
	}
	if o.timeout <= 0 || o.limit <= 0 {
		return nil, errors.New("-timeout and -limit: want more than 0")
	}
	var err error
	if o.rows, err = regexp.Compile("(?i)" + *rows); err != nil {
		return nil, fmt.Errorf("-rows: %w", err)
	}
	if o.ferry, err = filepath.Abs(o.ferry); err != nil {
		return nil, err
	}
	o.build, err = filepath.Abs(o.build)
	return o, err
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	figs := selected(o.rows)
	if len(figs) == 0 {
		return fmt.Errorf("-rows %s: no figure has such a name", o.rows)
	}
	if _, err := os.Stat(o.ferry); err != nil {
		return fmt.Errorf("ferry: %w: run make build", err)
	}
	peers, err := loadPeers(filepath.Join(o.peers, "peers.json"))
	if err != nil {
		return err
	}
	r := &runner{build: o.build, ferry: o.ferry, timeout: o.timeout}
	for _, p := range peers {
		if err := r.compile(ctx, o.peers, p); err != nil {
			return err
		}
	}
	about, err := r.describe(ctx, peers)
	if err != nil {
		return err
	}
	gauge, err := newGauge()
	if err != nil {
		return err
	}
	defer gauge.close()
	if err := gauge.calibrate(ctx); err != nil {
		return err
	}
	c := &comparison{
		runner: r, gauge: gauge, want: o.pairs, end: time.Now().Add(o.limit),
		note: func(format string, a ...any) { fmt.Fprintf(stderr, "compare: "+format+"\n", a...) },
	}
	start := time.Now()
	series, err := c.measure(ctx, figs, peers)
	if err != nil {
		return err
	}
	about.Seconds = time.Since(start).Seconds()
	return write(o.out, summarize(about, series, gauge.best, o.pairs))
}
