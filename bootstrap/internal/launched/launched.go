// Package launched finds the launchers that have started a process or one of its ancestors, and
// determines the nearest one. It reads environment variables only.
//
// Processes inherit variables, so those of several launchers may be present if a rank of one has
// started another. These facts tell which launcher is nearer:
//
//   - `ferry run` removes the variables that identify its ranks as ranks of others (NamesRank),
//     so any such variable beside its own address was set later.
//   - Descriptors are not inherited by themselves, because mpirun and srun close those of others.
//     So an open PMI_FD beside PMIx belongs to the nearest launcher. Hydra closes none.
//   - Slurm passes each task its own process id. If it equals that of this process, srun has
//     started it.
//   - Otherwise PMI_PORT beside PMIx or PMI_FD is ambiguous, and an error unless the user selects
//     one.
package launched

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// Lookup is os.LookupEnv.
type Lookup func(name string) (value string, ok bool)

// Variables of launchers with a server that a bootstrap other than local uses.
const (
	PMIFD         = "PMI_FD"
	PMIPort       = "PMI_PORT"
	PMIRank       = "PMI_RANK"
	PMISize       = "PMI_SIZE"
	PMIxNamespace = "PMIX_NAMESPACE"
	PMIxRank      = "PMIX_RANK"
	// Set by bootstrap/pmix for processes that a job adds. It has the key of the job's rank 0.
	PMIxHandOver = "FERRY_BOOTSTRAP_PMIX_HAND_OVER"
)

// Variables of launchers that may provide no server.
const (
	ompiSize      = "OMPI_COMM_WORLD_SIZE"
	ompiRank      = "OMPI_COMM_WORLD_RANK"
	palsRank      = "PALS_RANKID"
	slurmRank     = "SLURM_PROCID"
	slurmLocal    = "SLURM_LOCALID"
	slurmStepSize = "SLURM_STEP_NUM_TASKS"
	slurmSize     = "SLURM_NTASKS"
)

// rankVariables identify a process as a rank. Errors name the first one of a launcher.
var rankVariables = []string{
	PMISize, PMIFD, PMIPort, PMIRank, ompiSize, ompiRank, PMIxNamespace, PMIxRank, palsRank, slurmStepSize, slurmRank,
}

// RankVariable returns a variable by which a launcher other than `ferry run` identifies this
// process as a rank, or "".
func RankVariable(lookup Lookup) string {
	i := slices.IndexFunc(rankVariables, func(name string) bool { _, ok := lookup(name); return ok })
	if i < 0 {
		return ""
	}
	return rankVariables[i]
}

