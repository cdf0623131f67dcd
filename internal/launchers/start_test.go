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

// everyone is All, and the one that gives ranks no more than a number. The ranks of these jobs
// do not meet, so that Hydra's address need not resolve.
func everyone() []Launcher {
	all := append(All(), SlurmNone)
	for i := range all {
		if all[i].Name == HydraPort.Name {
			all[i].begin = nil
		}
	}
	return all
}

// gives is what the pages of docs/launchers.md say that ranks find in their environment.
var gives = map[string][]string{
	"ferry":      {"FERRY_BOOTSTRAP_LOCAL_ADDRESS", "FERRY_BOOTSTRAP_LOCAL_RANK", "FERRY_BOOTSTRAP_LOCAL_SIZE"},
	"hydra":      {"PMI_FD", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
	"hydra-port": {"PMI_PORT", "PMI_ID", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
	"mpirun":     {"PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI2", "PMIX_SERVER_URI41", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_MCA_orte_hnp_uri"},
	"prterun":    {"PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI2", "PMIX_SERVER_URI41", "PRTE_LAUNCHED"},
	"srun-pmi2":  {"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_JOBID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
	"srun-pmix":  {"PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI2", "PMIX_SERVER_URI41", "SLURM_PMIX_MAPPING_SERV", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
	"srun-none":  {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
}

// lacks is what they say that ranks don't find.
var lacks = map[string][]string{
	"ferry":      {"PMI_", "PMIX_"},
	"hydra":      {"PMIX_", "PMI_PORT"},
	"hydra-port": {"PMIX_", "PMI_FD", "PMI_RANK", "PMI_SIZE"},
	"mpirun":     {"PMI_"},
	"prterun":    {"PMI_", "OMPI_"},
	"srun-pmi2":  {"PMIX_", "PMI_PORT"},
	"srun-pmix":  {"PMI_"},
	"srun-none":  {"PMI_", "PMIX_"},
}

// TestEnvironmentIsWhatThePagesSay: a rank's number is its own, and the variables by which
// a bootstrap is chosen are there.
func TestEnvironmentIsWhatThePagesSay(t *testing.T) {
	Each(t, everyone(), func(t *testing.T, l *Started) {
		res := l.ToTheEnd(t, Job{Size: 4, Program: "environ"})
		t.Logf("4 ranks in %v", res.Time)
		for i, rank := range res.Ranks {
			names := names(rank.Output)
			if !slices.Contains(strings.Split(rank.Output, "\n"), l.Rank+"="+strconv.Itoa(i)) {
				t.Errorf("rank %d has another %s", i, l.Rank)
			}
			for _, name := range gives[l.Name] {
				if !slices.Contains(names, name) {
					t.Errorf("rank %d has no %s", i, name)
				}
			}
			for _, prefix := range lacks[l.Name] {
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

// TestProgramsOfOthersStart: a file that knows nothing of this package.
func TestProgramsOfOthersStart(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	Each(t, everyone(), func(t *testing.T, l *Started) {
		for i, rank := range l.ToTheEnd(t, Job{Size: 3, Program: "/bin/hostname"}).Ranks {
			if strings.TrimSpace(rank.Output) != host {
				t.Errorf("rank %d says %q", i, rank.Output)
			}
		}
		if res := l.ToTheEnd(t, Job{Size: 2, Program: Ferry, Args: []string{"--version"}}); !strings.Contains(res.Ranks[1].Output, "ferry") {
			t.Error(res)
		}
	})
}

// TestFailureOfARankIsSeen: what a rank returns and what the launcher makes of it.
func TestFailureOfARankIsSeen(t *testing.T) {
	Each(t, everyone(), func(t *testing.T, l *Started) {
		res := l.Begin(t, Job{Size: 2, Program: "fail"}).Wait()
		t.Logf("the launcher: %v", res.Launcher)
		if err := res.Failures("fail"); res.Launcher == nil || !strings.Contains(err.Error(), "rank 1 has had enough") {
			t.Errorf("failures are %v\n%v", err, res)
		}
	})
}

// TestJobThatDoesNotEndIsEnded: with all its processes, and with an error that names them.
func TestJobThatDoesNotEndIsEnded(t *testing.T) {
	Each(t, everyone(), func(t *testing.T, l *Started) {
		t.Parallel() // mostly waits
		r := l.Begin(t, Job{Size: 2, Program: "/bin/sleep", Args: []string{"1000"}, Timeout: 300 * time.Millisecond})
		if err := r.Wait().Failures("/bin/sleep"); err == nil || !strings.Contains(err.Error(), "sleep 1000") {
			t.Error(err)
		}
		if left := r.Processes(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// TestMissingPackageIsNamed: the skip says what to install.
func TestMissingPackageIsNamed(t *testing.T) {
	l := Launcher{Name: "none", Need: []Need{{"sh", "dash"}, {"no-such-launcher", "no-such-package"}}}
	if err := l.missing(); err == nil || !strings.Contains(err.Error(), "no-such-launcher") || !strings.Contains(err.Error(), "no-such-package") {
		t.Error(err)
	}
}

// envHost makes this process name its host, in a name space of its own.
const envHost = "LAUNCHERS_HOST"

// bare is a script that runs a command without control groups, as in containers. Its status is
// cannotMount where the system forbids that.
const (
	bare        = `mount --make-rprivate / && mount -t tmpfs none /sys/fs/cgroup || exit 77; exec "$0" "$@"`
	cannotMount = 77
)

// TestHostThatDoesNotResolve: every launcher starts jobs where the host's own name is in
// no table and no control groups are mounted, as in containers.
func TestHostThatDoesNotResolve(t *testing.T) {
	needs.Time(t)
	if os.Getenv(envHost) != "" {
		t.Skip("this is that test")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const host = "no-such-host.invalid"
	cmd := exec.CommandContext(t.Context(), "sh", "-c", bare, self, "-test.v", "-test.run", "^(TestEnvironmentIsWhatThePagesSay|TestProgramsOfOthersStart)$")
	cmd.Env = append(plainEnviron(), envHost+"="+host)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || cmd.ProcessState.ExitCode() == cannotMount {
		needs.Missing(t, "a name of its own for the host, and mounts, need root: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%d tests pass, %d are skipped", strings.Count(string(out), "--- PASS"), strings.Count(string(out), "--- SKIP"))
}
