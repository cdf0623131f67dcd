package launchers

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
)

// allLaunchers returns All and the launcher without a bootstrap. The ranks of these jobs do not
// communicate, so that Hydra's address need not resolve.
func allLaunchers() []Launcher {
	all := append(All(), SlurmNone)
	for i := range all {
		if all[i].Name == HydraPort.Name {
			all[i].prepareEnv = nil
		}
	}
	return all
}

// wantVariables has the variables in the environment of ranks according to docs/launchers.md.
var wantVariables = map[string][]string{
	"ferry":      {"FERRY_BOOTSTRAP_LOCAL_ADDRESS", "FERRY_BOOTSTRAP_LOCAL_RANK", "FERRY_BOOTSTRAP_LOCAL_SIZE"},
	"hydra":      {"PMI_FD", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
	"hydra-port": {"PMI_PORT", "PMI_ID", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
	"mpirun":     {"PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI2", "PMIX_SERVER_URI41", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_MCA_orte_hnp_uri"},
	"prterun":    {"PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI2", "PMIX_SERVER_URI41", "PRTE_LAUNCHED"},
	"srun-pmi2":  {"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_JOBID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
	"srun-pmix":  {"PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI2", "PMIX_SERVER_URI41", "SLURM_PMIX_MAPPING_SERV", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
	"srun-none":  {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
}

// unwantedPrefixes has the prefixes of variables that are not in the environment of ranks.
var unwantedPrefixes = map[string][]string{
	"ferry":      {"PMI_", "PMIX_"},
	"hydra":      {"PMIX_", "PMI_PORT"},
	"hydra-port": {"PMIX_", "PMI_FD", "PMI_RANK", "PMI_SIZE"},
	"mpirun":     {"PMI_"},
	"prterun":    {"PMI_", "OMPI_"},
	"srun-pmi2":  {"PMIX_", "PMI_PORT"},
	"srun-pmix":  {"PMI_"},
	"srun-none":  {"PMI_", "PMIX_"},
}

// Each rank has its own number, and the variables that select a bootstrap are set.
func TestEnvironment_EachLauncher_MatchesDocs(t *testing.T) {
	Each(t, allLaunchers(), func(t *testing.T, l *Started) {
		res := l.RunToEnd(t, Job{Size: 4, Program: "environ"})
		t.Logf("4 ranks in %v", res.ElapsedTime)
		for i, rank := range res.Ranks {
			names := names(rank.Output)
			if !slices.Contains(strings.Split(rank.Output, "\n"), l.RankVariable+"="+strconv.Itoa(i)) {
				t.Errorf("rank %d has a wrong %s", i, l.RankVariable)
			}
			for _, name := range wantVariables[l.Name] {
				if !slices.Contains(names, name) {
					t.Errorf("rank %d has no %s", i, name)
				}
			}
			for _, prefix := range unwantedPrefixes[l.Name] {
				if at := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) }); at >= 0 {
					t.Errorf("rank %d has %s", i, names[at])
				}
			}
		}
		if t.Failed() {
			t.Log(res.Ranks[0].Output)
		}
	})
}

func names(environ string) (all []string) {
	for line := range strings.Lines(environ) {
		name, _, _ := strings.Cut(line, "=")
		all = append(all, name)
	}
	return all
}

// The program is a file that does not use this package.
func TestJob_OtherProgram_Runs(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	Each(t, allLaunchers(), func(t *testing.T, l *Started) {
		for i, rank := range l.RunToEnd(t, Job{Size: 3, Program: "/bin/hostname"}).Ranks {
			if strings.TrimSpace(rank.Output) != host {
				t.Errorf("rank %d printed %q", i, rank.Output)
			}
		}
		if res := l.RunToEnd(t, Job{Size: 2, Program: Ferry, ProgramArgs: []string{"--version"}}); !strings.Contains(res.Ranks[1].Output, "ferry") {
			t.Error(res)
		}
	})
}

// The result has the error of a rank and that of the launcher.
func TestJob_RankFails_ResultHasError(t *testing.T) {
	Each(t, allLaunchers(), func(t *testing.T, l *Started) {
		res := l.Begin(t, Job{Size: 2, Program: "fail"}).Wait()
		t.Logf("the launcher: %v", res.LauncherErr)
		if err := res.Failures("fail"); res.LauncherErr == nil || !strings.Contains(err.Error(), "rank 1 fails") {
			t.Errorf("got %v\n%v", err, res)
		}
	})
}

// Wait kills all processes, and the error names them.
func TestWait_Timeout_KillsJob(t *testing.T) {
	Each(t, allLaunchers(), func(t *testing.T, l *Started) {
		t.Parallel() // Mostly waits.
		r := l.Begin(t, Job{Size: 2, Program: "/bin/sleep", ProgramArgs: []string{"1000"}, Timeout: 300 * time.Millisecond})
		if err := r.Wait().Failures("/bin/sleep"); err == nil || !strings.Contains(err.Error(), "sleep 1000") {
			t.Error(err)
		}
		if left := r.Processes(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// The skip names the package to install.
func TestStart_PackageMissing_ErrorNamesIt(t *testing.T) {
	l := Launcher{Name: "none", Need: []Need{{"sh", "dash"}, {"no-such-launcher", "no-such-package"}}}
	if err := l.missing(); err == nil || !strings.Contains(err.Error(), "no-such-launcher") || !strings.Contains(err.Error(), "no-such-package") {
		t.Error(err)
	}
}

// envHost sets the host name of this process in a UTS namespace of its own.
const envHost = "LAUNCHERS_HOST"

// withoutCgroups is a script that runs a command without control groups, as in containers. It exits with
// cannotMount if mounts are forbidden.
const (
	withoutCgroups = `mount --make-rprivate / && mount -t tmpfs none /sys/fs/cgroup || exit 77; exec "$0" "$@"`
	cannotMount    = 77
)

// Every launcher starts jobs if the host name does not resolve and no control groups are mounted,
// as in containers.
func TestLaunchers_HostNameUnresolvable_StartJobs(t *testing.T) {
	needs.Time(t)
	if os.Getenv(envHost) != "" {
		t.Skip("the test is running already")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const host = "no-such-host.invalid"
	cmd := exec.CommandContext(t.Context(), "sh", "-c", withoutCgroups, self, "-test.v", "-test.run", "^(TestEnvironment_EachLauncher_MatchesDocs|TestJob_OtherProgram_Runs)$")
	cmd.Env = append(plainEnviron(), envHost+"="+host)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || cmd.ProcessState.ExitCode() == cannotMount {
		needs.Missing(t, "a UTS namespace and mounts need root: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%d tests pass, %d are skipped", strings.Count(string(out), "--- PASS"), strings.Count(string(out), "--- SKIP"))
}
