// Package launchers starts jobs under real launchers, which are `ferry run`, Hydra, Open MPI's
// mpirun, and a Slurm of one node that it sets up itself, as root or not, and also in a container.
// Its tests run their cases under each one. A variable in the environment of all processes finds
// and ends those that a launcher leaves.
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

// Need is a program that a launcher requires, with its Debian package.
type Need struct{ Program, Package string }

// Interface is the interface of a launcher to its processes.
type Interface string

const (
	Local       Interface = "local" // Package bootstrap/local.
	PMI1        Interface = "pmi1"
	PMIx        Interface = "pmix"
	NoBootstrap Interface = "" // Ranks have a number, and no way to communicate.
)

// Launcher starts n processes as a job.
type Launcher struct {
	// Name of its subtests.
	Name      string
	Interface Interface
	Need      []Need
	// Environment variable with the rank of a process.
	RankVariable string
	// RanksSurvive is set if idle ranks survive the death of the launcher.
	RanksSurvive bool
	// SurviveFlags has the flags that keep the other ranks running after SIGKILL to a rank. It is nil if
	// the launcher has none.
	SurviveFlags []string
	// CanSpawn is set if the launcher starts processes for a running job.
	CanSpawn bool
	// spawnEnv has the variables of the environment that this needs.
	spawnEnv []string

	prepareEnv func(t testing.TB) (env []string)
	// Returns the command line before the program.
	commandPrefix func(n int) []string
}

