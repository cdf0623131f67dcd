package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
)

// Split succeeds in one of the live ranks and fails in another one, which continues. No rank waits
// for it in the new communicator.
func TestKillDuringSplit(t *testing.T) {
	stacks := [][]string{{"FERRY_PML=ob1"}, {"FERRY_PML=ob1", "FERRY_CID_POLICY=lazy"}}
	if *full {
		stacks = append(stacks, overNetwork(t))
	}
	for _, stack := range stacks {
		killDuringSplit(t, size(40, 4), stack)
	}
}

// killDuringSplit runs a number of jobs over a stack.
func killDuringSplit(t *testing.T, jobs int, stack []string) {
	t.Helper()
	apart := 0
	for range jobs {
		r := localtest.RunJob(t, localtest.Job{Size: 4, Nodes: nodesOf(stack), Program: "split", MayFail: true, Timeout: time.Minute,
			Env: append(slices.Clone(stack), "FERRY_BTL_SHM_DIR="+segments(t))})
		for rank, err := range r.Exit {
			if rank < 3 && err != nil {
				t.Errorf("%v: rank %d: %v\n%s", stack, rank, err, r.Output[rank])
			}
		}
		if strings.Contains(strings.Join(r.Output, ""), "not in the communicator") {
			apart++
		}
	}
	t.Logf("%v: in %d jobs a Split succeeded in one member and failed in another", stack, apart)
}

// splitRank splits its communicator into 0 and 2, which survive, and 1 and 3, until rank 3 dies.
func splitRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	if c.Rank() == 3 {
		go func() {
			time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}()
	}
	patient, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var err error
	for err == nil {
		var d *mpi.Comm
		if d, err = c.Split(patient, c.Rank()%2, 0); err == nil {
			err = errors.Join(mpi.Barrier(patient, d), d.Close())
		}
	}
	if c.Rank()%2 == 1 {
		return nil
	}
	if patient.Err() != nil {
		return fmt.Errorf("hangs: %w", err)
	}
	fmt.Println(err)
	other, in := 2-c.Rank(), make([]byte, 1) // The rank that fails first stays until the other one has noticed.
	_, err = c.Sendrecv(patient, in, other, 1, in, other, 1)
	return err
}
