package bench

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/mpi"
)

// startupSteps are the steps of a start, in their order.
var startupSteps = []string{"session", "self", "world"}

// startupFigures are the figures of each step with their units.
var startupFigures = []struct{ name, unit string }{{"time", "ms"}, {"private", "KiB"}, {"pss", "KiB"}, {"shm", "KiB"}}

// asStartup opens a session, and makes a communicator of mpi://SELF and one of mpi://WORLD. It measures the time of each, and
// the memory after it. The time of the last one includes the wait for late ranks.
func (o *options) asStartup(ctx context.Context, out io.Writer, options []mpi.SessionOption) (err error) {
	r := &rank{o: o}
	var figures []float64
	var began time.Time
	var closers []func() error
	defer func() {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i]())
		}
	}()
	record := func(close func() error) error {
		elapsed := time.Since(began)
		closers = append(closers, close)
		private, share, shm, err := memoryNow()
		figures = append(figures, float64(elapsed.Nanoseconds())/1e6, private, share, shm)
		began = time.Now()
		return err
	}
	began = time.Now()
	if r.session, err = mpi.OpenSession(ctx, append(settings.Session(), options...)...); err != nil {
		return err
	}
	if err = record(r.session.Close); err != nil {
		return err
	}
	for _, pset := range []string{"mpi://SELF", "mpi://WORLD"} {
		g, err := r.session.Group(ctx, pset)
		if err != nil {
			return err
		}
		if r.comm, err = mpi.CommFromGroup(ctx, g, "ferry.bench.startup"); err != nil {
			return err
		}
		if err = record(r.comm.Close); err != nil {
			return err
		}
	}
	if err := o.adopt(r.comm.Size()); err != nil {
		return err
	}
	if r.comm.Rank() == 0 {
		table, err := o.begin(out)
		if err != nil {
			return err
		}
		closers = append(closers, table.close)
		r.emitRow = table.row
	}
	return r.startupRows(ctx, figures)
}

// startupRows prints the figures of all ranks at rank 0, a row for each figure of each step.
func (r *rank) startupRows(ctx context.Context, mine []float64) error {
	all, err := r.gather(ctx, mine)
	if err != nil || r.comm.Rank() != 0 {
		return err
	}
	for i, step := range startupSteps {
		for j, figure := range startupFigures {
			var values []float64
			for at := i*len(startupFigures) + j; at < len(all); at += len(mine) {
				values = append(values, all[at])
			}
			row := Row{Bench: r.o.name + "/" + step + "/" + figure.name, RankCount: r.comm.Size(), Unit: figure.unit}
			if err := r.emitRow(ofValues(row, values)); err != nil {
				return err
			}
		}
	}
	return nil
}
