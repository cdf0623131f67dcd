// Package host runs transports in separate processes. Each entry is a BTL component, next to those that are compiled in:
//
//	registry := components.Standard()
//	err := host.Load(registry, config.Options{}) // Entries of configuration files. See also host.Register.
//	session, err := mpi.OpenSession(ctx, mpi.WithRegistry(registry))
//
// Open of the component starts the plugin as a child of this process, which ends with it. Each process has its own plugin. Only BTLs can be
// plugins, because frames are opaque and can cross a ring. An MTL needs the buffers of the user, which another process cannot access.
//
// It stands on the contract btl and on the protocol of package plugin. It has no knowledge of transports.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
)

// Entry describes a plugin. Kind is BTL. Command is an absolute path with arguments. SHA256 is the hash of the file in hexadecimal, or empty for any
// file.
type Entry = config.Plugin

// Load adds a component for each plugin in the user file and the site file, under the key plugins. opt has the locations of the files. The zero value
// is right for most programs.
func Load(r *framework.Registry, opt config.Options) error {
	entries, err := config.Plugins(opt)
	if err != nil {
		return err
	}
	return Register(r, entries...)
}

// params are the parameters of each plugin. NAME in btl.NAME.start_timeout is that of the entry.
type params struct {
	StartTimeout  time.Duration `param:"start_timeout" default:"20s" min:"10ms" max:"10m" level:"user" scope:"process" doc:"Time limit for the plugin to open its transport."`
	HealthTimeout time.Duration `param:"health_timeout" default:"5s" min:"100ms" max:"10m" level:"user" scope:"process" doc:"Time without a reply after which the plugin counts as hung, and is killed."`
	OpenTimeout   time.Duration `param:"open_timeout" default:"1m" min:"10ms" max:"1h" level:"user" scope:"process" doc:"Time limit for the plugin to open a path to a peer, or to report that it cannot. After that, messages use the next transport."`
	MaxRestarts   int           `param:"restarts" default:"3" min:"0" max:"1000000" level:"user" scope:"process" doc:"Number of restarts of a plugin that has ended, after pauses that grow from 50 ms to 10 s. Communicators created afterwards use it."`
	RingCells     int           `param:"ring_cells" default:"32768" min:"64" max:"1048576" level:"tuner" scope:"process" doc:"Cells of 64 bytes in each of the two rings between the process and its plugin; a power of two. Unused cells need no memory. The longest efficient frame is a sixteenth of the cells."`
}

// Check implements framework.Checker.
func (p *params) Check() (param string, err error) {
	if p.RingCells&(p.RingCells-1) != 0 {
		return "ring_cells", fmt.Errorf("%d is not a power of two", p.RingCells)
	}
	return "", nil
}

// Register adds a component for each entry. It returns ErrConfig for an invalid entry, and for the name of another component. It registers nothing
// then.
func Register(r *framework.Registry, entries ...Entry) error {
	seen := map[string]string{}
	for _, e := range entries {
		taken, _ := r.Lookup(e.Kind, e.Name)
		if p, ok := framework.As[config.Plugged](taken); ok {
			seen[e.Name] = cmp.Or(p.Plugin().File, "the program")
		}
		var why string
		err := e.Check()
		switch {
		case err != nil:
			why = err.Error()
		case seen[e.Name] != "":
			why = "there are two plugins of that name, the other one in " + seen[e.Name]
		case taken != nil:
			why = "a component of that name is compiled in; name the plugin otherwise, or take its entry out"
		}
		if why != "" {
			return fmt.Errorf("%w: plugin %s %s of %s: %s", framework.ErrConfig, e.Kind, e.Name, cmp.Or(e.File, "the program"), why)
		}
		seen[e.Name] = cmp.Or(e.File, "the program")
	}
	for _, e := range entries {
		r.Register(Component(e))
	}
	return nil
}

// Component returns the component of one entry, for code that is generated from a components.yaml. Probe reports the errors of Entry.Check.
func Component(e Entry) btl.Component { return component{e} }

type component struct{ Entry }

func (c component) Info() framework.Info {
	summary := "plugin"
	if len(c.Command) > 0 { // Otherwise Probe reports the error.
		summary += " " + c.Command[0]
	}
	return framework.Info{Kind: framework.BTL, Name: c.Name, Version: "1.0.0", Summary: summary, Priority: c.Priority}
}

func (component) Params() any { return new(params) }

// Plugin implements config.Plugged.
func (c component) Plugin() config.Plugin { return c.Entry }

// Probe checks the file. It starts nothing.
func (c component) Probe(context.Context, any) framework.Verdict {
	if err := c.Check(); err != nil {
		return framework.Unavailable(err.Error(), "see docs/troubleshooting.md on plugins")
	}
	f, err := c.open()
	if r, ok := errors.AsType[*refusal](err); ok {
		return framework.Unavailable(err.Error(), r.remedy)
	} else if err != nil {
		return framework.Unavailable(err.Error(), "see docs/troubleshooting.md on plugins")
	}
	f.Close()
	return framework.Usable()
}

// Open starts the plugin, and blocks until its transport is open.
func (c component) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	p := env.Params.(*params)
	m := &module{env: env, component: c, params: p, name: "btl " + c.Name, restartPolicy: restartPolicy{maxRestarts: p.MaxRestarts}}
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	var err error
	if m.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	first, err := c.start(ctx, env, p, m.wakeFD)
	if err != nil {
		unix.Close(m.wakeFD)
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	m.firstOffer = first.offer
	m.attach(first)
	m.enableRestarts()
	return m, nil
}

// logger returns the logger for the output of the plugin.
func (c component) logger(env btl.Env) *slog.Logger { return env.Logger.With("plugin", c.Name) }
