package pmi1

import (
	"fmt"
	"strconv"
	"strings"
)

// Variables of Slurm in the environment of its tasks.
const (
	envSlurmOverlap     = "SLURM_OVERLAP"
	envSlurmCPUs        = "SLURM_JOB_CPUS_PER_NODE"
	envSlurmCPUsPerTask = "SLURM_CPUS_PER_TASK"
)

// checkSlurm returns the reason if Slurm does not answer a spawn of n processes. It starts them as
// another step of the job by srun. Such a step waits for processors that no other step uses, unless
// steps may overlap. For a step that is larger than the allocation there is no answer either.
func checkSlurm(n int, lookup func(string) (string, bool)) error {
	if _, ok := lookup(envSlurmOverlap); !ok {
		return fmt.Errorf("srun --mpi=pmi2 starts them after the end of this step only; set %s=1 for the commands salloc, sbatch and srun", envSlurmOverlap)
	}
	text, _ := lookup(envSlurmCPUs)
	cpus := countSlurmCPUs(text)
	perTask, ok, err := readNumber(lookup, envSlurmCPUsPerTask, 1)
	if !ok || err != nil {
		perTask = 1
	}
	if cpus > 0 && n > cpus/perTask {
		return fmt.Errorf("%d processes at a time are more than the job's allocation of %d (%s=%s, %d for each); request a larger one",
			n, cpus/perTask, envSlurmCPUs, text, perTask)
	}
	return nil
}

// countSlurmCPUs returns the sum of processors on the nodes of a job, as in 8(x2),4. It is 0 for
// another text.
func countSlurmCPUs(text string) (sum int) {
	for group := range strings.SplitSeq(text, ",") {
		cpus, nodes, several := strings.Cut(group, "(x")
		if !several {
			nodes = "1)"
		}
		c, errCPUs := strconv.ParseUint(cpus, 10, 16)
		n, errNodes := strconv.ParseUint(strings.TrimSuffix(nodes, ")"), 10, 16)
		if errCPUs != nil || errNodes != nil {
			return 0
		}
		sum += int(c * n)
	}
	return sum
}
