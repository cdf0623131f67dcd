// Package pmix is the bootstrap under launchers with a PMIx server, which are Open MPI's mpirun,
// PRRTE's prun, and Slurm's srun --mpi=pmix. PMIx provides the identity of the process and an
// address book. bootstrap/mesh implements the rest, because servers differ in everything else. Most
// have no groups, report no deaths, and complete fences with success although a dead process has
// not entered them. Slurm's has no name service either.
//
// libpmix is loaded at run time (internal/pmixc). The parameter exchange selects fences for
// communicators (exchange.go).
//
// # Initialization and finalization
//
// Open MPI's mpirun (4.1.4, and PRRTE's in 5.0.7) and Slurm (22.05) take an initialized process
// that ends without PMIx_Finalize for a failed one, although it exits with status 0, and kill the
// others. mpirun 4.1.4 does so after a second, with status 1 and "exited without calling finalize",
// and Slurm at once, with status 137 and "Error handler invoked: status = -61". So the process
// finalizes when its last launcher is closed. It may then continue, and exit. Under Slurm a process
// that was never initialized may exit too. mpirun 4.1.4 ends the job at its exit if others were
// initialized before.
//
// In 4.2.2 a process that initializes libpmix again finds no entries of any process, not even its
// own, and leaks 0.15 MiB each time. So a process initializes once. A client that opens after
// finalization reaches the other processes without the server (bootstrap/mesh), and receives no
// event of the launcher's end.
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

// componentName is the name of this bootstrap in errors.
const componentName = "bootstrap pmix"

// Params are the component's parameters, each as bootstrap.pmix.NAME.
type Params struct {
	Library string `param:"library" default:"libpmix.so.2" level:"user" scope:"process" trusted:"true" doc:"libpmix, as a file or a name; a name is searched in PMIX_LIBDIR and PMIX_PREFIX, and then by the dynamic linker"`

	Exchange string `param:"exchange" default:"auto" level:"user" scope:"process" doc:"construction of communicators from groups: meet, over connections between the members; groups, by fences of the members; all, by fences of all processes, which must all call; auto: meet. The same in all processes of a job"`

	HandOver string `param:"hand_over" default:"" level:"developer" scope:"process" secret:"true" doc:"identity of a process that a running job has added; the job sets it"`

	Select    string `reads:"bootstrap"`
	Singleton bool   `reads:"bootstrap.local.singleton"`
}

type component struct{}

// Component returns the component. It is a stateless value, while the state of the process is in
// process.go.
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

// Probe reports pmix usable if the environment names a server and libpmix can be loaded. It does
// not connect. Beside a port of PMI-1 it is unknown which launcher is nearer.
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

// hintFor returns the remedy for an error of load.
func hintFor(err error) string {
	if errors.Is(err, framework.ErrUnsupported) {
		return fmt.Sprintf("install libpmix %v or newer, or set bootstrap.pmix.library to its file", pmixc.OldestVersion)
	}
	return trustedfile.Remedy(err, "install libpmix (Debian: libpmix2), or set bootstrap.pmix.library to its file")
}

// Open connects to the server unless this process has finalized. Errors are ErrConfig for invalid
// parameters or an invalid environment, ErrUnsupported for a library that is too old, and
// ErrTransport if the server cannot be reached, does not answer, or violates the protocol.
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
