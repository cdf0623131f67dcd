package launchers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// inside is a launcher that one rank of another starts.
func (inner Launcher) inside(outer Launcher) Launcher {
	l := Launcher{Name: inner.Name + " inside " + outer.Name, Speaks: inner.Speaks, Rank: inner.Rank, Need: append(slices.Clip(outer.Need), inner.Need...)}
	l.begin = func(t testing.TB) (env []string) {
		for _, l := range []Launcher{outer, inner} {
			if l.begin != nil {
				env = append(env, l.begin(t)...)
			}
		}
		return env
	}
	l.command = func(n int) []string {
		line := inner.command(n)
		if strings.HasPrefix(line[0], "mpiexec.hydra") { // with Slurm around it, it would ask that to start its processes
			line = slices.Insert(line, 1, "-launcher", "fork", "-rmk", "user")
		}
		if inner.Speaks == Local { // "ferry" is this program, which mpirun and srun would not pass the mark on to
			line = append([]string{"env", envFerry + "=1"}, line...)
		}
		return append(outer.command(1), line...)
	}
	return l
}

// TestLauncherInsideALauncher: the ranks are those of the nearest one, where it can be told
// which that is. Otherwise it is an error that names both variables.
func TestLauncherInsideALauncher(t *testing.T) {
	for _, c := range []struct {
		inner, outer Launcher
		names        []string // none: the ranks meet
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
		l := c.inner.inside(c.outer)
		t.Run(l.Name, func(t *testing.T) {
			s := l.Start(t)
			if len(c.names) == 0 {
				s.ToTheEnd(t, Job{Size: 2, Program: "two"})
				return
			}
			for i, rank := range s.Begin(t, Job{Size: 2, Program: "two"}).Wait().Ranks {
				for _, name := range c.names {
					// A launcher may end one rank because of the other.
					if (i == 0 || rank.Ended) && !strings.Contains(rank.Err, name) {
						t.Errorf("rank %d does not name %s: %+v", i, name, rank)
					}
				}
			}
		})
	}
}

// two is an error unless there are two ranks, each with the number that its launcher gave.
func two(ctx context.Context) error {
	s, c, err := world(ctx, "two")
	if err != nil {
		return err
	}
	if n, numberErr := Number(); numberErr != nil || c.Size() != 2 || c.Rank() != n {
		err = errors.Join(fmt.Errorf("rank %d of %d", c.Rank(), c.Size()), numberErr)
	} else {
		err = talk(ctx, c, 7)
	}
	return errors.Join(err, c.Close(), s.Close())
}
