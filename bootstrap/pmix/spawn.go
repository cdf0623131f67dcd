package pmix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
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
	l.beginSpawn()
	job.namespace, err = l.lib.Spawn(ctx, app)
	l.endSpawn(job, err == nil)
	switch {
	case pmixc.Is(err, pmixc.NotSupported):
		return fmt.Errorf("%w: %s: %s: %s can't start processes: %w", framework.ErrUnsupported, componentName, op, serverName(), err)
	case err != nil:
		return callError(ctx, op, withJobState(err))
	}
	return nil
}

func (p *process) beginSpawn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pendingSpawns++
}

// endSpawn records the processes that a call has started, if it did, and delivers their deaths
// since its begin.
func (p *process) endSpawn(job spawnedJob, hasStarted bool) {
	p.watchMu.Lock()
	defer p.watchMu.Unlock()
	p.mu.Lock()
	p.pendingSpawns--
	if hasStarted {
		p.spawnedJobs = append(p.spawnedJobs, job)
	}
	deaths := p.unclaimedDeaths
	p.unclaimedDeaths = nil
	var events []bootstrap.Event
	for _, e := range deaths {
		if event, ok := p.recordEvent(e); ok {
			events = append(events, event)
		}
	}
	p.mu.Unlock()
	for _, event := range events {
		if p.watcher != nil {
			p.watcher(event)
		}
	}
}

// jobStates are the texts of Open MPI 4 for the codes above 0 that its mpirun returns, which are
// states of the job. libpmix has no texts for them.
var jobStates = map[pmixc.Status]string{68: "ALLOCATION FAILED", 69: "MAP FAILED", 70: "CANNOT LAUNCH"}

// withJobState adds the text of a state of the job to an error of PMIx_Spawn, and the remedy.
func withJobState(err error) error {
	var refused *pmixc.Error
	if errors.As(err, &refused) && jobStates[refused.Code] != "" {
		return fmt.Errorf("%w: %s: no slots may be free; start mpirun with more slots or with --oversubscribe", err, jobStates[refused.Code])
	}
	return err
}

// spawnApp returns the description of the processes of s for libpmix, and their job without its
// namespace. The error is that of a request which the launcher cannot carry. A missing program is
// one, because mpirun ends the job for it.
func (p *process) spawnApp(s mesh.SpawnRequest) (pmixc.App, spawnedJob, error) {
	handOver := handOverText{server: serverNamespace(os.Getenv), parent: p.self.Namespace, handOver: s.HandOver}
	const name = launched.PMIxHandOver + "="
	env := slices.DeleteFunc(slices.Clone(s.Env), func(v string) bool { return strings.HasPrefix(v, name) })
	env = append(env, storeVariables(os.LookupEnv)...)
	app := pmixc.App{Program: s.Program, Args: s.Args, Dir: s.Dir, N: s.N, Env: append(env, name+handOver.String()), IsIndependent: true}
	err := s.CheckProgram()
	if err == nil {
		err = app.Check()
	}
	if err != nil {
		return pmixc.App{}, spawnedJob{}, err
	}
	h, err := mesh.DecodeHandOver(s.HandOver)
	return app, spawnedJob{firstRank: uint32(h.FirstRank), size: uint32(s.N)}, err
}

// storeVariables returns variables that let added processes keep the launcher's values in their own
// memory. PMIx_Init of libpmix 4.2.2 blocks forever in 1 of 30 added processes on a busy machine
// if it reads the values from the memory that servers share with their processes (ds12, ds21).
func storeVariables(lookup launched.Lookup) []string {
	const selection = "PMIX_MCA_gds"
	if _, isSelected := lookup(selection); isSelected {
		return nil
	}
	offered, _ := lookup("PMIX_GDS_MODULE") // From the server.
	stores := strings.Split(offered, ",")
	if slices.ContainsFunc(stores, func(s string) bool { return strings.HasPrefix(s, "ds") }) && slices.Contains(stores, "hash") {
		return []string{selection + "=hash"}
	}
	return nil
}
