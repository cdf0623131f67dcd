package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// figures reads what rank 0 of a benchmark prints: a line of JSON for each size. The
// launcher gives whole lines, one write at a time.
type figures struct {
	unit   string
	news   chan<- struct{}
	points []report.Point
	err    error
}

// Write implements io.Writer.
func (f *figures) Write(line []byte) (int, error) {
	var row struct {
		Size int
		Avg  float64
	}
	if err := json.Unmarshal(line, &row); err != nil {
		if f.err == nil {
			f.err = fmt.Errorf("its process wrote %.80q in place of a figure", line)
		}
	} else {
		f.points = append(f.points, report.Point{Size: row.Size, Value: row.Avg, Unit: f.unit})
	}
	tell(f.news)
	return len(line), nil
}

// bench runs a benchmark as a job of two ranks, each on a core of its own.
func (r *Runner) bench(ctx context.Context, s report.Stack, c plan.Column) ([]report.Point, ending) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	news := make(chan struct{}, 1)
	f := &figures{unit: c.Bench.Unit, news: news}
	out := &excerpt{}
	end := r.supervise(ctx, cancel, r.Limit, news, launch.Job{
		Program: r.Program, Args: slices.Concat([]string{"bench", c.Bench.Command, "--rank", "-n", strconv.Itoa(c.Ranks), "--format", "json"}, c.Bench.Flags),
		N: c.Ranks, Bind: true, Env: environ(slices.Concat(r.Set, s.Set)), Stdout: f, Stderr: out,
	})
	end.output = out.String()
	if end.err == nil {
		end.err = f.err
	}
	return f.points, end
}

// benchCommand repeats a benchmark.
func (r *Runner) benchCommand(s report.Stack, c plan.Column) string {
	words := slices.Concat([]string{"ferry", "bench", c.Bench.Command}, c.Bench.Flags)
	for _, set := range slices.Concat(r.Set, s.Set) {
		words = append(words, "--set", set)
	}
	return quote(words)
}