// NamesRank reports whether a variable identifies a process to a launcher other than `ferry run`,
// or has its connection. Such a variable is valid for one process and not for its children.
func NamesRank(name string) bool {
	return slices.Contains(rankVariables, name) || name == slurmLocal || name == PMIxHandOver ||
		slices.ContainsFunc([]string{"PMI_", "PMI2_", "PMIX_", "OMPI_COMM_WORLD_", "MPI_LOCAL"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// rankCounts has the variable for the number of a launcher's ranks, and the variables that identify
// one of them. With only a port the number is unknown.
var rankCounts = []struct {
	size  string
	ranks []string
}{
	{PMISize, []string{PMIFD, PMIRank, palsRank}},
	{ompiSize, []string{ompiRank, PMIxRank}},
	{"", []string{PMIPort}},
}

// MultiRankVariable returns a variable that shows that another launcher started this process as one
// of several ranks, or of an unknown number. It is "" for a single rank and for a process without a
// launcher. The launchers are independent.
func MultiRankVariable(lookup Lookup) string {
	var uncounted []string
	for _, l := range rankCounts {
		several, counted := readCount(lookup, l.size)
		if several {
			return l.size
		}
		if !counted {
			uncounted = append(uncounted, l.ranks...)
		}
	}
	if name := slurmVariable(lookup); name != "" {
		return name
	}
	for _, name := range uncounted {
		if _, ok := lookup(name); ok {
			return name
		}
	}
	return ""
}

// slurmVariable is MultiRankVariable for `srun` without a PMI. Its tasks have SLURM_PROCID and the
// number of tasks of their step. A batch script, and a shell inside an allocation, have the number
// of tasks that the job may start. They are no tasks, and neither are their children.
func slurmVariable(lookup Lookup) string {
	several, inStep := readCount(lookup, slurmStepSize)
	if several {
		return slurmStepSize
	}
	if inStep {
		return ""
	}
	id, ok := lookup(slurmRank)
	if !ok {
		return ""
	}
	if id != "0" {
		return slurmRank // A later task.
	}
	for _, name := range []string{"SLURM_STEP_ID", "SLURM_STEPID"} {
		if _, ok := lookup(name); ok {
			inStep = true
		}
	}
	if _, job := lookup("SLURM_JOB_ID"); job && !inStep {
		return "" // The batch script.
	}
	several, counted := readCount(lookup, slurmSize)
	switch {
	case several:
		return slurmSize
	case !counted:
		return slurmRank
	}
	return ""
}

// readCount reads a number of processes. An invalid number counts as several. ok is false if the
// variable is not set.
func readCount(lookup Lookup, name string) (several, ok bool) {
	text, ok := lookup(name)
	if !ok {
		return false, false
	}
	n, err := strconv.Atoi(text)
	return err != nil || n > 1, true
}

// CheckPMIx returns nil if the environment identifies this process and its PMIx server. A launcher
// sets several variables for the address of the server, one for each generation of the protocol.
func CheckPMIx(environ []string) error {
	const uri = "PMIX_SERVER_URI"
	var missing []string
	for _, v := range []struct{ name, prefix string }{{PMIxNamespace, PMIxNamespace + "="}, {PMIxRank, PMIxRank + "="}, {uri + "*", uri}} {
		if !slices.ContainsFunc(environ, func(e string) bool { return strings.HasPrefix(e, v.prefix) }) {
			missing = append(missing, v.name)
		}
	}
	switch len(missing) {
	case 0:
		return nil
	case 3:
		return errors.New("no PMIx server started this process (" + PMIxNamespace + " is not set)")
	}
	return fmt.Errorf("some variables that a PMIx server sets are missing: %s", strings.Join(missing, ", "))
}

// HasOnlyPMIPort reports whether the environment has a port as the only sign of PMI-1. Then its
// launcher may be nearer than one with PMIx or not.
func HasOnlyPMIPort(lookup Lookup) bool {
	_, fd := lookup(PMIFD)
	_, port := lookup(PMIPort)
	return port && !fd
}

// IsStartedBySlurm reports whether srun has started this process without another launcher between.
// If it is false, srun may still have done so.
func IsStartedBySlurm(lookup Lookup) bool {
	pid, ok := lookup("SLURM_TASK_PID")
	return ok && pid == strconv.Itoa(os.Getpid())
}

// IsSlurmPMIx reports whether the PMIx server in the environment belongs to srun.
func IsSlurmPMIx(lookup Lookup) bool {
	ns, _ := lookup(PMIxNamespace)
	return strings.HasPrefix(ns, "slurm.pmix.")
}

// OuterLauncherVerdict is the verdict of a bootstrap whose server is that of another launcher than
// srun, which started this process. name is the variable of the server.
func OuterLauncherVerdict(name string) framework.Verdict {
	return framework.Unavailable(
		fmt.Sprintf("%s comes from a launcher around srun, which started this process (SLURM_TASK_PID is its process id)", name),
		LaunchHint(slurmRank))
}

// AmbiguousVerdict is the verdict if variables a and b belong to two launchers and the nearer one
// is unknown. selector is the bootstrap that the user can select, or "".
func AmbiguousVerdict(a, b, selector string) framework.Verdict {
	hint := "remove the outer launcher's variables (env -u) where it starts the inner one"
	if selector != "" {
		hint = fmt.Sprintf("FERRY_BOOTSTRAP=%s if it is this one; or %s", selector, hint)
	}
	return framework.Unavailable(
		fmt.Sprintf("%s and %s are both set: one launcher runs inside another, and it is unknown which of them started this process", a, b), hint)
}

// SingletonHint is the remedy for a process outside of a job.
const SingletonHint = wire.EnvSingleton + "=true if it should run by itself"

// SingletonVerdict is the verdict of a bootstrap other than local if the user has selected a
// singleton.
func SingletonVerdict() framework.Verdict {
	return framework.Unavailable("this process runs by itself (bootstrap.local.singleton=true), whatever its environment says", "")
}

// LaunchHint is the remedy for a rank, as variable name shows, that cannot reach the others.
func LaunchHint(name string) string {
	how := "start it with ferry run"
	if strings.HasPrefix(name, "SLURM_") {
		how = "start it with srun --mpi=pmix, srun --mpi=pmi2 or ferry run"
	}
	return how + "; " + SingletonHint
}
