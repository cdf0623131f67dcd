// Package pmix is the bootstrap under launchers with a PMIx server: Open MPI's mpirun,
// PRRTE's prun, and Slurm's srun --mpi=pmix. Of PMIx it takes who the process is, and an
// address book; everything else is bootstrap/meet's, because servers differ in all else: most
// have no groups, tell nobody of deaths, and end fences that a dead process has not entered
// with success; Slurm's has no name service either.
//
// libpmix is loaded at run time (internal/pmixc). The parameter exchange has communicators
// made by fences instead (exchange.go).
//
// # When a process is initialised, and when it is done
//
// Open MPI's mpirun (4.1.4, and PRRTE's in 5.0.7) and Slurm (22.05) take a process that was
// initialised, and ends without PMIx_Finalize, for one that has failed, although it exits
// with status 0, and kill the others: mpirun 4.1.4 after a second, with status 1 and
// "exited without calling finalize", Slurm at once, with status 137 and "Error handler
// invoked: status = -61". So the process finalizes when its last launcher is closed. Then
// they let it live on, and exit. A process that was never initialised may exit too under
// Slurm; mpirun 4.1.4 ends the job for it if others were initialised before.
//
// A process that initialises libpmix once more is of no use in 4.2.2: it finds nothing of
// what any process has put, not even its own, and leaks 0.15 MiB each time. So a process
// initialises once. A client that opens after it has finalized reaches the other processes
// without the server (see bootstrap/meet), and gets no event of the launcher's end.
package pmix

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
	"github.com/ferrympi/ferry/internal/trustedfile"
)

// component names this bootstrap in errors.
const componentName = "bootstrap pmix"

// Params are the component's parameters; each is bootstrap.pmix.NAME.
type Params struct {
	Library string `param:"library" default:"libpmix.so.2" level:"user" scope:"process" trusted:"true" doc:"libpmix, as a file or a name; a name is searched in PMIX_LIBDIR and PMIX_PREFIX, and then by the dynamic linker"`

	Exchange string `param:"exchange" default:"auto" level:"user" scope:"process" doc:"construction of communicators from groups: meet, over connections between the members; groups, by fences of the members; all, by fences of all processes, which must all call; auto: meet. The same in all processes of a job"`

	Select    string `reads:"bootstrap"`
	Singleton bool   `reads:"bootstrap.local.singleton"`
}

type component struct{}

// Component returns the component. It is a stateless value; the process's part in PMIx
// is not (process.go).
func Component() bootstrap.Component { return component{} }

func (component) Info() framework.Info {
	return framework.Info{
		Kind:     framework.Bootstrap,
		Name:     "pmix",
		Version:  "1.0.0",
		Summary:  "wire-up under mpirun, prun and srun --mpi=pmix, by way of libpmix",
		Priority: 30,
	}
}

func (component) Params() any { return new(Params) }

// Probe finds pmix usable when the environment names a server, and libpmix is there. It
// does not connect. Where PMI-1 names a port as well, nothing tells which of the two
// launchers is the nearer one.
func (component) Probe(ctx context.Context, params any) framework.Verdict {
	p, ok := params.(*Params)
	if !ok {
		return framework.Unavailable(fmt.Sprintf("parameters are %T, not %T", params, p), "")
	}
	if p.Singleton {
		return launched.SingletonVerdict()
	}
	if err := launched.CheckPMIx(os.Environ()); err != nil {
		return framework.Unavailable(err.Error(), "start it with mpirun, prun or srun --mpi=pmix")
	}
	switch {
	case p.Select == "pmix":
	case launched.IsStartedBySlurm(os.LookupEnv):
		if !launched.IsSlurmPMIx(os.LookupEnv) {
			return launched.OuterLauncherVerdict(launched.PMIxNamespace)
		}
	case launched.HasOnlyPMIPort(os.LookupEnv):
		return launched.AmbiguousVerdict(launched.PMIPort, launched.PMIxNamespace, "pmix")
	}
	if err := pmixc.Built(); err != nil {
		return framework.Verdict{
			Status: framework.StatusNotBuilt, Reason: err.Error(),
			Hint: "build with a C compiler and CGO_ENABLED=1 (Debian: gcc, libc6-dev)",
		}
	}
	if _, err := load(ctx, p.Library); err != nil {
		return framework.Unavailable(err.Error(), hintFor(err))
	}
	return framework.Usable()
}

// hintFor says what helps against an error of load.
func hintFor(err error) string {
	if errors.Is(err, framework.ErrUnsupported) {
		return fmt.Sprintf("install libpmix %v or newer, or set bootstrap.pmix.library to its file", pmixc.OldestVersion)
	}
	return trustedfile.Remedy(err, "install libpmix (Debian: libpmix2), or set bootstrap.pmix.library to its file")
}

// Open connects to the server, or finds that this process is done with it already.
// Errors: ErrConfig for parameters or an environment that make no sense; ErrUnsupported
// for a library that is too old; ErrTransport when the server can't be reached, does not
// answer, or says what makes no sense.
func (component) Open(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error) {
	p, ok := env.Params.(*Params)
	if !ok {
		return nil, fmt.Errorf("%w: %s: parameters are %T, not %T", framework.ErrConfig, componentName, env.Params, p)
	}
	l, err := openLauncher(ctx, p)
	if err != nil {
		return nil, err
	}
	if env.Logger != nil {
		l.log = env.Logger
	}
	c, err := openClient(ctx, env, l, p.Exchange)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return c, nil
}
