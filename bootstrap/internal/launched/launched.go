// Package launched reads from the environment which launchers have started a process, or
// one that it descends from, and which of them is the nearest. It knows variables only, and
// speaks to nobody.
//
// Variables pass on from process to process, so that those of several launchers may be
// there: a rank of one has started another. What tells which one is nearer:
//
//   - `ferry run` takes from its ranks what names them as ranks of others (NamesRank). So
//     whatever is there beside its own address came later.
//   - A descriptor does not pass on by itself: mpirun and srun close those of others. So a
//     PMI_FD that is open beside CheckPMIx is the nearest launcher's. Hydra closes none.
//   - Slurm tells each task its own process id. Where that is this process's, srun has
//     started it.
//   - Otherwise nothing tells PMI_PORT from CheckPMIx, or from PMI_FD: that is an error, unless
//     the user says which.
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

// The variables of launchers that a bootstrap other than local speaks to.
const (
	PMIFD         = "PMI_FD"
	PMIPort       = "PMI_PORT"
	PMIRank       = "PMI_RANK"
	PMISize       = "PMI_SIZE"
	PMIxNamespace = "PMIX_NAMESPACE"
	PMIxRank      = "PMIX_RANK"
)

// Those of launchers that may leave ranks without anything to speak to.
const (
	ompiSize      = "OMPI_COMM_WORLD_SIZE"
	ompiRank      = "OMPI_COMM_WORLD_RANK"
	palsRank      = "PALS_RANKID"
	slurmRank     = "SLURM_PROCID"
	slurmLocal    = "SLURM_LOCALID"
	slurmStepSize = "SLURM_STEP_NUM_TASKS"
	slurmSize     = "SLURM_NTASKS"
)

// ranks name a process as a rank. The first one of a launcher is what errors name.
var rankVariables = []string{
	PMISize, PMIFD, PMIPort, PMIRank, ompiSize, ompiRank, PMIxNamespace, PMIxRank, palsRank, slurmStepSize, slurmRank,
}

// Other returns a variable by which a launcher other than `ferry run` names this process
// as a rank of its own, be it one of one; "" if there is none.
func RankVariable(lookup Lookup) string {
	i := slices.IndexFunc(rankVariables, func(name string) bool { _, ok := lookup(name); return ok })
	if i < 0 {
		return ""
	}
	return rankVariables[i]
}

// NamesRank reports whether a variable says who a process is to a launcher other than
// `ferry run`, or how it reaches it: true of this process, and of none that it starts.
func NamesRank(name string) bool {
	return slices.Contains(rankVariables, name) || name == slurmLocal ||
		slices.ContainsFunc([]string{"PMI_", "PMI2_", "PMIX_", "OMPI_COMM_WORLD_", "MPI_LOCAL"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// counts says which variable has the number of a launcher's ranks, for the variables by
// which it names one of them. Nothing has it where a port is all that there is.
var rankCounts = []struct {
	size  string
	ranks []string
}{
	{PMISize, []string{PMIFD, PMIRank, palsRank}},
	{ompiSize, []string{ompiRank, PMIxRank}},
	{"", []string{PMIPort}},
}

// Several returns a variable that says that another launcher started this process as one
// of several, or as one of nobody knows how many; "" if the process is one of one, or by
// itself. One launcher's one of one says nothing of another's.
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

// slurm is Several for `srun` without a PMI. Its tasks have SLURM_PROCID and the number of
// tasks of their step. A batch script, and a shell inside an allocation, have the number of
// tasks that the job may start, and are none of them: what they start themselves is by
// itself.
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
		return slurmRank // not the first of one
	}
	for _, name := range []string{"SLURM_STEP_ID", "SLURM_STEPID"} {
		if _, ok := lookup(name); ok {
			inStep = true
		}
	}
	if _, job := lookup("SLURM_JOB_ID"); job && !inStep {
		return "" // the batch script
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

// readCount reads a number of processes: ok is false if it isn't set, and what is no
// number counts as several.
func readCount(lookup Lookup, name string) (several, ok bool) {
	text, ok := lookup(name)
	if !ok {
		return false, false
	}
	n, err := strconv.Atoi(text)
	return err != nil || n > 1, true
}

// CheckPMIx returns nil if the environment names this process and its CheckPMIx server. A launcher
// sets several variables of the server's address, one for each generation of the protocol.
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

// HasOnlyPMIPort reports whether the environment says of PMI-1 no more than a port. Then
// nothing tells whether PMI-1's launcher is nearer than one with CheckPMIx.
func HasOnlyPMIPort(lookup Lookup) bool {
	_, fd := lookup(PMIFD)
	_, port := lookup(PMIPort)
	return port && !fd
}

// IsStartedBySlurm reports whether Slurm's srun has started this very process, and no launcher
// between. Where it is false, it may have.
func IsStartedBySlurm(lookup Lookup) bool {
	pid, ok := lookup("SLURM_TASK_PID")
	return ok && pid == strconv.Itoa(os.Getpid())
}

// IsSlurmPMIx reports whether the CheckPMIx server in the environment is srun's.
func IsSlurmPMIx(lookup Lookup) bool {
	ns, _ := lookup(PMIxNamespace)
	return strings.HasPrefix(ns, "slurm.pmix.")
}

// Outer is the verdict of a bootstrap whose server variable name speaks of, where srun has
// started this process, and that server is not srun's.
func OuterLauncherVerdict(name string) framework.Verdict {
	return framework.Unavailable(
		fmt.Sprintf("%s comes from a launcher around srun, which started this process (SLURM_TASK_PID is its process id)", name),
		LaunchHint(slurmRank))
}

// Undecided is a verdict where variables a and b speak of two launchers, and it can't be
// told which is the nearer one. me is the bootstrap by whose name the user can say that it
// is the one that it speaks to; empty: that would not tell.
func AmbiguousVerdict(a, b, me string) framework.Verdict {
	hint := "remove the outer launcher's variables (env -u) where it starts the inner one"
	if me != "" {
		hint = fmt.Sprintf("FERRY_BOOTSTRAP=%s if it is this one; or %s", me, hint)
	}
	return framework.Unavailable(
		fmt.Sprintf("%s and %s are both set: one launcher runs inside another, and nothing tells which of them started this process", a, b), hint)
}

// SingletonHint is how a user says that a process is no rank.
const SingletonHint = wire.EnvSingleton + "=true if it should run by itself"

// Singleton is the verdict of a bootstrap that is not local where the user has said so.
func SingletonVerdict() framework.Verdict {
	return framework.Unavailable("this process runs by itself (bootstrap.local.singleton=true), whatever its environment says", "")
}

// LaunchHint is what helps a process that is a rank, as variable name says, and has no way
// to find the others.
func LaunchHint(name string) string {
	how := "start it with ferry run"
	if strings.HasPrefix(name, "SLURM_") {
		how = "start it with srun --mpi=pmix, srun --mpi=pmi2 or ferry run"
	}
	return how + "; " + SingletonHint
}
