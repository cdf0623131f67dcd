// Package host lets a program use transports that run as processes of their own. Each entry
// becomes a BTL component, beside those that are compiled in:
//
//	registry := components.Standard()
//	err := host.Load(registry, config.Options{}) // what files name; or host.Register
//	session, err := mpi.OpenSession(ctx, mpi.WithRegistry(registry))
//
// Opening the component starts the plugin, one for each process, which is its child and ends
// with it. Only BTLs can be plugins: what they move is opaque to them and can cross a ring,
// while an MTL works on users' buffers, which another process can't see.
//
// It stands on the contract btl and on the protocol of package plugin, and knows no
// transport.
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

// Entry names a plugin. Kind is BTL; Command is an absolute path, and arguments; SHA256 is of
// the file, in hexadecimal, and empty for any contents.
type Entry = config.Plugin

// Load adds a component for each plugin that the user file and the site file name under
// plugins. opt says where they are; the zero value is right for most programs.
func Load(r *framework.Registry, opt config.Options) error {
	entries, err := config.Plugins(opt)
	if err != nil {
		return err
	}
	return Register(r, entries...)
}

// params are those of each plugin; NAME in btl.NAME.start_timeout is the entry's.
type params struct {
	Start    time.Duration `param:"start_timeout" default:"20s" min:"10ms" max:"10m" level:"user" scope:"process" doc:"How long the plugin may take until its transport is open."`
	Health   time.Duration `param:"health_timeout" default:"5s" min:"100ms" max:"10m" level:"user" scope:"process" doc:"How long the plugin may not answer before it counts as hung, and is killed."`
	Opening  time.Duration `param:"open_timeout" default:"1m" min:"10ms" max:"1h" level:"user" scope:"process" doc:"How long the plugin may take to open a path to a peer, or to say that it can't. Then messages go by the next transport."`
	Restarts int           `param:"restarts" default:"3" min:"0" max:"1000000" level:"user" scope:"process" doc:"How often a plugin that has ended is started again, after pauses that grow from 50 ms to 10 s. Communicators made afterwards use it."`
	Ring     int           `param:"ring_cells" default:"32768" min:"64" max:"1048576" level:"tuner" scope:"process" doc:"Cells of 64 bytes of each of the two rings between the process and its plugin; a power of two. Of those that no message has used there is no memory. Frames are best not longer than a sixteenth of them."`
}

// Check implements framework.Checker.
func (p *params) Check() (param string, err error) {
	if p.Ring&(p.Ring-1) != 0 {
		return "ring_cells", fmt.Errorf("%d is not a power of two", p.Ring)
	}
	return "", nil
}

// Register adds a component for each entry. An entry that makes no sense, or has the name of
// another component, is ErrConfig; nothing is registered then.
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

// Component returns the component of one entry, as it stands in a components.yaml. What is
// wrong with an entry, Entry.Check says; Probe says it too.
func Component(e Entry) btl.Component { return component{e} }

type component struct{ Entry }

func (c component) Info() framework.Info {
	summary := "plugin"
	if len(c.Command) > 0 { // else Probe says so
		summary += " " + c.Command[0]
	}
	return framework.Info{Kind: framework.BTL, Name: c.Name, Version: "1.0.0", Summary: summary, Priority: c.Priority}
}

func (component) Params() any { return new(params) }

// Plugin implements config.Plugged.
func (c component) Plugin() config.Plugin { return c.Entry }

// Probe looks at the file, and starts nothing.
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

// Open starts the plugin, and waits until its transport is open.
func (c component) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	p := env.Params.(*params)
	m := &module{env: env, component: c, params: p, name: "btl " + c.Name, life: life{restarts: p.Restarts}}
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	var err error
	if m.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	first, err := c.start(ctx, env, p, m.wake)
	if err != nil {
		unix.Close(m.wake)
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	m.caps = first.offer
	m.attach(first)
	m.keep()
	return m, nil
}

// logger of what the plugin prints.
func (c component) logger(env btl.Env) *slog.Logger { return env.Logger.With("plugin", c.Name) }
