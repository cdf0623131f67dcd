package bench

import (
	"context"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestCheck_ShrinkWithFlagsOfAChange_IsElastic(t *testing.T) {
	for line, isElastic := range map[string]bool{"shrink": false, "shrink -n 3 -i 5": false, "shrink --add 2": true, "shrink --async": true} {
		o, err := checkedLine(t, line)
		if err != nil || o.isElastic != isElastic || (o.measureRow == nil) != isElastic {
			t.Errorf("%s: elastic %v, %v", line, o.isElastic, err)
		}
	}
}

func TestCheck_RecoverWithoutN_HasFourRanks(t *testing.T) {
	for line, ranks := range map[string]int{"recover": 4, "recover -n 3": 3, "agree": 2} {
		if o, err := checkedLine(t, line); err != nil || o.rankCount != ranks {
			t.Errorf("%s: %d ranks, %v", line, o.rankCount, err)
		}
	}
}

func TestRevoked_CommunicatorOfAnySize_ShrinksToAllRanks(t *testing.T) {
	for n := 1; n <= 3; n++ {
		mpitest.Run(t, n, func(ctx context.Context, c *mpi.Comm) error {
			r := &rank{o: &options{loopOptions: loopOptions{iterations: 3, warmupIterations: 1}}, comm: c}
			if _, err := r.shrink(ctx, 0); err != nil {
				return err
			}
			_, err := r.agree(ctx, 0)
			return err
		})
	}
}
