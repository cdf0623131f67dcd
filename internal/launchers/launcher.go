// Package launchers starts jobs under real launchers: `ferry run`, Hydra, Open
// MPI's mpirun, and a Slurm of one node that it sets up itself, as root or not, in
// a container too. Its tests run one case under each. What a launcher leaves
// behind is found by a variable in the environment of its processes, and ended.
//
//	func TestMain(m *testing.M) { Main(m, programs) }
//	func TestHello(t *testing.T) {
//		Each(t, All(), func(t *testing.T, l *Started) { l.Run(t, Job{Size: 4, Program: "hello"}) })
//	}
package launchers

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

// Need is a program that a launcher consists of, and the Debian package that has it.
type Need struct{ Program, Package string }

// Speaks is what a launcher offers to the processes that it starts.
type Speaks string

// What launchers speak.
const (
	Local   Speaks = "local" // bootstrap/local
	PMI1    Speaks = "pmi1"
	PMIx    Speaks = "pmix"
	Nothing Speaks = "" // ranks get a number, and no way to find one another
)

// Launcher is a way to start n processes as a job.
type Launcher struct {
	Name   string // of its subtests
	Speaks Speaks
	Need   []Need
	Rank   string // the variable that has a process's rank
	// Orphans is set where ranks that wait for nothing from their launcher live on when
	// it is killed.
	Orphans bool
	// Survive are flags that keep the other ranks running after SIGKILL to a rank. It is nil if
	// the launcher has none.
	Survive []string

	begin   func(t testing.TB) (env []string)
	command func(n int) []string // what stands before the program
}

