package launchers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/mpi"
)

// survive is the program of a job in which rank 1 kills itself. That rank prints the time of its
// death, and the others print the time of the error. They then exchange messages and end without an
// error.
func survive(ctx context.Context) error {
	session, comm, err := openWorld(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	defer comm.Close()
	if err := mpi.Barrier(ctx, comm); err != nil {
		return err
	}
	if comm.Rank() == 1 {
		fmt.Println(time.Now().UnixNano())
		return unix.Kill(unix.Getpid(), syscall.SIGKILL)
	}
	if _, err = comm.Recv(ctx, nil, 1, 0); !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("receive from the killed rank: %w", err)
	}
	fmt.Println(time.Now().UnixNano())
	other := 2 - comm.Rank()
	for range survivalRounds { // A launcher may end ranks some time after the death.
		if _, err := comm.Sendrecv(ctx, nil, other, 1, nil, other, 1); err != nil {
			return err
		}
		time.Sleep(pollInterval)
	}
	return nil
}

// survivalRounds take longer than a launcher takes to end a job.
const survivalRounds = 2 * time.Second / pollInterval

// openWorld opens a session and a communicator of all ranks.
func openWorld(ctx context.Context) (*mpi.Session, *mpi.Comm, error) {
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return nil, nil, err
	}
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return nil, nil, errors.Join(err, session.Close())
	}
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.survive")
	if err != nil {
		return nil, nil, errors.Join(err, session.Close())
	}
	return session, comm, nil
}

// The test logs the time from SIGKILL to the error.
func TestSurvive_RankIsKilled_OthersContinue(t *testing.T) {
	Each(t, Survivable(), func(t *testing.T, l *Started) {
		t.Parallel() // Mostly waits.
		r := l.Begin(t, Job{Size: 3, Program: "survive"})
		res := r.Wait()
		times := make([]int64, len(res.Ranks))
		for i, rank := range res.Ranks {
			var err error
			times[i], err = strconv.ParseInt(strings.TrimSpace(rank.Output), 10, 64)
			if err != nil || i != 1 && (!rank.HasReturned || rank.Err != "") {
				t.Fatalf("rank %d: %v\n%v", i, err, res)
			}
		}
		t.Logf("ErrProcFailed %v and %v after SIGKILL; the launcher ended with %v", time.Duration(times[0]-times[1]), time.Duration(times[2]-times[1]), res.LauncherErr)
		if left := r.AwaitEnd(endTimeout); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// The test runs examples/survive with a rank that kills itself at a random step. The ranks are
// processes that restore the block of the dead one.
func TestSurvive_Example_ResultIsRight(t *testing.T) {
	example := filepath.Join(t.TempDir(), "survive")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", example, "../../examples/survive").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	jobs := 1
	if *full {
		jobs = 20
	}
	Each(t, Survivable(), func(t *testing.T, l *Started) {
		t.Parallel() // Mostly starts and ends.
		for range jobs {
			r := l.Begin(t, Job{Size: 4, Program: example, ProgramArgs: []string{"-kill", "2", "-grid", "32"}})
			res := r.Wait()
			if !strings.Contains(res.Ranks[0].Output, "\nok: 400 steps on 4 ranks, 3 at the end") {
				t.Fatal(res)
			}
			if left := r.AwaitEnd(endTimeout); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}
	})
}
