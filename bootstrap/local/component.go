// Package local is the bootstrap of `ferry run`. The launcher is the server, on a Unix socket of
// this node (bootstrap/local/server). A process without a launcher is a singleton, which is alone
// in its job and served in memory.
//
// The environment identifies the process. So opening a session costs one connection and one round
// trip, which proves that the process belongs to the job. The protocol
// requires no more than a net.Conn.
package local

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// Params are the component's parameters. The launcher sets them through the
// environment (FERRY_BOOTSTRAP_LOCAL_ADDRESS and so on).
type Params struct {
	Address   string `param:"address" default:"" level:"developer" scope:"process" doc:"the launcher's socket, unix:/path; ferry run sets it; empty: the process is a singleton"`
	Token     string `param:"token" default:"" level:"developer" scope:"process" secret:"true" doc:"the job's secret, by which a process proves that it belongs to it"`
	Namespace string `param:"namespace" default:"" level:"developer" scope:"process" doc:"the job's name"`
	Rank      int    `param:"rank" default:"0" level:"developer" scope:"process" doc:"this process's rank in the job"`
	First     int    `param:"first" default:"0" level:"developer" scope:"process" doc:"lowest rank in mpi://WORLD; above 0 in a process that was added to a running job"`
	Size      int    `param:"size" default:"1" level:"developer" scope:"process" doc:"processes in mpi://WORLD"`
	Most      int    `param:"most" default:"0" level:"developer" scope:"process" doc:"largest number of processes that the job may have at a time; 0: size"`
	Singleton bool   `param:"singleton" default:"false" level:"user" scope:"process" doc:"this process runs by itself, although a launcher's variables are set"`

	Select string `reads:"bootstrap"`
}

type component struct{}

// Component returns the component. It is a stateless value.
func Component() bootstrap.Component { return component{} }

func (component) Info() framework.Info {
	return framework.Info{
		Kind:     framework.Bootstrap,
		Name:     "local",
		Version:  "1.0.0",
		Summary:  "wire-up through ferry run on one node, or none for a program that runs by itself",
		Priority: 10, // Below every bootstrap that finds its own launcher.
	}
}

func (component) Params() any { return new(Params) }

// Probe reports local usable if a launcher of ferry's is named and none is nearer, and otherwise if
// there is no other launcher. Processes of mpiexec are never singletons unless the user selects
// that.
func (component) Probe(_ context.Context, params any) framework.Verdict {
	p, ok := params.(*Params)
	if !ok {
		return framework.Unavailable(fmt.Sprintf("parameters are %T, not %T", params, p), "")
	}
	if p.Singleton {
		return framework.Usable()
	}
	if p.Address != "" {
		if name := launched.RankVariable(os.LookupEnv); name != "" && p.Select != "local" {
			return framework.Unavailable(
				fmt.Sprintf("a rank of ferry run (%s) started another launcher, which started this process (%s is set), and local does not speak to it", wire.EnvAddress, name),
				"FERRY_BOOTSTRAP=local if it is a rank of ferry run after all; "+launched.LaunchHint(name))
		}
		return framework.Usable()
	}
	if name := launched.MultiRankVariable(os.LookupEnv); name != "" {
		return framework.Unavailable(
			"another launcher started this process ("+name+" is set), and local does not speak to it", launched.LaunchHint(name))
	}
	return framework.Usable()
}

// Open connects to the launcher. It returns a singleton if none is named, or the user selects that.
// Errors are ErrConfig for an invalid environment, and ErrTransport if the launcher cannot be
// reached or refuses.
func (component) Open(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error) {
	p, ok := env.Params.(*Params)
	if !ok {
		return nil, fmt.Errorf("%w: bootstrap local: parameters are %T, not %T", framework.ErrConfig, env.Params, p)
	}
	if p.Address == "" || p.Singleton {
		return newSingleton(env), nil
	}
	id, err := p.identity()
	if err != nil {
		return nil, fmt.Errorf("%w: bootstrap local: %w", framework.ErrConfig, err)
	}
	path, _ := strings.CutPrefix(p.Address, "unix:")
	conn, err := dial(ctx, path)
	if err != nil {
		return nil, &framework.TransportError{Component: "bootstrap local", Peer: "the launcher at " + p.Address, Op: "connect", Err: err}
	}
	c, err := connect(ctx, conn, id, p.Token, env)
	if err != nil {
		return nil, err // A nil client in an interface would differ from nil.
	}
	return c, nil
}

// identity reads the parameters that identify the process. The launcher adds the nodes (learnNodes).
func (p *Params) identity() (bootstrap.Identity, error) {
	var id bootstrap.Identity
	path, ok := strings.CutPrefix(p.Address, "unix:")
	switch {
	case !ok || path == "":
		return id, fmt.Errorf("%s is %q: want unix:/path", wire.EnvAddress, p.Address)
	case p.Namespace == "":
		return id, fmt.Errorf("%s is empty, but %s is set", wire.EnvNamespace, wire.EnvAddress)
	case p.Size < 1 || p.Size > wire.MaxElements:
		return id, fmt.Errorf("%s is %d: want 1 to %d", wire.EnvSize, p.Size, wire.MaxElements)
	case p.First < 0 || p.First > wire.MaxElements-p.Size:
		return id, fmt.Errorf("%s is %d: want 0 to %d", wire.EnvFirst, p.First, wire.MaxElements-p.Size)
	case p.Rank < p.First || p.Rank >= p.First+p.Size:
		return id, fmt.Errorf("%s is %d, but the job has %d processes from rank %d on", wire.EnvRank, p.Rank, p.Size, p.First)
	case p.Most < 0 || p.Most > wire.MaxElements:
		return id, fmt.Errorf("%s is %d: want 0 to %d", wire.EnvMost, p.Most, wire.MaxElements)
	}
	return bootstrap.Identity{
		Proc:      framework.Proc{Namespace: p.Namespace, Rank: uint32(p.Rank)},
		FirstRank: p.First,
		Size:      p.Size,
		MaxSize:   cmp.Or(p.Most, p.Size),
		JobDir:    filepath.Dir(path),
	}, nil
}
