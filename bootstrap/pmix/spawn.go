package pmix

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// spawnedJob is a namespace of the launcher with processes that this process has started.
type spawnedJob struct {
	namespace string
	firstRank uint32
	size      uint32
}

// Spawn implements mesh.Spawner. The launcher gives the processes a namespace of their own. They
// receive the hand-over in their environment (hand_over.go), which the launcher passes to them only,
// and which other users cannot read. Their other variables are those of the launcher and of s.
//
// No time limit applies but that of ctx, because launchers may answer when all processes have
// started. The wait also ends with an error when the server is lost.
func (l *launcher) Spawn(ctx context.Context, s mesh.SpawnRequest) error {
	op := fmt.Sprintf("start %d processes of %s", s.N, s.Program)
	if launched.IsSlurmPMIx(os.LookupEnv) {
		return fmt.Errorf("%w: %s: %s: Slurm's pmix can't start processes; request the processes from srun, or use ferry run --max-ranks in the allocation",
			framework.ErrUnsupported, componentName, op)
	}
	if err := l.checkUsable(op); err != nil {
		return err
	}
	app, job, err := l.spawnApp(s)
	if err != nil {
		return fmt.Errorf("%w: %s: %s: %w", framework.ErrUnsupported, componentName, op, err)
	}
	job.namespace, err = l.lib.Spawn(ctx, app)
	switch {
	case pmixc.Is(err, pmixc.NotSupported):
		return fmt.Errorf("%w: %s: %s: %s can't start processes: %w", framework.ErrUnsupported, componentName, op, serverName(), err)
	case err != nil:
		return callError(ctx, op, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spawnedJobs = append(l.spawnedJobs, job)
	return nil
}

// spawnApp returns the processes of s, whose namespace is not known yet, for libpmix. The error is
// that of a request which the launcher cannot carry.
func (p *process) spawnApp(s mesh.SpawnRequest) (pmixc.App, spawnedJob, error) {
	h, err := mesh.DecodeHandOver(s.HandOver)
	if err != nil {
		return pmixc.App{}, spawnedJob{}, err
	}
	handOver := handOverText{server: serverNamespace(os.Getenv), parent: p.self.Namespace, handOver: s.HandOver}
	app := pmixc.App{
		Program: s.Program, Args: s.Args, Dir: s.Dir, N: s.N,
		Env:           append(slices.Clone(s.Env), launched.PMIxHandOver+"="+handOver.String()),
		IsIndependent: true,
	}
	return app, spawnedJob{firstRank: uint32(h.FirstRank), size: uint32(s.N)}, app.Check()
}
