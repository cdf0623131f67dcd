package launchers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// nestedIn returns a launcher that one rank of another one starts.
func (inner Launcher) nestedIn(outer Launcher) Launcher {
	l := Launcher{Name: inner.Name + " inside " + outer.Name, Interface: inner.Interface, RankVariable: inner.RankVariable, Need: append(slices.Clip(outer.Need), inner.Need...)}
	l.prepareEnv = func(t testing.TB) (env []string) {
		for _, l := range []Launcher{outer, inner} {
			if l.prepareEnv != nil {
				env = append(env, l.prepareEnv(t)...)
			}
		}
		return env
	}
	l.commandPrefix = func(n int) []string {
		line := inner.commandPrefix(n)
		if strings.HasPrefix(line[0], "mpiexec.hydra") { // Under Slurm, it would start its processes by srun otherwise.
			line = slices.Insert(line, 1, "-launcher", "fork", "-rmk", "user")
		}
		if inner.Interface == Local { // The command ferry is this program, to which mpirun and srun would not pass envFerry.
			line = append([]string{"env", envFerry + "=1"}, line...)
		}
		return append(outer.commandPrefix(1), line...)
	}
	return l
}

// The ranks are those of the innermost launcher if it can be determined. Otherwise the error names
// the variables of both.
func TestLauncher_Nested_RanksBelongToTheInner(t *testing.T) {
	for _, c := range []struct {
		inner, outer Launcher
		// Variables in the error, none if the job succeeds.
		names []string
	}{
		{FerryRun, Hydra, nil},
		{FerryRun, OpenMPI, nil},
		{FerryRun, SlurmNone, nil},
		{FerryRun, SlurmPMIx, nil},
		{FerryRun, SlurmPMI2, nil},
		{Hydra, FerryRun, nil},
		{Hydra, HydraPort, nil},
		{Hydra, OpenMPI, nil},
		{Hydra, SlurmPMIx, nil},
		{HydraPort, FerryRun, nil},
		{OpenMPI, FerryRun, nil},
		{OpenMPI, Hydra, nil},
		{OpenMPI, SlurmNone, nil},
		{SlurmPMI2, FerryRun, nil},
		{SlurmPMI2, OpenMPI, nil},
		{SlurmPMI2, HydraPort, nil},
		{SlurmPMIx, FerryRun, nil},
		{SlurmPMIx, OpenMPI, nil},
		{SlurmPMIx, Hydra, nil},
		{SlurmPMIx, HydraPort, nil},

		{HydraPort, Hydra, []string{"PMI_FD", "PMI_PORT"}},
		{HydraPort, OpenMPI, []string{"PMI_PORT", "PMIX_NAMESPACE"}},
		{OpenMPI, HydraPort, []string{"PMI_PORT", "PMIX_NAMESPACE"}},
		{SlurmNone, FerryRun, []string{"FERRY_BOOTSTRAP_LOCAL_ADDRESS", "SLURM_STEP_NUM_TASKS"}},
		{SlurmNone, Hydra, []string{"PMI_FD", "SLURM_STEP_NUM_TASKS"}},
		{SlurmNone, HydraPort, []string{"PMI_PORT", "SLURM_STEP_NUM_TASKS"}},
		{SlurmNone, OpenMPI, []string{"PMIX_NAMESPACE", "SLURM_STEP_NUM_TASKS"}},
	} {
		l := c.inner.nestedIn(c.outer)
		t.Run(l.Name, func(t *testing.T) {
			s := l.Start(t)
			if len(c.names) == 0 {
				s.RunToEnd(t, Job{Size: 2, Program: "two"})
				return
			}
			for i, rank := range s.Begin(t, Job{Size: 2, Program: "two"}).Wait().Ranks {
				for _, name := range c.names {
					// A launcher may end one rank because of the other.
					if (i == 0 || rank.HasReturned) && !strings.Contains(rank.Err, name) {
						t.Errorf("rank %d does not name %s: %+v", i, name, rank)
					}
				}
			}
		})
	}
}

// two returns an error unless there are two ranks with the numbers of the launcher.
func two(ctx context.Context) error {
	s, c, err := world(ctx, "two")
	if err != nil {
		return err
	}
	if n, numberErr := Number(); numberErr != nil || c.Size() != 2 || c.Rank() != n {
		err = errors.Join(fmt.Errorf("rank %d of %d", c.Rank(), c.Size()), numberErr)
	} else {
		err = exchangeByte(ctx, c, 7)
	}
	return errors.Join(err, c.Close(), s.Close())
}
