package bench

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// Rank 0 of a broadcast returns before the others have received.
func TestOverAllRanks_RankIsFaster_FiguresAreInOrder(t *testing.T) {
	const n, batches = 4, 10
	mpitest.Run(t, n, func(ctx context.Context, c *mpi.Comm) error {
		r, s, sends := &rank{comm: c}, newSample(), newSample()
		for range batches {
			s.add(time.Duration(1+20*c.Rank())*time.Microsecond, 1)
		}
		row, err := r.overAllRanks(ctx, s)
		if err != nil {
			return err
		}
		if c.Rank() < n/2 {
			sends.add(time.Duration(1+3*c.Rank())*time.Millisecond, 1)
		}
		f, err := r.averages(ctx, sends, n/2)
		if err != nil || c.Rank() != 0 {
			return err
		}
		rate := f.rates(Row{Unit: "messages/s"}, n/2, 1e9)
		const tolerance = 1.002 // Of the histogram.
		for name, x := range map[string]struct {
			Row
			want float64
		}{"time": {row, 31}, "rate": {rate, 800}} {
			if x.Avg != x.want || !slices.IsSorted([]float64{x.Min, x.P50 * tolerance, x.P99 * tolerance * tolerance}) || x.Min > x.Avg*tolerance || x.Avg > x.max*tolerance || x.isSkewed() {
				t.Errorf("%s: %+v, want an average of %g in the middle of the others", name, x.Row, x.want)
			}
		}
		return nil
	})
}
