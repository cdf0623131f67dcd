package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/procstat"
	"github.com/ferrympi/ferry/mpi"
)

// A communicator with a single collective allocates no shared memory.
func TestDup_SingleBarrier_AllocatesNoSharedMemory(t *testing.T) {
	run(t, 2, "dups-barrier", size(100_000, 2000), "SOAK_BARRIERS=1")
}

// A communicator with more collectives allocates shared memory and frees it with its end.
func TestDup_SeveralBarriers_FreesSharedMemory(t *testing.T) {
	run(t, 2, "dups-barrier", size(10_000, 300), "SOAK_BARRIERS=3")
}

// dupsBarrier creates communicators with a number of barriers on each.
func dupsBarrier(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	var barriers int
	fmt.Sscan(os.Getenv("SOAK_BARRIERS"), &barriers)
	n := rounds()
	var before procstat.Usage
	for i := range n {
		if i == n/2 {
			before = procstat.Measure()
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return fmt.Errorf("dup %d: %w", i, err)
		}
		for range barriers {
			if err := mpi.Barrier(ctx, d); err != nil {
				return fmt.Errorf("dup %d: %w", i, err)
			}
		}
		if i%500 == 0 {
			if err := checkSegments(os.Getenv("FERRY_BTL_SHM_DIR")); err != nil {
				return fmt.Errorf("dup %d: %w", i, err)
			}
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	after := procstat.Measure()
	fmt.Printf("half way %+v, at the end %+v\n", before, after)
	switch {
	case after.Heap-before.Heap > 8<<20:
		return fmt.Errorf("the heap has grown by %d bytes", after.Heap-before.Heap)
	case after.Mappings > before.Mappings+8 || after.Descriptors > before.Descriptors || after.Goroutines > before.Goroutines:
		return errors.New("mappings, descriptors or goroutines grow")
	}
	return nil
}

// checkSegments returns an error if a directory has files besides the inboxes of two ranks. The memory of a
// communicator has no name once all members have opened it.
func checkSegments(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*-m*"))
	if err != nil {
		return err
	}
	if len(names) > 1 { // The other rank may be creating one.
		return fmt.Errorf("unexpected segments %v", names)
	}
	return nil
}

// A rank is killed inside a collective at a random moment. The collectives of the others, blocking
// or not, end with ErrProcFailed.
func TestCollectiveKill(t *testing.T) {
	var worst time.Duration
	n := size(1000, 6)
	for i := range n {
		dir := segments(t)
		r := localtest.RunJob(t, localtest.Job{Size: 3, Program: "collective-kill", MayFail: true, Timeout: time.Minute, Env: []string{
			"FERRY_BTL_SHM_DIR=" + dir, fmt.Sprint(envRounds, "=", i), "SOAK_DEATH=" + filepath.Join(dir, "death")}})
		for rank, err := range r.Exit {
			if rank < 2 && err != nil {
				t.Errorf("kill %d: rank %d: %v\n%s", i, rank, err, r.Output[rank])
			}
			var exit *exec.ExitError
			if rank == 2 && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
				t.Fatalf("kill %d: rank 2 was not killed: %v\n%s", i, err, r.Output[rank])
			}
			after, _, _ := strings.Cut(r.Output[rank], " ")
			if d, err := time.ParseDuration(after); err == nil {
				worst = max(worst, d)
			}
		}
	}
	t.Logf("%d kills: ErrProcFailed at most %v after each", n, worst)
}

// collectiveKillRank executes collectives until rank 2 is dead.
func collectiveKillRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	rng := rand.New(rand.NewPCG(uint64(rounds()), 0)) // The same numbers in all ranks.
	death := os.Getenv("SOAK_DEATH")
	if c.Rank() == 2 {
		go func() {
			time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
			_ = os.WriteFile(death, fmt.Append(nil, monotonicNow()), 0o600)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}()
	}
	var err error
	for err == nil {
		if c.Rank() == 2 && rand.IntN(50) == 0 { // The others go to sleep.
			time.Sleep(5 * time.Millisecond)
		}
		err = randomCollective(ctx, rng, c)
	}
	late := time.Duration(monotonicNow() - readTime(death))
	var failed *mpi.ProcFailedError
	switch {
	case c.Rank() == 2:
		return fmt.Errorf("the victim is alive: %w", err)
	case !errors.Is(err, mpi.ErrProcFailed) || !errors.As(err, &failed) || !slices.Equal(failed.Ranks, []int{2}):
		return fmt.Errorf("want ErrProcFailed of rank 2: %w", err)
	case late > promptLimit:
		return fmt.Errorf("%v after the death: %w", late, err)
	}
	fmt.Printf("%v until ErrProcFailed\n", late.Round(10*time.Microsecond))
	return nil
}

// randomCollective executes a random collective, which is equal in all members.
func randomCollective(ctx context.Context, rng *rand.Rand, c *mpi.Comm) error {
	n, root := []int{1, 100, 5000, 100_000}[rng.IntN(4)], rng.IntN(c.Size())
	one, all, sum := make([]int32, n), make([]int32, n*c.Size()), mpi.Sum[int32]()
	if rng.IntN(2) == 0 {
		sum = mpi.NewOp(func(inout, in []int32) {
			for i := range in {
				inout[i] += in[i]
			}
		}, true)
	}
	switch rng.IntN(9) {
	case 0:
		return mpi.Barrier(ctx, c)
	case 1:
		return mpi.Bcast(ctx, c, one, root)
	case 2:
		return mpi.Reduce(ctx, c, one, all, sum, root)
	case 3:
		return mpi.Allreduce(ctx, c, one, all, sum)
	case 4:
		return mpi.Allgather(ctx, c, one, all)
	case 5:
		return mpi.Alltoall(ctx, c, all, make([]int32, len(all)))
	case 6:
		return mpi.Scan(ctx, c, one, all, sum)
	case 7:
		r, err := mpi.Ibarrier(c)
		if err != nil {
			return err
		}
		_, err = r.Wait(ctx)
		return err
	}
	var reqs []mpi.Request
	for range 5 {
		r, err := mpi.Iallreduce(c, make([]int32, n), make([]int32, n), sum)
		if err == nil {
			reqs = append(reqs, r)
			r, err = mpi.Ibcast(c, make([]int32, n), root)
		}
		if err != nil {
			return errors.Join(err, mpi.WaitAll(ctx, reqs, nil))
		}
		reqs = append(reqs, r)
	}
	return mpi.WaitAll(ctx, reqs, nil)
}

// Some members have no space for the collective segment, so that all do without it, and explain has
// the reason. The members on other nodes are unaffected.
func TestCollectives_OneNodeWithoutSpace_Work(t *testing.T) {
	rooms := []int{320, 16384} // In KiB. The first one has space for inboxes and rings only.
	var dirs []string
	for _, kib := range rooms {
		dirs = append(dirs, needs.SmallTmpfs(t, kib<<10))
	}
	runWithoutSpace(t, dirs)
}
