package pmi1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
)

// The test binary is the program of these jobs. roleVar selects the program, and dirVar is the
// directory of the job.
const (
	roleVar = "FERRY_TEST_PMI1_ROLE"
	dirVar  = "FERRY_TEST_PMI1_DIR"
)

const hydraTimeout = time.Minute

// asRankOfHydra runs this process as a rank if it is one, and exits.
func asRankOfHydra() {
	role, ok := roles[os.Getenv(roleVar)]
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), hydraTimeout)
	defer cancel()
	status, err := role(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rank:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

var roles = map[string]func(ctx context.Context) (status int, err error){
	"meet":    roleMeet,
	"forgets": roleForget,
	"aborts":  roleAbort,
	"leaves":  roleLeave,
	"spawns":  roleSpawn,
}

func openAnd(ctx context.Context, f func(*launcher) error) error {
	if v := probe(new(Params)); v.Status != framework.StatusUsable {
		return errors.New(v.Why())
	}
	l, err := openLauncher(ctx, bootstrap.Env{Params: new(Params), Timeout: hydraTimeout})
	if err != nil {
		return err
	}
	return f(l)
}

// roleMeet lets ranks 1 and 3 find each other, while 0 and 2 do not connect.
func roleMeet(ctx context.Context) (int, error) {
	number := os.Getenv(envRank) + os.Getenv(envID)
	if number == "0" || number == "2" {
		return 0, untilThere(ctx, "done-1", "done-3")
	}
	began := time.Now()
	return 0, openAnd(ctx, func(l *launcher) error {
		opened := time.Since(began)
		id := l.Identity()
		entry := bytes.Repeat([]byte{byte(id.Proc.Rank)}, 1500)
		if err := l.Publish(ctx, entry); err != nil {
			return err
		}
		published := time.Since(began) - opened
		other := framework.Proc{Namespace: id.Proc.Namespace, Rank: 4 - id.Proc.Rank}
		got, err := find(ctx, l, other)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, bytes.Repeat([]byte{byte(other.Rank)}, 1500)) {
			return fmt.Errorf("%v has %d bytes %x...", other, len(got), got[:min(4, len(got))])
		}
		var took []time.Duration
		name := l.entryName(other)
		for range 200 {
			start := time.Now()
			if _, ok, err := l.proc.wire.Lookup(ctx, name); !ok || err != nil {
				return fmt.Errorf("lookup: %t, %w", ok, err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		start := time.Now()
		if err := l.Close(); err != nil {
			return err
		}
		fmt.Printf("rank %d of %d, %d local, groups %t: open %v, publish 1500 B %v, lookup p50 %v p99 %v, finalize %v\n", id.Proc.Rank, id.Size,
			id.LocalSize, l.proc.wire.HasGroups(), opened.Round(time.Microsecond), published.Round(time.Microsecond), took[100], took[198], time.Since(start).Round(time.Microsecond))
		again, err := openLauncher(ctx, bootstrap.Env{Params: new(Params)})
		if err != nil {
			return fmt.Errorf("open again: %w", err)
		}
		if _, ok, err := again.Find(ctx, other); !ok || err != nil {
			return fmt.Errorf("find again: %t, %w", ok, err)
		}
		if _, _, err := again.Find(ctx, framework.Proc{Namespace: id.Proc.Namespace}); !errors.Is(err, mesh.ErrLauncherLeft) {
			return fmt.Errorf("find a process outside the job: %w", err)
		}
		return errors.Join(again.Close(), os.WriteFile(filepath.Join(os.Getenv(dirVar), fmt.Sprint("done-", id.Proc.Rank)), nil, 0o600))
	})
}

// find repeats the lookup until there is an answer.
func find(ctx context.Context, l mesh.Launcher, p framework.Proc) ([]byte, error) {
	for {
		entry, ok, err := l.Find(ctx, p)
		if ok || err != nil {
			return entry, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("%v: %w", p, context.Cause(ctx))
		}
	}
}

// untilThere waits for files of the job's directory.
func untilThere(ctx context.Context, names ...string) error {
	for _, name := range names {
		for {
			if _, err := os.Stat(filepath.Join(os.Getenv(dirVar), name)); err == nil {
				break
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("%s: %w", name, context.Cause(ctx))
			}
		}
	}
	return nil
}

// roleAbort lets rank 0 abort the job while the others wait.
func roleAbort(ctx context.Context) (int, error) {
	return 0, openAnd(ctx, func(l *launcher) error {
		if l.Identity().Proc.Rank == 0 {
			if err := l.Abort(ctx, 3, "as the test wants"); err != nil {
				return err
			}
		}
		return untilThere(ctx, "never")
	})
}

// roleForget ends rank 0 without a goodbye after the others have connected, while they wait.
func roleForget(ctx context.Context) (int, error) {
	return 0, openAnd(ctx, func(l *launcher) error {
		if err := l.proc.wire.Barrier(ctx, ""); err != nil || l.Identity().Proc.Rank == 0 {
			return err
		}
		return untilThere(ctx, "never")
	})
}

// roleLeave exits with the rank as the status.
func roleLeave(ctx context.Context) (status int, err error) {
	err = openAnd(ctx, func(l *launcher) error {
		status = int(l.Identity().Proc.Rank)
		return l.Close()
	})
	return status, err
}

// roleSpawn lets rank 0 start pairs of processes and wait for each. The other ranks do not connect.
func roleSpawn(ctx context.Context) (int, error) {
	number := os.Getenv(envRank) + os.Getenv(envID)
	if os.Getenv(envSpawned) == "" && number != "0" {
		return 0, untilThere(ctx, "done-0")
	}
	return 0, openAnd(ctx, func(l *launcher) error {
		if h, ok := l.HandOver(); ok {
			return joinJob(ctx, l, h)
		}
		id := l.Identity()
		c, err := openClient(ctx, bootstrap.Env{Params: new(Params)}, l, "meet")
		if err != nil {
			return err
		}
		entry, err := find(ctx, l, id.Proc)
		if err != nil {
			return err
		}
		began := time.Now()
		for i := range spawnRounds {
			if err := spawnTwo(ctx, l, mesh.HandOver{Namespace: id.Proc.Namespace, FirstRank: id.Size + 2*i, Size: 2, MaxSize: 2 * id.Size, Entry: entry}); err != nil {
				return fmt.Errorf("spawn %d: %w", i, err)
			}
		}
		fmt.Printf("rank 0: %d spawns of 2 processes until they have ended: %v each\n", spawnRounds, (time.Since(began) / spawnRounds).Round(time.Microsecond))
		return errors.Join(c.Close(), os.WriteFile(filepath.Join(os.Getenv(dirVar), "done-0"), nil, 0o600))
	})
}

const spawnRounds = 20

// spawnTwo starts two processes and waits for their ends.
func spawnTwo(ctx context.Context, l *launcher, h mesh.HandOver) error {
	b, err := h.Encode()
	if err != nil {
		return err
	}
	s := mesh.SpawnRequest{N: 2, Program: os.Args[0], Args: []string{"an argument", "é=1"}, Dir: os.Getenv(dirVar), HandOver: b}
	if err := l.Spawn(ctx, s); err != nil {
		return err
	}
	return untilThere(ctx, fmt.Sprint("done-", h.FirstRank), fmt.Sprint("done-", h.FirstRank+1))
}

// joinJob is the part of an added process in roleSpawn.
func joinJob(ctx context.Context, l *launcher, h mesh.HandOver) error {
	id := l.Identity()
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	entry, err := find(ctx, l, framework.Proc{Namespace: h.Namespace})
	if err != nil {
		return err
	}
	switch rank := int(id.Proc.Rank); {
	case id.Proc.Namespace != h.Namespace || id.FirstRank != h.FirstRank || rank != h.FirstRank+id.LocalRank || id.Size != 2 || id.MaxSize != h.MaxSize || id.LocalSize != 2:
		return fmt.Errorf("identity %+v with hand-over %+v", id, h)
	case !bytes.Equal(entry, h.Entry):
		return errors.New("the entry of rank 0 in the address book differs from that of the hand-over")
	case dir != os.Getenv(dirVar) || !slices.Equal(os.Args[1:], []string{"an argument", "é=1"}):
		return fmt.Errorf("%q in %s", os.Args, dir)
	}
	return errors.Join(l.Close(), os.WriteFile(filepath.Join(dir, fmt.Sprint("done-", id.Proc.Rank)), nil, 0o600))
}

// mpiexec runs a role as a job of four, and returns its output and status.
func mpiexec(t *testing.T, role string, args ...string) (output string, status int) {
	t.Helper()
	path := needs.Program(t, "mpiexec.hydra", "mpich")
	cmd := exec.CommandContext(t.Context(), path, append(args, "-n", "4", os.Args[0])...)
	cmd.Env = append(os.Environ(), roleVar+"="+role, dirVar+"="+t.TempDir())
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestHydra_TwoRanks_FindEachOther(t *testing.T) {
	for name, args := range map[string][]string{"descriptor": nil, "port": {"-pmi-port"}} {
		t.Run(name, func(t *testing.T) {
			if name == "port" {
				needs.HostName(t)
			}
			out, status := mpiexec(t, "meet", args...)
			if status != 0 || strings.Count(out, "rank ") != 2 {
				t.Errorf("status %d: %s", status, out)
			}
			t.Log(out)
		})
	}
}

func TestHydra_Spawn_AddedProcessesJoinJob(t *testing.T) {
	for name, args := range map[string][]string{"descriptor": nil, "port": {"-pmi-port"}} {
		t.Run(name, func(t *testing.T) {
			if name == "port" {
				needs.HostName(t)
			}
			out, status := mpiexec(t, "spawns", args...)
			if status != 0 || !strings.Contains(out, "until they have ended") {
				t.Errorf("status %d: %s", status, out)
			}
			t.Log(out)
		})
	}
}

func TestHydra_ExitStatus_ReachesMpiexec(t *testing.T) {
	if out, status := mpiexec(t, "leaves"); status != 3 {
		t.Errorf("ranks end with 0, 1, 2 and 3, whose bits together are 3: status %d: %s", status, out)
	}
	if out, status := mpiexec(t, "aborts"); status != 3 {
		t.Errorf("a rank aborts with 3: status %d: %s", status, out)
	}
}

// The others wait without a limit. The status of mpiexec is unspecified.
func TestHydra_EndWithoutFinalize_EndsOthers(t *testing.T) {
	began := time.Now()
	out, status := mpiexec(t, "forgets")
	if time.Since(began) > hydraTimeout/2 || strings.Contains(out, "never") {
		t.Errorf("the others go on: status %d: %s", status, out)
	}
	t.Logf("status %d: %s", status, out)
}
