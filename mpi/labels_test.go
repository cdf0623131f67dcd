package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// labeled reports whether a goroutine that is in the function has all those labels.
func labeled(function string, labels ...string) bool {
	var b bytes.Buffer
	if pprof.Lookup("goroutine").WriteTo(&b, 1) != nil {
		return false
	}
next:
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		if !strings.Contains(stack, function) {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(stack, l) {
				continue next
			}
		}
		return true
	}
	return false
}

// Profiles of a test, or of many processes together, say whose work it is.
func TestLabels_Goroutines_HaveRankAndComm(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		rank := `"ferry.rank":"` + string(rune('0'+c.Rank())) + `"`
		comm := []string{rank, `"ferry.comm":"` + t.Name() + `"`, strings.Replace(rank, "ferry.rank", "ferry.comm.rank", 1)}
		if !labeled("progress.(*Engine).runProgressGoroutine", rank) {
			return errors.New("no progress goroutine has label " + rank)
		}
		var err error
		pprof.Do(ctx, c.Labels(), func(context.Context) {
			if !labeled("labels_test", comm...) {
				err = errors.New("the program's goroutine has other labels")
			}
		})
		if err != nil {
			return err
		}
		// The operation of the program runs on the communicator's goroutine.
		seen := false
		op := mpi.NewOp(func(_, _ []int) { seen = seen || labeled("(*nonblocking).runSteps", comm...) }, true)
		r, err := mpi.Ireduce(c, []int{1}, make([]int, 1), op, 0)
		if err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 && !seen {
			return errors.New("the communicator's goroutine has other labels")
		}
		return nil
	})
}
