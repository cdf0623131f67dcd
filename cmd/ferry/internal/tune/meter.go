package tune

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/ferrympi/ferry/cmd/ferry/internal/bench"
	"github.com/ferrympi/ferry/cmd/ferry/internal/explain"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/hop"
	"github.com/ferrympi/ferry/mpi"
)

// setting gives texts to parameters, by name. One that is measured names every
// parameter that is tuned, so that nothing else on the machine sets them.
type setting map[string]string

// with returns a copy in which parameters have other values: pairs of name and
// value.
func (s setting) with(pairs ...string) setting {
	c := maps.Clone(s)
	for i := 0; i < len(pairs); i += 2 {
		c[pairs[i]] = pairs[i+1]
	}
	return c
}

// environ is the setting for the environment of ranks.
func (s setting) environ() []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		env = append(env, framework.EnvName(name)+"="+s[name])
	}
	return env
}

// load is one run of `ferry bench`.
type load struct {
	bench              string
	ranks              int // 2, each bound to a core, or more, which share two
	min, max           int // bytes
	iterations, warmup int
	allocMem           bool
}

// point is what a figure is of.
type point struct {
	bench string
	size  int
}

// reading is a figure, and the raw hop beside it.
type reading struct {
	value float64 // us, MB/s or messages/s
	cost  float64 // its logarithm; less is better
	hop   float64 // ns
}

// sweep is what some loads have given.
type sweep map[point]reading

const (
	// late is when a job is given up that could do with fewer iterations. Jobs take a
	// tenth of a second. But on a busy machine each message may wait for a time slice,
	// and ten thousand of them take minutes.
	late = 5 * time.Second

	jobLimit = time.Minute // of those with the fewest iterations; longer is a hang

	fewest = 5 // iterations of a busy machine
)

var errLate = fmt.Errorf("not done within %v", late)

// busy is by how many powers of ten iterations are fewer than on a machine that does
// nothing else.
type busy int

const busiest busy = 2

// part is what there is of some iterations.
func (b busy) part(n int) int { return max(min(n, fewest), n/[]int{1, 10, 100}[b]) }

// meter measures, by jobs of this program on two processors.
type meter struct {
	// start runs a job to its end: (*starter).job, or in tests a machine that is
	// made up.
	start func(ctx context.Context, ranks int, s setting, args ...string) (stdout []byte, reports []launch.Report, err error)

	wanted   int // rounds in the near state
	note     func(format string, args ...any)
	patience time.Duration // for it to come back
	end      time.Time     // no more rounds after it, but for the first of a contest
	share    time.Duration // of the time for one contest
	bestHop  hop.Best      // of the samples so far
	busy     busy          // as the jobs so far have shown

	samples, counted int // taken, and those of them in the near state
}

// starter runs jobs of this program itself.
type starter struct {
	ranks  *settings.Ranks
	stderr io.Writer
}

// job is a meter's start. What the job says is on standard error.
func (r *starter) job(ctx context.Context, ranks int, s setting, args ...string) ([]byte, []launch.Report, error) {
	j := r.ranks.Self(ranks, args...)
	var out bytes.Buffer
	j.Env, j.Bind, j.Cores, j.Timeout = slices.Concat(j.Env, s.environ()), ranks <= processors, processors, jobLimit
	j.Stdout, j.Stderr, j.Note = &out, r.stderr, func(line string) { fmt.Fprintf(r.stderr, "ferry tune: %s\n", line) }
	res, err := j.Run(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case res.Status != 0:
		return nil, nil, fmt.Errorf("%s ferry %s has failed (status %d)", shellescape.QuoteCommand(s.environ()), shellescape.QuoteCommand(args), res.Status)
	}
	return out.Bytes(), res.Reports, nil
}

