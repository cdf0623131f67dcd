// Package ranks is a test program that TestGoTest_OnRanks_ReportsFailure starts as ranks.
package ranks

import (
	"os"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

func TestSum(t *testing.T) {
	ctx := t.Context()
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		t.Fatal(err)
	}
	comm, err := mpi.CommFromGroup(ctx, world, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer comm.Close()
	sum := make([]int, 1)
	if err := mpi.Allreduce(ctx, comm, []int{comm.Rank() + 1}, sum, mpi.Sum[int]()); err != nil {
		t.Fatal(err)
	}
	t.Logf("the sum of %d ranks is %d", comm.Size(), sum[0])
	if os.Getenv("RANKS_WRONG") != "" && comm.Rank() == 1 {
		t.Errorf("rank %d is not content", comm.Rank())
	}
}
