// Package pmix is the bootstrap under launchers with a PMIx server: Open MPI's mpirun,
// PRRTE's prun, and Slurm's srun --mpi=pmix. Of PMIx it takes who the process is, and an
// address book; everything else is bootstrap/meet's, because servers differ in all else: most
// have no groups, tell nobody of deaths, and end fences that a dead process has not entered
// with success; Slurm's has no name service either.
//
// libpmix is loaded at run time (internal/pmixc).
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
// initialises once. What opens after it has finalized lives on what was found before, and at
// the end the process looks for all of its node, who may be wanted later. Of the launcher's
// end it hears no more then.
package pmix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// component names this bootstrap in errors.
const component = "bootstrap pmix"

// Params are the component's parameters; each is bootstrap.pmix.NAME.
type Params struct {
	Library string `param:"library" default:"libpmix.so.2" level:"user" scope:"process" doc:"libpmix: a file, or a name that is looked for where PMIX_LIBDIR and PMIX_PREFIX say, and then where the dynamic linker looks"`
}

type pmix struct{}

// Component returns the component. It is a stateless value; the process's part in PMIx
// is not (process.go).
func Component() bootstrap.Component { return pmix{} }

func (pmix) Info() framework.Info {
	return framework.Info{
		Kind:     framework.Bootstrap,
		Name:     "pmix",
		Version:  "1.0.0",
		Summary:  "wire-up under mpirun, prun and srun --mpi=pmix, by way of libpmix",
		Priority: 30,
	}
}

func (pmix) Params() any { return new(Params) }

// Probe finds pmix usable when the environment names a server, and libpmix is there. It
// does not connect.
func (pmix) Probe(_ context.Context, params any) framework.Verdict {
	p, ok := params.(*Params)
	if !ok {
		return framework.Unavailable(fmt.Sprintf("parameters are %T, not %T", params, p), "")
	}
	if err := hinted(os.Environ()); err != nil {
		return framework.Unavailable(err.Error(), "start it with mpirun, prun or srun --mpi=pmix")
	}
	if err := pmixc.Built(); err != nil {
		return framework.Verdict{
			Status: framework.StatusNotBuilt, Reason: err.Error(),
			Hint: "build with a C compiler and CGO_ENABLED=1 (Debian: gcc, libc6-dev)",
		}
	}
	if _, err := load(p.Library); err != nil {
		return framework.Unavailable(err.Error(), hintFor(err))
	}
	return framework.Usable()
}

// hintFor says what helps against an error of load.
func hintFor(err error) string {
	if errors.Is(err, framework.ErrUnsupported) {
		return fmt.Sprintf("install libpmix %v or newer, or set bootstrap.pmix.library to its file", pmixc.Oldest)
	}
	return "install libpmix (Debian: libpmix2), or set bootstrap.pmix.library to its file"
}

// hinted returns nil if the environment names this process and its server. A launcher sets
// several variables of the server's address, one for each generation of the protocol.
func hinted(environ []string) error {
	const namespace, rank, uri = "PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI"
	has := func(prefix string) bool {
		return slices.ContainsFunc(environ, func(e string) bool { return strings.HasPrefix(e, prefix) })
	}
	var missing []string
	for name, prefix := range map[string]string{namespace: namespace + "=", rank: rank + "=", uri + "*": uri} {
		if !has(prefix) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	switch len(missing) {
	case 0:
		return nil
	case 3:
		return errors.New("no PMIx server started this process (PMIX_NAMESPACE is not set)")
	}
	return fmt.Errorf("half of what a PMIx server sets is there: not %s", strings.Join(missing, ", "))
}

// Open connects to the server, or finds that this process is done with it already.
// Errors: ErrConfig for parameters or an environment that make no sense; ErrUnsupported
// for a library that is too old; ErrTransport when the server can't be reached, does not
// answer, or says what makes no sense.
func (pmix) Open(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error) {
	p, ok := env.Params.(*Params)
	if !ok {
		return nil, fmt.Errorf("%w: %s: parameters are %T, not %T", framework.ErrConfig, component, env.Params, p)
	}
	l, err := attach(ctx, p)
	if err != nil {
		return nil, err
	}
	c, err := meeting(ctx, env, l)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return c, nil
}