// run runs a load, with fewer iterations from when a job was late.
func (m *meter) run(ctx context.Context, s setting, l load) ([]byte, error) {
	for {
		inTime, cancel := ctx, context.CancelFunc(func() {})
		if m.busy < busiest {
			inTime, cancel = context.WithTimeoutCause(ctx, late, errLate)
		}
		out, _, err := m.start(inTime, l.ranks, s, "bench", l.bench, "-m", fmt.Sprintf("%d:%d", l.min, l.max),
			"-i", strconv.Itoa(m.busy.part(l.iterations)), "-x", strconv.Itoa(m.busy.part(l.warmup)),
			"--alloc-mem="+strconv.FormatBool(l.allocMem), "--format", "json")
		cancel()
		if !errors.Is(err, errLate) {
			return out, err
		}
		m.busy++
		m.note("this machine is busy: from now on there are fewer iterations (ferry bench %s: %v)", l.bench, errLate)
	}
}

// bench runs a load and returns its rows.
func (m *meter) bench(ctx context.Context, s setting, l load) ([]bench.Row, error) {
	out, err := m.run(ctx, s, l)
	if err != nil {
		return nil, err
	}
	var rows []bench.Row
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var r bench.Row
		err := d.Decode(&r)
		switch {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return nil, fmt.Errorf("ferry bench %s: %w in %.200q", l.bench, err, out)
		case !(r.Avg > 0) || math.IsInf(r.Avg, 0):
			return nil, fmt.Errorf("ferry bench %s: %g %s is not a measurement", l.bench, r.Avg, r.Unit)
		}
		rows = append(rows, r)
	}
}

// hop takes the raw hop by a job of its own.
func (m *meter) hop(ctx context.Context) (float64, error) {
	rows, err := m.bench(ctx, nil, load{bench: "hop", ranks: processors, iterations: 5, warmup: 1})
	if err != nil {
		return 0, err
	}
	if len(rows) != 1 {
		return 0, fmt.Errorf("ferry bench hop: %d rows", len(rows))
	}
	return rows[0].P50, nil
}

// sweep runs loads under a setting. Ranks that share processors can't take the
// hop beside their loops: for them it is taken before and after.
func (m *meter) sweep(ctx context.Context, s setting, loads []load) (sweep, error) {
	out := sweep{}
	for _, l := range loads {
		var before, after float64
		var err error
		crowd := l.ranks > processors
		if crowd {
			if before, err = m.hop(ctx); err != nil {
				return nil, err
			}
		}
		rows, err := m.bench(ctx, s, l)
		if err == nil && crowd {
			after, err = m.hop(ctx)
		}
		if err != nil {
			return nil, err
		}
		around := max(before, after)
		m.bestHop.See(around)
		for _, r := range rows {
			x := reading{value: r.Avg, cost: math.Log(r.Avg), hop: r.RawHop}
			if r.Unit != "us" {
				x.cost = -x.cost
			}
			if crowd {
				x.hop = around
			} else {
				m.bestHop.See(x.hop)
			}
			out[point{l.bench, r.Size}] = x
		}
	}
	return out, nil
}

// shares asks two ranks whether their messages travel through shared memory. An error
// says why not.
func (m *meter) shares(ctx context.Context, s setting) error {
	_, reports, err := m.start(ctx, processors, s.with("session.report", "explain"), "explain", "--rank")
	if err != nil {
		return err
	}
	e, err := explain.Merge(reports)
	if err != nil {
		return err
	}
	for _, p := range e.Pairs {
		if p.From != 0 || p.To != 1 {
			continue
		}
		if p.Transport != "shm" {
			return fmt.Errorf("no shared memory between two ranks here: %s", whyNot(p))
		}
		return nil
	}
	return errors.New("two ranks have not met: see ferry explain")
}

// whyNot is why shm doesn't carry the messages of a pair.
func whyNot(p mpi.Pair) string {
	for _, r := range p.Rejected {
		if r.Name == "shm" {
			return "btl shm: " + r.Reason
		}
	}
	return "there is no btl shm"
}
