package pmix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

const (
	envAdded   = "PMIXTEST_ADDED"    // Program of added processes.
	envLimit   = "PMIXTEST_LIMIT"    // Limit of Spawn.
	envNested  = "PMIXTEST_LAUNCHER" // Command line of a launcher, separated by spaces.
	firstAdded = 4
)

// adds adds two processes, and prints the error of Spawn.
func adds(ctx context.Context) error {
	l, err := openLauncher(ctx, defaults)
	if err != nil {
		return err
	}
	if l.Identity().Proc.Rank > 0 {
		return errors.Join(pmixtest.AwaitFlags(ctx, "done"), l.Close())
	}
	request, err := request(ctx, l)
	if err != nil {
		return err
	}
	limited, limit := ctx, os.Getenv(envLimit)
	if limit != "" {
		d, err := time.ParseDuration(limit)
		if err != nil {
			return err
		}
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	err = mesh.Spawner(l).Spawn(limited, request)
	text := fmt.Sprintf("spawn: unsupported %t, transport %t, %v", errors.Is(err, framework.ErrUnsupported), errors.Is(err, framework.ErrTransport), err)
	fmt.Println(text)
	if limit != "" {
		os.Exit(0) // A call that has not returned prevents finalization.
	}
	if err == nil {
		err = pmixtest.AwaitFlags(ctx, "added4", "added5")
	} else {
		err = nil
	}
	return errors.Join(err, pmixtest.SetFlag("done", text), l.Close())
}

// request returns a request for two processes. A mesh client of this process provides an entry.
func request(ctx context.Context, l *launcher) (mesh.SpawnRequest, error) {
	c, err := Component().Open(ctx, bootstrap.Env{Params: defaults})
	if err != nil {
		return mesh.SpawnRequest{}, err
	}
	id := l.Identity()
	entry, err := await(ctx, l, id.Proc)
	if err = errors.Join(err, c.Close()); err != nil {
		return mesh.SpawnRequest{}, err
	}
	handOver, err := mesh.HandOver{Namespace: id.Proc.Namespace, FirstRank: firstAdded, Size: 2, MaxSize: 9, Entry: entry}.Encode()
	if err != nil {
		return mesh.SpawnRequest{}, err
	}
	self, err := os.Executable()
	env := []string{pmixtest.AsProgram(os.Getenv(envAdded))}
	return mesh.SpawnRequest{N: 2, Program: self, Args: []string{"x y"}, Dir: "/", Env: env, HandOver: handOver}, err
}

// added prints the identity of an added process, and finds the other one that was added with it.
func added(ctx context.Context) error {
	l, err := openAdded(ctx)
	if err != nil {
		return err
	}
	id := l.Identity()
	if err := l.Publish(ctx, entryOf(id.Proc.Rank)); err != nil {
		return err
	}
	h, ok := mesh.Added(l).HandOver()
	if !ok || h.Namespace != id.Proc.Namespace || len(h.Entry) == 0 {
		return fmt.Errorf("hand-over %+v, %t", h, ok)
	}
	if err := finds(ctx, l, 9-id.Proc.Rank); err != nil {
		return err
	}
	if _, ok, err := l.Find(ctx, framework.Proc{Namespace: id.Proc.Namespace, Rank: 0}); ok || err != nil {
		return fmt.Errorf("finds rank 0: %t, %w", ok, err)
	}
	m, err := l.NodeMap(ctx)
	dir, _ := os.Getwd()
	fmt.Printf("rank %d from %d, %d of %d, index %d of %v, %d, in %s, %q, map %v %v\n",
		id.Proc.Rank, id.FirstRank, id.Size, id.MaxSize, id.LocalRank, id.LocalRanks, id.LocalSize, dir, os.Args[1:], m, err)
	return errors.Join(pmixtest.SetFlag(fmt.Sprint("added", id.Proc.Rank), ""), l.Close())
}

// openAdded opens the launcher as the engine does, with the parameter of the environment.
func openAdded(ctx context.Context) (*launcher, error) {
	return openLauncher(ctx, &Params{Library: pmixc.Soname, HandOver: os.Getenv(framework.EnvName("bootstrap.pmix.hand_over"))})
}

func TestSpawn_Processes_JoinNamespaceOfJob(t *testing.T) {
	for name, launcher := range launchers(t, 2) {
		t.Run(name, func(t *testing.T) {
			out := pmixtest.Run(t, launcher, "adds", envAdded+"=added")
			for i := range 2 {
				want := fmt.Sprintf(`rank %d from 4, 2 of 9, index %d of [4 5], 2, in /, ["x y"], map [] <nil>`, firstAdded+i, i)
				if !strings.Contains(out, want) {
					t.Errorf("want %s in\n%s", want, out)
				}
			}
		})
	}
}

// nesting starts another launcher, which passes the hand-over to its ranks.
func nesting(ctx context.Context) error {
	l, err := openAdded(ctx)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	id := l.Identity()
	line := append(strings.Fields(os.Getenv(envNested)), self)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = append(os.Environ(), pmixtest.AsProgram("nested"))
	text, err := cmd.CombinedOutput()
	fmt.Printf("rank %d: %v: %s", id.Proc.Rank, err, text)
	return errors.Join(pmixtest.SetFlag(fmt.Sprint("added", id.Proc.Rank), ""), l.Close())
}

func nested(ctx context.Context) error {
	l, err := openAdded(ctx)
	if err != nil {
		return err
	}
	_, isAdded := l.HandOver()
	id := l.Identity()
	fmt.Printf("nested %d of %d, added %t\n", id.Proc.Rank, id.Size, isAdded)
	return l.Close()
}

func TestHandOver_LauncherInsideAddedProcess_StartsItsOwnJob(t *testing.T) {
	for name, launcher := range launchers(t, 1) {
		t.Run(name, func(t *testing.T) {
			out := pmixtest.Run(t, launcher, "adds", envAdded+"=nesting", envNested+"="+strings.Join(pmixtest.Server(t, "-n", "2"), " "))
			if strings.Count(out, "nested 0 of 2, added false") != 2 || strings.Count(out, "nested 1 of 2, added false") != 2 {
				t.Error(out)
			}
		})
	}
}

// addedDeaths ends rank 5 while rank 4 watches.
func addedDeaths(ctx context.Context) error {
	l, err := openAdded(ctx)
	if err != nil {
		return err
	}
	me := l.Identity().Proc.Rank
	if me > firstAdded {
		err := errors.Join(pmixtest.SetFlag(fmt.Sprint("added", me), ""), pmixtest.AwaitFlags(ctx, "watches"))
		return errors.Join(err, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	events := make(chan bootstrap.Event, 10)
	l.Watch(func(e bootstrap.Event) { events <- e })
	if err := pmixtest.SetFlag("watches", ""); err != nil {
		return err
	}
	select {
	case e := <-events:
		fmt.Printf("event %d of rank %d, in the namespace %t\n", e.Kind, e.Proc.Rank, e.Proc.Namespace == l.Identity().Proc.Namespace)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.Watch(nil)
	return errors.Join(pmixtest.SetFlag(fmt.Sprint("added", me), ""), l.Close())
}

func TestWatch_AddedProcessDies_EventHasRankOfJob(t *testing.T) {
	installed(t)
	out, _ := pmixtest.RunAny(t, pmixtest.Server(t, "-n", "1"), "adds", envAdded+"=addedDeaths")
	if want := fmt.Sprintf("event %d of rank 5, in the namespace true", bootstrap.PeerFailed); !strings.Contains(out, want) {
		t.Errorf("want %s in\n%s", want, out)
	}
}

// The errors quote the server, and no process starts.
func TestSpawn_ServerRefusesOrDoesNotAnswer_IsAnError(t *testing.T) {
	installed(t)
	for how, want := range map[string]string{
		"none":   "unsupported true, transport false, .*start 2 processes of .*pmix.test: the PMIx server at tcp4://.* can't start processes: PMIx_Spawn: NOT-SUPPORTED .-47",
		"refuse": "unsupported false, transport true, .*start 2 processes of .*PMIx_Spawn: OUT-OF-RESOURCE .-29",
		"fail":   "unsupported false, transport true, .*PMIx_Spawn: JOB FAILED TO LAUNCH .-181",
		"silent": "unsupported false, transport false, .*start 2 processes of .*PMIx_Spawn has not returned: context deadline exceeded",
	} {
		t.Run(how, func(t *testing.T) {
			env := []string{envAdded + "=added"}
			if how == "silent" {
				env = append(env, envLimit+"=300ms")
			}
			out := pmixtest.Run(t, pmixtest.Server(t, "-n", "1", "-spawn", how), "adds", env...)
			if !regexp.MustCompile("spawn: "+want).MatchString(out) || strings.Contains(out, "spawned ") {
				t.Errorf("want %s in\n%s", want, out)
			}
		})
	}
}

// A late launcher starts the processes after the deadline. They have the hand-over, and end.
func TestSpawn_LateAnswer_ProcessesStartAfterError(t *testing.T) {
	installed(t)
	out := pmixtest.Run(t, pmixtest.Server(t, "-n", "1", "-spawn", "late"), "adds", envAdded+"=added", envLimit+"=300ms")
	if !strings.Contains(out, "PMIx_Spawn has not returned: context deadline exceeded") || strings.Count(out, "spawned ") != 2 {
		t.Error(out)
	}
}

// abandoned calls Spawn of a launcher that is killed meanwhile.
func abandoned(ctx context.Context) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0); err != nil {
		return err
	}
	l, err := openLauncher(ctx, defaults)
	if err != nil {
		return err
	}
	request, err := request(ctx, l)
	if err != nil {
		return err
	}
	flag := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() { flag <- pmixtest.SetFlag("spawns", "") })
	err = l.Spawn(ctx, request)
	text := fmt.Sprintf("%t %v; close %v", errors.Is(err, framework.ErrTransport), err, l.Close())
	return errors.Join(<-flag, pmixtest.SetFlag("result", text))
}

func TestSpawn_LauncherIsKilled_CallEnds(t *testing.T) {
	installed(t)
	job := pmixtest.Start(t, pmixtest.Server(t, "-n", "1", "-spawn", "silent"), "abandoned")
	job.Await(t, "spawns")
	if err := job.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	text := job.Await(t, "result")
	if !strings.HasPrefix(text, "true") {
		t.Errorf("want ErrTransport, got %s", text)
	}
	t.Log(text)
	if out, err := job.Wait(); err == nil {
		t.Error(out)
	}
}

// mpirun without free slots refuses with a state of the job. The test kills it, because it would not
// end.
func TestSpawn_NoFreeSlots_ErrorHasRemedy(t *testing.T) {
	installed(t)
	launcher := slices.DeleteFunc(pmixtest.Mpirun(t, 1, "--host", "localhost:1"), func(arg string) bool { return arg == "--oversubscribe" })
	job := pmixtest.Start(t, launcher, "adds", envAdded+"=added")
	text := job.Await(t, "done")
	if err := job.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if out, err := job.Wait(); err == nil {
		t.Error(out)
	}
	if !strings.Contains(text, "spawn: unsupported false, transport true") || !strings.Contains(text, "(69): MAP FAILED: no slots may be free; start mpirun with more slots or with --oversubscribe") {
		t.Error(text)
	}
}

func TestSpawn_LauncherCannotCarryRequest_IsErrUnsupported(t *testing.T) {
	for want, s := range map[string]mesh.SpawnRequest{
		"hand-over":                  {N: 2, Program: "/bin/true"},
		"\"/etc/passwd\" is not an":  {N: 2, Program: "/etc/passwd"},
		"\"/etc/passwd\" is not a d": {N: 2, Program: "/bin/true", Dir: "/etc/passwd"},
		"string of 200000 bytes":     {N: 2, Program: "/bin/true", Args: []string{strings.Repeat("x", 200000)}},
		"want at most 1048576":       {N: 2, Program: "/bin/true", Env: slices.Repeat([]string{strings.Repeat("x", 100000)}, 11)},
	} {
		s.Dir = cmp.Or(s.Dir, "/")
		_, _, err := new(process).spawnApp(s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// This process may have inherited the hand-over of another one.
func TestSpawn_EnvironmentHasHandOver_IsReplaced(t *testing.T) {
	app, _, _ := new(process).spawnApp(mesh.SpawnRequest{N: 1, Program: "/bin/true", Dir: "/", Env: []string{"FERRY_BOOTSTRAP_PMIX_HAND_OVER=old", "FERRY_BTL=tcp"}})
	if len(app.Env) != 2 || app.Env[0] != "FERRY_BTL=tcp" || app.Env[1] != "FERRY_BOOTSTRAP_PMIX_HAND_OVER=.." {
		t.Errorf("%q", app.Env)
	}
}

func TestSpawn_ServerSharesMemory_AddedProcessesDoNotUseIt(t *testing.T) {
	for offered, want := range map[string]string{"ds21,ds12,hash": "[PMIX_MCA_gds=hash]", "hash": "[]", "ds21": "[]", "shmem2,hash": "[]", "": "[]"} {
		env := map[string]string{"PMIX_GDS_MODULE": offered}
		lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
		if got := fmt.Sprint(storeVariables(lookup)); got != want {
			t.Errorf("%q: %s, want %s", offered, got, want)
		}
		env["PMIX_MCA_gds"] = "ds21"
		if got := storeVariables(lookup); got != nil {
			t.Errorf("selected by the user: %q", got)
		}
	}
}

func TestSpawn_UnderSlurm_IsErrUnsupported(t *testing.T) {
	t.Setenv("PMIX_NAMESPACE", "slurm.pmix.7.0")
	err := (&launcher{process: &process{}}).Spawn(t.Context(), mesh.SpawnRequest{N: 2, Program: "/bin/true"})
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "Slurm's pmix can't start processes") {
		t.Error(err)
	}
}
