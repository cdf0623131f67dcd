package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/bench"
	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/mpi"
)

// A CaseRecorder records the cases of one process, one at a time.
type CaseRecorder interface {
	// Begin begins a case. It has no effect if the case is running.
	Begin(cell string)
	// Progress reports that the running case makes progress, with further figures of it. It may be called concurrently.
	Progress(points ...report.Point)
	// End ends the running case. It sets Case and Seconds of the event.
	End(Event)
}

// An Executor runs columns of one stack as one rank, in a worker or as a rank of an existing job. All ranks run the same columns in the same
// order. The caller records an error as the outcome of the running case.
type Executor struct {
	// Open session over the stack.
	Session  *mpi.Session
	Recorder CaseRecorder
	// Limit of a conformance case.
	CaseLimit time.Duration
	// Limit of a benchmark of BenchRanks, 0 without one.
	BenchLimit time.Duration
	// Ranks that run benchmarks, nil for all.
	BenchRanks []int
}

// Open runs report.OpenCase. It creates a communicator of all ranks and exchanges messages with the neighbors. It may return a
// communicator together with an error.
func (x *Executor) Open(ctx context.Context) (*mpi.Comm, error) {
	world, err := settings.World(ctx, x.Session, "ferry.matrix")
	if err != nil {
		return nil, err
	}
	e, err := checkNeighbors(ctx, x.Session, world)
	if err == nil {
		x.Recorder.End(e)
	}
	return world, err
}

// Run runs the cases of a column other than report.OpenCase and kits.
func (x *Executor) Run(ctx context.Context, world *mpi.Comm, c plan.Column) error {
	switch {
	case c.BenchArgs == nil:
		return runConform(ctx, x.Session, world, c, x.CaseLimit, x.Recorder)
	case x.BenchRanks != nil && !slices.Contains(x.BenchRanks, world.Rank()):
		return nil
	}
	x.Recorder.Begin(c.Name)
	if err := x.runBench(ctx, world, c); err != nil {
		return err
	}
	x.Recorder.End(Event{Status: report.Pass})
	return nil
}

// runBench runs the benchmark of a column in the ranks that run benchmarks.
func (x *Executor) runBench(ctx context.Context, world *mpi.Comm, c plan.Column) error {
	if x.BenchRanks == nil {
		return x.measureActive(ctx, world, c)
	}
	if x.BenchLimit > 0 {
		limited, cancel := conform.Within(ctx, x.BenchLimit)
		defer cancel()
		ctx = limited
	}
	group, err := world.Group().Incl(x.BenchRanks...)
	if err != nil {
		return err
	}
	comm, err := mpi.CommFromGroup(ctx, group, "ferry.matrix."+c.Name)
	if err != nil {
		return err
	}
	return errors.Join(x.measureActive(ctx, comm, c), comm.Close())
}

// activityInterval is the interval between counts of the messages of a benchmark. On a busy machine one message
// size may exceed the limit of a case.
const activityInterval = time.Second

// measureActive runs a benchmark in all ranks of a communicator, and reports its progress.
func (x *Executor) measureActive(ctx context.Context, comm *mpi.Comm, c plan.Column) error {
	stop := reportActivity(activityInterval, func() uint64 { return countMessages(x.Session) }, func() { x.Recorder.Progress() })
	defer stop()
	return measure(ctx, x.Session, comm, c, func(p report.Point) { x.Recorder.Progress(p) })
}

// measure runs a benchmark. Rank 0 receives the medians, because a pause of the machine affects them less than the
// means.
func measure(ctx context.Context, session *mpi.Session, comm *mpi.Comm, c plan.Column, each func(report.Point)) error {
	n := 0
	err := bench.Within(ctx, session, comm, c.BenchArgs, func(row bench.Row) {
		n++
		each(report.Point{Size: row.Size, Value: row.P50, Unit: c.BenchUnit})
	})
	if err == nil && n == 0 && comm.Rank() == 0 {
		err = errors.New("the benchmark printed no figures")
	}
	return err
}
