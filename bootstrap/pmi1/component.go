// Package pmi1 is the bootstrap under launchers that serve PMI-1, which are both generations of
// MPICH's mpiexec.hydra and its descendants, and Slurm's srun --mpi=pmi2. The server provides the
// identity of the process, and a name service as an address book. bootstrap/mesh implements the
// rest of bootstrap.Client between the members.
//
// A server accepts one connection of a process. So the clients of a process share it, and the last
// one that closes ends it. Later clients reach the other processes without the server
// (bootstrap/mesh). The name service for programs, Abort and exchanges by barriers then fail with
// mesh.ErrLauncherLeft.
//
// If a process that has opened a client ends without closing it, Hydra kills the others, although
// mpiexec may return 0, and Slurm does nothing. A program that leaves early closes its sessions
// first.
//
// The launcher decides which processes may read the address book. With mpiexec's option -nameserver
// other jobs use the same server, which keeps names for longer than a job.
//
// The parameter exchange selects barriers of the server for communicators (exchange.go).
package pmi1

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/framework"
)

// Params are the component's parameters. By default the environment names the server.
type Params struct {
	Port string `param:"port" default:"" level:"developer" scope:"process" doc:"PMI-1 server as host:port; empty: from PMI_FD or PMI_PORT"`
	ID   int    `param:"id" default:"0" min:"0" level:"developer" scope:"process" doc:"number of this process at that server, as in PMI_ID"`

	Spawned bool `param:"spawned" default:"false" level:"developer" scope:"process" doc:"another process has started this one by a spawn of that server, as in PMI_SPAWNED"`

	Exchange string `param:"exchange" default:"auto" level:"user" scope:"process" doc:"construction of communicators from groups: meet, over connections between the members; groups, by barriers of the launcher (PMI 1.2); all, by barriers of all processes, which must all call; auto: meet. The same in all processes of a job"`

	Select    string `reads:"bootstrap"`
	Singleton bool   `reads:"bootstrap.local.singleton"`
}

type component struct{}

// Component returns the component. It is a stateless value.
func Component() bootstrap.Component { return component{} }

func (component) Info() framework.Info {
	return framework.Info{
		Kind:     framework.Bootstrap,
		Name:     "pmi1",
		Version:  "1.0.0",
		Summary:  "wire-up under mpiexec.hydra and srun --mpi=pmi2, by PMI-1",
		Priority: 35, // Above pmix; see Probe.
	}
}

func (component) Params() any { return new(Params) }

// hint is the remedy if there is no server.
const hint = "start it with mpiexec.hydra or srun --mpi=pmi2"

// Probe reports pmi1 usable if the environment names a server, and a descriptor that it names was
// inherited. It sends nothing. A descriptor belongs to the nearest launcher even beside PMIx,
// because launchers with PMIx close those of others. So pmi1 is then usable and preferred. A port
// is no such sign.
func (component) Probe(_ context.Context, params any) framework.Verdict {
	p, ok := params.(*Params)
	if !ok {
		return framework.Unavailable(fmt.Sprintf("parameters are %T, not %T", params, p), "")
	}
	if p.Singleton {
		return launched.SingletonVerdict()
	}
	at, err := findServer(p, os.LookupEnv)
	if err == nil && at.fd >= 0 && !isKnown(at) {
		err = checkInherited(at.fd)
	}
	if err == nil && p.Port == "" && !isKnown(at) {
		if v := nearestVerdict(p, at); v.Status != framework.StatusUsable {
			return v
		}
	}
	if err != nil {
		return framework.Unavailable(err.Error(), hint)
	}
	return framework.Usable()
}

// nearestVerdict is usable unless another launcher, inside that of the server, has or may have
// started this process.
func nearestVerdict(p *Params, at serverAddress) framework.Verdict {
	_, port := os.LookupEnv(envPort)
	switch {
	case at.fd >= 0 && port && !isFromParent(at.fd):
		return launched.AmbiguousVerdict(envFD, envPort, "")
	case at.fd >= 0 || p.Select == "pmi1":
	case launched.IsStartedBySlurm(os.LookupEnv): // srun passes descriptors.
		return launched.OuterLauncherVerdict(envPort)
	case launched.CheckPMIx(os.Environ()) == nil:
		return launched.AmbiguousVerdict(envPort, launched.PMIxNamespace, "pmi1")
	}
	return framework.Usable()
}

// Open registers the process with its server unless that is done, and returns a client. Errors are
// ErrConfig for an invalid environment, ErrTransport if the server cannot be reached or violates
// the protocol, and ErrUnsupported for an exchange that the server lacks.
func (component) Open(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error) {
	l, err := openLauncher(ctx, env)
	if err != nil {
		return nil, err
	}
	c, err := openClient(ctx, env, l, env.Params.(*Params).Exchange) // openLauncher has checked the type.
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return c, nil
}

func openLauncher(ctx context.Context, env bootstrap.Env) (*launcher, error) {
	p, ok := env.Params.(*Params)
	if !ok {
		return nil, fmt.Errorf("%w: bootstrap pmi1: parameters are %T, not %T", framework.ErrConfig, env.Params, p)
	}
	at, err := findServer(p, os.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("%w: bootstrap pmi1: %w", framework.ErrConfig, err)
	}
	proc, err := acquire(ctx, at, env)
	if err != nil {
		return nil, err
	}
	return &launcher{proc: proc}, nil
}