var (
	FerryRun = Launcher{Name: "ferry", Interface: Local, RankVariable: "FERRY_BOOTSTRAP_LOCAL_RANK", SurviveFlags: []string{"--tolerate", "1"}, prepareEnv: ferryRun,
		commandPrefix: func(n int) []string {
			return []string{os.Args[0], "run", "-n", strconv.Itoa(n), "-x", envFerry + "=0"}
		}}
	Hydra = Launcher{Name: "hydra", Interface: PMI1, Need: mpichPrograms, RankVariable: "PMI_RANK", CanSpawn: true,
		commandPrefix: func(n int) []string { return []string{"mpiexec.hydra", "-n", strconv.Itoa(n)} }}
	// HydraPort has ranks that connect to an address instead of inheriting a descriptor. The
	// address has the name of the host.
	HydraPort = Launcher{Name: "hydra-port", Interface: PMI1, Need: mpichPrograms, RankVariable: "PMI_ID", CanSpawn: true,
		prepareEnv:    func(t testing.TB) []string { needs.HostName(t); return nil },
		commandPrefix: func(n int) []string { return []string{"mpiexec.hydra", "-pmi-port", "-n", strconv.Itoa(n)} }}
	OpenMPI = Launcher{Name: "mpirun", Interface: PMIx, Need: []Need{{"mpirun.openmpi", "openmpi-bin"}}, RankVariable: "PMIX_RANK", RanksSurvive: true,
		SurviveFlags: []string{"--enable-recovery"}, CanSpawn: true,
		prepareEnv: func(testing.TB) []string {
			return []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
		},
		commandPrefix: func(n int) []string {
			return []string{"mpirun.openmpi", "--oversubscribe", "-n", strconv.Itoa(n)}
		}}
	// PRRTE has no Debian package. All includes it if it is installed.
	PRRTE = Launcher{Name: "prterun", Interface: PMIx, Need: []Need{{"prterun", "PRRTE from its sources"}}, RankVariable: "PMIX_RANK", RanksSurvive: true,
		SurviveFlags: []string{"--runtime-options", "recoverable"}, CanSpawn: true,
		prepareEnv: func(testing.TB) []string {
			return []string{"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
		},
		commandPrefix: func(n int) []string {
			return []string{"prterun", "--map-by", ":OVERSUBSCRIBE", "-n", strconv.Itoa(n)}
		}}
	SlurmPMI2 = srun("pmi2", PMI1)
	SlurmPMIx = srun("pmix", PMIx)
	SlurmNone = srun("none", NoBootstrap)
)

var mpichPrograms = []Need{{"mpiexec.hydra", "mpich"}}

func srun(mpi string, speaks Interface) Launcher {
	l := Launcher{Name: "srun-" + mpi, Interface: speaks, Need: slurmNeeds, RankVariable: "SLURM_PROCID",
		prepareEnv: func(t testing.TB) []string { return []string{"SLURM_CONF=" + sharedSlurm(t).conf()} },
		commandPrefix: func(n int) []string {
			return []string{"srun", "--mpi=" + mpi, "-n", strconv.Itoa(n)}
		}}
	if mpi == "pmi2" { // With pmix, slurmstepd ends the step regardless.
		l.SurviveFlags = []string{"--kill-on-bad-exit=0"}
		l.CanSpawn, l.spawnEnv = true, []string{"SLURM_OVERLAP=1"}
	}
	if mpi == "pmix" {
		l.Need = append(slices.Clip(l.Need), Need{"libpmix.so", "libpmix-dev"})
	}
	return l
}

// All returns the launchers whose ranks can communicate.
func All() []Launcher {
	all := []Launcher{FerryRun, Hydra, HydraPort, OpenMPI, SlurmPMI2, SlurmPMIx}
	if PRRTE.missing() == nil {
		all = append(all, PRRTE)
	}
	return all
}

// Survivable returns the launchers under which ranks survive the death of another one, with their
// flags.
func Survivable() []Launcher {
	var all []Launcher
	for _, l := range All() {
		if l.SurviveFlags != nil {
			command := l.commandPrefix
			l.commandPrefix = func(n int) []string { return append(command(n), l.SurviveFlags...) }
			all = append(all, l)
		}
	}
	return all
}

// Spawners returns the launchers that start processes for a running job, with the environment that
// this needs.
func Spawners() []Launcher { return spawners(All()) }

func spawners(all []Launcher) []Launcher {
	all = slices.DeleteFunc(all, func(l Launcher) bool { return !l.CanSpawn })
	for i, l := range all {
		if l.spawnEnv != nil {
			all[i].prepareEnv = func(t testing.TB) []string { return append(l.prepareEnv(t), l.spawnEnv...) }
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

// Started is a launcher that is ready to start jobs.
type Started struct {
	Launcher
	launcherEnv []string
}

// Start prepares l. For Slurm it starts daemons, which serve all tests and end with Main. It skips
// the test if a package is missing, and fails it with REQUIRE_ALL=1.
func (l Launcher) Start(t testing.TB) *Started {
	t.Helper()
	if err := l.missing(); err != nil {
		needs.Missing(t, "%v", err)
	}
	s := &Started{Launcher: l}
	if l.prepareEnv != nil {
		s.launcherEnv = l.prepareEnv(t)
	}
	return s
}

func (l Launcher) missing() error {
	for _, n := range l.Need {
		if !n.isInstalled() {
			return fmt.Errorf("%s is missing: run scripts/setup or install %s", n.Program, n.Package)
		}
	}
	return nil
}

func (n Need) isInstalled() bool {
	if strings.HasSuffix(n.Program, ".so") {
		return hasLibrary(n.Program)
	}
	_, err := exec.LookPath(n.path())
	return err == nil
}

// path returns the name of the program, or its path in /usr/sbin, which is not in the PATH of
// users.
func (n Need) path() string {
	if p := "/usr/sbin/" + n.Program; isFile(p) {
		return p
	}
	return n.Program
}

// hasLibrary reports whether the dynamic linker finds a C library of that name.
func hasLibrary(name string) bool {
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

// Command returns the command that starts n processes of program with args. Its environment is that
// of this process without the variables of launchers and of user settings.
func (s *Started) Command(n int, program string, args ...string) *exec.Cmd {
	line := append(s.commandPrefix(n), program)
	cmd := exec.Command(line[0], append(line[1:], args...)...)
	cmd.Env = append(plainEnviron(), s.launcherEnv...)
	return cmd
}

// plainEnviron returns the environment without the variables of launchers.
func plainEnviron() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc([]string{"FERRY_", "PMI_", "PMIX_", "OMPI_", "PRTE_", "SLURM_", "SLURMD_", "HYDRA_", "HYDI_", "MPI_", "MPIEXEC_", "LAUNCHERS_"},
			func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
	return append(env, "FERRY_CONFIG="+os.DevNull, "GORACE=atexit_sleep_ms=0")
}

// ferryRun makes this binary the command ferry.
func ferryRun(t testing.TB) []string {
	return []string{envFerry + "=1", "XDG_RUNTIME_DIR=" + shortDir(t)}
}

// shortDir creates a directory for sockets, whose paths must be short.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ferry-l")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
