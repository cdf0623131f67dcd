// Package pmi1 is the bootstrap under launchers that serve PMI-1: MPICH's mpiexec.hydra
// of either generation, and those that descend from it, and Slurm's srun --mpi=pmi2. It
// takes two things of the server: who this process is, and the name service as an address
// book. Everything else that a bootstrap.Client promises is bootstrap/meet's, between
// the members themselves.
//
// A server talks to a process once. So clients of one process share the conversation,
// and it ends with the last one that closes. A client that opens after that reaches the
// other processes without the server (see bootstrap/meet); the name service for programs, Abort
// and the exchanges by barriers fail with meet.ErrLauncherLeft.
//
// A process that has opened a client and ends without closing it has not said
// goodbye. Hydra then kills the others, and mpiexec may return 0 all the same; Slurm does
// nothing. A program that leaves early closes its sessions first, or means the others
// to end.
//
// Who may read the book is the launcher's to say: with mpiexec's option -nameserver
// it is a server that other jobs use too, and that keeps names for longer than a job.
//
// The parameter exchange has communicators made by the server's barriers instead
// (exchange.go).
//
// It stands on bootstrap/meet and internal/wire, which knows the lines of PMI-1.
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

// Params are the component's parameters. Without them the environment says where the
// server is.
type Params struct {
	Port string `param:"port" default:"" level:"developer" scope:"process" doc:"the PMI-1 server, host:port; empty: what PMI_FD or PMI_PORT says"`
	ID   int    `param:"id" default:"0" min:"0" level:"developer" scope:"process" doc:"this process's number at that server, as PMI_ID has it"`

	Exchange string `param:"exchange" default:"auto" level:"user" scope:"process" doc:"how communicators are made from groups: meet, over connections between the members; groups, by barriers of the launcher (PMI 1.2); all, by barriers of all processes, which must all call; auto: meet. The same in all processes of a job"`

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
		Priority: 35, // above pmix: see Probe
	}
}

func (component) Params() any { return new(Params) }

// hint is how a program comes to have a PMI-1 server.
const hint = "start it with mpiexec.hydra or srun --mpi=pmi2"

// Probe finds pmi1 usable when the environment names a server, and a descriptor that it
// names is one that this process has inherited. It sends nothing.
//
// A descriptor is the nearest launcher's where PMIx is there too: such launchers close what
// they have from others. So pmi1 is usable then, and preferred. A port tells nothing.
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

// nearest is the verdict on whether the launcher of a server is the one that started this
// process, or another one inside that.
func nearestVerdict(p *Params, at serverAddress) framework.Verdict {
	_, port := os.LookupEnv(envPort)
	switch {
	case at.fd >= 0 && port && !isFromParent(at.fd):
		return launched.AmbiguousVerdict(envFD, envPort, "")
	case at.fd >= 0 || p.Select == "pmi1":
	case launched.IsStartedBySlurm(os.LookupEnv): // which gives descriptors
		return launched.OuterLauncherVerdict(envPort)
	case launched.CheckPMIx(os.Environ()) == nil:
		return launched.AmbiguousVerdict(envPort, launched.PMIxNamespace, "pmi1")
	}
	return framework.Usable()
}

// Open makes the process known to its server, unless it is, and returns a client over it.
// Errors: ErrConfig for an environment that makes no sense, ErrTransport when the server
// can't be reached, or says what it should not; ErrUnsupported for an exchange that it has not.
func (component) Open(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error) {
	l, err := openLauncher(ctx, env)
	if err != nil {
		return nil, err
	}
	c, err := openClient(ctx, env, l, env.Params.(*Params).Exchange) // open has looked at the type
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