// The launchers.
var (
	FerryRun = Launcher{Name: "ferry", Speaks: Local, Rank: "FERRY_BOOTSTRAP_LOCAL_RANK", Survive: []string{"--tolerate", "1"}, begin: ferryRun,
		command: func(n int) []string {
			return []string{os.Args[0], "run", "-n", strconv.Itoa(n), "-x", envFerry + "=0"}
		}}
	Hydra = Launcher{Name: "hydra", Speaks: PMI1, Need: mpich, Rank: "PMI_RANK",
		command: func(n int) []string { return []string{"mpiexec.hydra", "-n", strconv.Itoa(n)} }}
	// HydraPort has ranks that connect to an address, instead of a descriptor that they inherit.
	// The address has the host's own name.
	HydraPort = Launcher{Name: "hydra-port", Speaks: PMI1, Need: mpich, Rank: "PMI_ID",
		begin:   func(t testing.TB) []string { needs.HostName(t); return nil },
		command: func(n int) []string { return []string{"mpiexec.hydra", "-pmi-port", "-n", strconv.Itoa(n)} }}
	OpenMPI = Launcher{Name: "mpirun", Speaks: PMIx, Need: []Need{{"mpirun.openmpi", "openmpi-bin"}}, Rank: "PMIX_RANK", Orphans: true,
		Survive: []string{"--enable-recovery"},
		begin: func(testing.TB) []string {
			return []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
		},
		command: func(n int) []string {
			return []string{"mpirun.openmpi", "--oversubscribe", "-n", strconv.Itoa(n)}
		}}
	// PRRTE is in no Debian package: All has it where somebody has installed it.
	PRRTE = Launcher{Name: "prterun", Speaks: PMIx, Need: []Need{{"prterun", "PRRTE from its sources"}}, Rank: "PMIX_RANK", Orphans: true,
		Survive: []string{"--runtime-options", "recoverable"},
		begin: func(testing.TB) []string {
			return []string{"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
		},
		command: func(n int) []string {
			return []string{"prterun", "--map-by", ":OVERSUBSCRIBE", "-n", strconv.Itoa(n)}
		}}
	SlurmPMI2 = srun("pmi2", PMI1)
	SlurmPMIx = srun("pmix", PMIx)
	SlurmNone = srun("none", Nothing)
)

var mpich = []Need{{"mpiexec.hydra", "mpich"}}

func srun(mpi string, speaks Speaks) Launcher {
	l := Launcher{Name: "srun-" + mpi, Speaks: speaks, Need: slurmNeeds, Rank: "SLURM_PROCID",
		begin: func(t testing.TB) []string { return []string{"SLURM_CONF=" + theSlurm(t).conf()} },
		command: func(n int) []string {
			return []string{"srun", "--mpi=" + mpi, "-n", strconv.Itoa(n)}
		}}
	if mpi == "pmi2" { // With pmix, slurmstepd ends the step.
		l.Survive = []string{"--kill-on-bad-exit=0"}
	}
	if mpi == "pmix" {
		l.Need = append(slices.Clip(l.Need), Need{"libpmix.so", "libpmix-dev"})
	}
	return l
}

// All returns every launcher by which the ranks of a job can meet.
func All() []Launcher {
	all := []Launcher{FerryRun, Hydra, HydraPort, OpenMPI, SlurmPMI2, SlurmPMIx}
	if PRRTE.missing() == nil {
		all = append(all, PRRTE)
	}
	return all
}

// Survivable returns the launchers under which ranks survive the death of another one, with their
// flags for it.
func Survivable() []Launcher {
	var all []Launcher
	for _, l := range All() {
		if l.Survive != nil {
			command := l.command
			l.command = func(n int) []string { return append(command(n), l.Survive...) }
			all = append(all, l)
		}
	}
	return all
}

// Each runs f under each launcher, as a subtest with its name.
func Each(t *testing.T, all []Launcher, f func(t *testing.T, l *Started)) {
	for _, l := range all {
		t.Run(l.Name, func(t *testing.T) { f(t, l.Start(t)) })
	}
}

// Started is a launcher that can start jobs.
type Started struct {
	Launcher
	env []string
}

// Start makes l ready, which for Slurm takes daemons: they serve all tests, and end
// with Main. It skips the test if a package is missing; with REQUIRE_ALL=1 it fails.
func (l Launcher) Start(t testing.TB) *Started {
	t.Helper()
	if err := l.missing(); err != nil {
		needs.Missing(t, "%v", err)
	}
	s := &Started{Launcher: l}
	if l.begin != nil {
		s.env = l.begin(t)
	}
	return s
}

func (l Launcher) missing() error {
	for _, n := range l.Need {
		if !n.there() {
			return fmt.Errorf("%s is missing: see scripts/setup, or install %s", n.Program, n.Package)
		}
	}
	return nil
}

func (n Need) there() bool {
	if strings.HasSuffix(n.Program, ".so") {
		return library(n.Program)
	}
	_, err := exec.LookPath(n.path())
	return err == nil
}

// path is the program's name, or where Debian has it: daemons are in a directory that
// users don't search.
func (n Need) path() string {
	if p := "/usr/sbin/" + n.Program; isFile(p) {
		return p
	}
	return n.Program
}

// library reports whether the loader of programs finds a C library by that name.
func library(name string) bool {
	dirs := []string{"/usr/lib", "/usr/lib64", "/usr/local/lib"}
	for _, arch := range []string{"x86_64", "aarch64"} {
		dirs = append(dirs, "/usr/lib/"+arch+"-linux-gnu")
	}
	return slices.ContainsFunc(dirs, func(dir string) bool { return isFile(dir + "/" + name) })
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Command returns the command that starts n times program with args. Its environment
// is this process's, without what another launcher or a user's settings put there.
func (s *Started) Command(n int, program string, args ...string) *exec.Cmd {
	line := append(s.command(n), program)
	cmd := exec.Command(line[0], append(line[1:], args...)...)
	cmd.Env = append(plainEnviron(), s.env...)
	return cmd
}

// plainEnviron is the environment without the variables of launchers.
func plainEnviron() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc([]string{"FERRY_", "PMI_", "PMIX_", "OMPI_", "PRTE_", "SLURM_", "SLURMD_", "HYDRA_", "HYDI_", "MPI_", "MPIEXEC_", "LAUNCHERS_"},
			func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
	return append(env, "FERRY_CONFIG="+os.DevNull, "GORACE=atexit_sleep_ms=0")
}

// ferryRun lets this binary be the command ferry.
func ferryRun(t testing.TB) []string {
	return []string{envFerry + "=1", "XDG_RUNTIME_DIR=" + shortDir(t)}
}

// shortDir is a directory for sockets, whose paths must be short.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ferry-l")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
