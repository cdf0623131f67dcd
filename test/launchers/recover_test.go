package launchers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/mpi"
)

// eachExchange runs f under each launcher of Survivable with each exchange that it supports.
func eachExchange(t *testing.T, f func(t *testing.T, l *Started, env []string)) {
	Each(t, Survivable(), func(t *testing.T, l *Started) {
		exchanges := []string{"meet", "groups", "all"}
		if l.Interface == Local {
			exchanges = exchanges[:1]
		}
		for _, exchange := range exchanges {
			t.Run(exchange, func(t *testing.T) {
				t.Parallel() // Mostly starts and ends.
				var env []string
				if exchange != "meet" {
					env = append(env, "FERRY_BOOTSTRAP_"+strings.ToUpper(string(l.Interface))+"_EXCHANGE="+exchange)
				}
				if exchange == "groups" && l.Interface == PMI1 && !l.hasGroups(t) {
					t.Skip("the launcher has PMI 1.1, without group barriers")
				}
				f(t, l, env)
			})
		}
	})
}

// survivors runs a job whose rank 1 dies. It fails the test unless all other ranks succeed.
func (s *Started) survivors(t *testing.T, job Job) {
	t.Helper()
	r := s.Begin(t, job)
	res := r.Wait()
	for i, rank := range res.Ranks {
		if i != 1 && (!rank.HasReturned || rank.Err != "") {
			t.Errorf("rank %d: %v\n%v", i, rank.Err, res)
		}
	}
	if left := r.AwaitEnd(endTimeout); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// revokeAndExit is a job whose rank 1 revokes the communicator and exits at once, on one processor, so that no other
// goroutine runs in between. The others wait for each other.
func revokeAndExit(ctx context.Context) error {
	session, comm, err := openWorld(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	defer comm.Close()
	revoked, err := comm.Dup(ctx)
	if err != nil {
		return err
	}
	defer revoked.Close()
	if comm.Rank() == 1 {
		for _, rank := range []int{0, 2} {
			if _, err := comm.Recv(ctx, nil, rank, 0); err != nil {
				return err
			}
		}
		runtime.GOMAXPROCS(1)
		if err := revoked.Revoke(); err != nil {
			return err
		}
		os.Exit(3)
	}
	if err := comm.Send(ctx, nil, 1, 0); err != nil {
		return err
	}
	other := 2 - comm.Rank()
	if _, err := revoked.Recv(ctx, nil, other, 0); !errors.Is(err, mpi.ErrRevoked) {
		return fmt.Errorf("receive from the other live rank: %w", err)
	}
	_, err = comm.Sendrecv(ctx, nil, other, 0, nil, other, 0) // The other rank is notified before this one closes.
	return err
}

func TestRevoke_CallerExitsAtOnce_ReachesTheOthers(t *testing.T) {
	eachExchange(t, func(t *testing.T, l *Started, env []string) {
		l.survivors(t, Job{Size: 3, Program: "revoke", ExtraEnv: env})
	})
}

// recovers is a job whose rank 1 kills itself. The others agree on that, and continue on the communicator that Shrink
// returns, also after it is revoked.
func recovers(ctx context.Context) error {
	session, comm, err := openWorld(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	defer comm.Close()
	if value, err := comm.Agree(ctx, ^uint64(1<<comm.Rank())); err != nil || value != ^uint64(1<<comm.Size()-1) {
		return fmt.Errorf("agree of all: %x, %w", value, err)
	}
	if comm.Rank() == 1 {
		return unix.Kill(unix.Getpid(), syscall.SIGKILL)
	}
	value, err := comm.Agree(ctx, 7)
	for err == nil && value == 7 { // The death is not known yet.
		value, err = comm.Agree(ctx, 7)
	}
	if failed, ok := errors.AsType[*mpi.ProcFailedError](err); !ok || value != 7 || !slices.Equal(failed.Ranks, []int{1}) {
		return fmt.Errorf("agree after the death: %x, %w", value, err)
	}
	for range 2 {
		survivors, err := comm.Shrink(ctx)
		if err != nil {
			return err
		}
		defer survivors.Close()
		sum := make([]int, 1)
		if err := mpi.Allreduce(ctx, survivors, []int{1}, sum, mpi.Sum[int]()); err != nil {
			return err
		}
		if sum[0] != 2 || survivors.Size() != 2 {
			return fmt.Errorf("%d of %d survivors", sum[0], survivors.Size())
		}
		if comm = survivors; comm.Rank() == 0 {
			if err := comm.Revoke(); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestAgreeAndShrink_RankIsKilled_OthersContinue(t *testing.T) {
	eachExchange(t, func(t *testing.T, l *Started, env []string) {
		l.survivors(t, Job{Size: 3, Program: "recover", ExtraEnv: env})
	})
}
