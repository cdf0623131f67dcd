package matrix

import (
	"context"

	"github.com/ferrympi/ferry/cmd/ferry/internal/bench"
	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	matrix "github.com/ferrympi/ferry/cmd/ferry/internal/matrix/engine"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/mpi"
)

// join makes this process one of the ranks of its launcher's job. The caller closes
// it.
func (o *options) join(ctx context.Context, r *matrix.Runner) (*matrix.Job, error) {
	switch {
	case o.list:
		return nil, exit.Usagef("--list: leave --job out")
	case o.ranks != "":
		return nil, exit.Usagef("--ranks %s: --job takes the launcher's ranks as they are", o.ranks)
	}
	j := &matrix.Job{Runner: r, Options: settings.Session(), Bench: measure}
	if err := j.Open(ctx); err != nil {
		return nil, err
	}
	return j, nil
}

// second is the part of ranks other than the first, which has the report and the
// exit status.
func second(ctx context.Context, j *matrix.Job) error {
	_, err := j.Run(ctx, nil)
	if ctx.Err() != nil {
		return exit.Status(statusInterrupted)
	}
	return err
}

// measure is a matrix.Job's Bench.
func measure(ctx context.Context, s *mpi.Session, c *mpi.Comm, args []string, each func(int, float64)) error {
	return bench.Within(ctx, s, c, args, func(row bench.Row) { each(row.Size, row.Avg) })
}
