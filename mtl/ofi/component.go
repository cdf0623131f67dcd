// Package ofi is the MTL over libfabric, the library of the OpenFabrics
// Interfaces: it uses whatever provider and network interface of the machine can
// carry reliable tagged messages, and leaves matching to it.
//
// Providers are chosen by what they are, then tested: a module whose provider does
// not deliver, match, probe and cancel as it should within a deadline is left, with
// the reason, for the next best. docs/libfabric.md describes them.
//
// It stands on internal/libfabric, and holds no unsafe code itself.
package ofi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/stderr"
	"github.com/ferrympi/ferry/internal/trustedfile"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// component names this MTL in errors.
const component = "mtl ofi"

// Component returns the component for the registry.
func Component() mtl.Component { return ofi{} }

// ofi is an mtl.Component, and an mtl.Surveyor.
type ofi struct{}

// params are the component's parameters; each is mtl.ofi.NAME.
type params struct {
	ProviderInclude []string `param:"provider_include" default:"" level:"user" scope:"process" doc:"Providers that may be used, in order of preference, such as cxi or tcp;ofi_rxm; verbs means verbs;ofi_rxm where that is what there is. Empty: all but those excluded, best first. All processes need the same."`
	ProviderExclude []string `param:"provider_exclude" default:"shm,sm2,sockets,tcp,udp,net" level:"user" scope:"process" doc:"Providers that are not used, unless provider_include names some."`
	DomainInclude   []string `param:"domain_include" default:"" level:"user" scope:"process" doc:"Domains (network interfaces) that may be used, such as eth0 or mlx5_*; empty: all but those excluded, nearest first."`
	DomainExclude   []string `param:"domain_exclude" default:"docker*,virbr*,br-*,veth*" level:"user" scope:"process" doc:"Domains that are not used, unless domain_include names some."`

	Library  string        `param:"library" default:"libfabric.so.1" level:"user" scope:"process" trusted:"true" doc:"The library: a file, or a name that the dynamic linker looks for."`
	Layout   string        `param:"layout" default:"auto" level:"tuner" scope:"process" doc:"Where the sender of a message stands: data (in completion data, beside the tag), packed (in the tag), or packed with the bits of id/source/tag, such as 22/18/23; auto: data where the provider can, and nothing known about it speaks against that. All processes need the same."`
	Wait     string        `param:"wait" default:"auto" choices:"auto,fd,poll" level:"tuner" scope:"process" doc:"How an idle process hears of messages: through a descriptor (fd) or by polling every millisecond (poll); auto: fd where ranks outnumber processors and the provider can, because it slows down those that are not idle."`
	Deadline time.Duration `param:"selftest_timeout" default:"10s" min:"1ms" level:"tuner" scope:"process" doc:"How long libfabric may take to list its providers, and each provider to open and to pass its test."`
	Selftest string        `param:"selftest" default:"short" choices:"short,long" level:"tuner" scope:"process" doc:"How thoroughly a provider is tested when it opens; ferry matrix has the long form."`
	Connect  time.Duration `param:"connect_timeout" default:"60s" min:"100ms" level:"tuner" scope:"process" doc:"How long messages for a peer wait while it accepts nothing and none is on its way, before they fail: its session is over, or its process is stopped."`
	Warn     bool          `param:"warn" default:"true" level:"user" scope:"process" doc:"Whether rank 0 says on standard error that a provider has failed its test, or is not used for a defect, and what is used in its place."`
	Sysfs    string        `param:"sysfs" default:"/sys" level:"developer" scope:"process" doc:"Where the system shows its devices: providers whose hardware is there come first."`
	Buffers  int           `param:"control_buffers" default:"64" min:"1" max:"65536" level:"developer" scope:"process" doc:"Receives for control messages that are always posted."`
}

func (ofi) Info() framework.Info {
	return framework.Info{
		Kind:     framework.MTL,
		Name:     "ofi",
		Version:  "1.0.0",
		Summary:  "any network that libfabric has a provider for",
		Priority: 20,
	}
}

// Suggest implements framework.Suggester.
func (ofi) Suggest(word string) string {
	const component = "mtl=ofi"
	switch word {
	case "libfabric", "fabric":
		return component
	case "infiniband", "ib", "openib", "rdma", "roce", "verbs":
		return component + " with mtl.ofi.provider_include=verbs"
	case "slingshot":
		return component + " with mtl.ofi.provider_include=cxi"
	case "cxi", "efa", "opx", "psm2", "psm3", "usnic":
		return component + " with mtl.ofi.provider_include=" + word
	case "omnipath", "omni-path":
		return component + " with mtl.ofi.provider_include=opx"
	}
	return ""
}

func (ofi) Params() any { return new(params) }

// Probe says whether libfabric is there. It does not load it if it sees the file:
// that takes longer than all else together that a process does at its start.
func (ofi) Probe(ctx context.Context, p any) framework.Verdict {
	if err := libfabric.Built(); err != nil {
		return framework.Verdict{
			Status: framework.StatusNotBuilt, Reason: err.Error(),
			Hint: "install a C compiler, in Debian gcc and libc6-dev, and build again",
		}
	}
	o := p.(*params)
	isOnDisk, err := trial.OnDisk(ctx, o.Deadline, o.Library)
	if err == nil && !isOnDisk {
		_, err = load(ctx, o)
	}
	if err != nil {
		return framework.Unavailable(err.Error(), trustedfile.Remedy(err, "install libfabric (Debian: libfabric1), or set mtl.ofi.library to its file"))
	}
	v := framework.Usable()
	v.Network = newTopology(o.Sysfs).network()
	v.Suits = trial.OfLibfabric(v.Network)
	return v
}

func (ofi) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	p := env.Params.(*params)
	process, _ := env.Identity.Proc.Process() // Keys are those of the job.
	environment := setEnvironment(process.Namespace)
	o, err := find(ctx, p, meant)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w%s", err, userNote())
	}
	if err := checkNames(p, o.has); err != nil {
		o.free()
		return nil, fmt.Errorf("%s: %w", component, err)
	}
	given := p
	p = o.params
	j := job{oneNode: env.Identity.LocalSize == env.Identity.Size, localRank: env.Identity.First + env.Identity.LocalRank, version: o.lib.Version()}
	all := choose(o.infos(), p, j, newTopology(p.Sysfs))
	inUse := false // an attempt that hangs still uses the lists
	defer func() {
		if !inUse {
			o.free()
		}
	}()
	hang := map[string]string{} // by provider, what did not come back
	for i := range all {
		c := &all[i]
		if other := hang[c.info.Provider]; other != "" && c.refused == "" {
			c.refused = other + " hangs"
		}
		if env.Fabric && !c.device && c.refused == "" {
			c.refused = "it is not the hardware of a network, and nobody asked for an MTL"
		}
		if c.refused != "" {
			continue
		}
		m, err := try(ctx, env, p, o.lib, c)
		if errors.Is(err, trial.ErrHangs) {
			inUse = true
			hang[c.info.Provider] = c.info.String()
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			c.refused, c.failed = err.Error(), true
			env.Logger.Info("mtl ofi: left out", "provider", c.info.String(), "reason", c.refused)
			continue
		}
		if what := missed(all, c, p.ProviderInclude); what != "" && p.Warn && env.Identity.Proc.Rank == 0 {
			warn(c.info.Provider, what)
		}
		m.about.Notes = append(o.notes, m.about.Notes...)
		m.about.Notes = append(m.about.Notes, "libfabric's environment has "+strings.Join(environment, ", "))
		if has := userVariables(); len(has) > 0 {
			m.about.Notes = append(m.about.Notes, "the user has set "+strings.Join(has, ", "))
		}
		m.about.Candidates = append(described(all), o.unavailable(p.ProviderInclude)...)
		for k := range all {
			switch d := &m.about.Candidates[k]; {
			case k == i:
				d.Chosen = true
			case d.Reason == "" || all[k].refused == "":
				d.Reason = strings.TrimPrefix(d.Reason+"; "+c.info.String()+" is preferred", "; ")
			}
		}
		if m.ep.FD() < 0 {
			return polled{m}, nil
		}
		a, err := await(m)
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("%s: no descriptor to await messages with: %w", component, err)
		}
		return a, nil
	}
	if what := missed(all, nil, p.ProviderInclude); env.Fabric && what != "" && p.Warn && env.Identity.Proc.Rank == 0 {
		warn("", what)
	}
	return nil, fmt.Errorf("%w%s", o.nothing(ctx, all, given), userNote())
}

// warned has the providers of which something was said: a program that opens one session
// after the other hears it once, though the others may have failed in another way.
var warned sync.Map

// warn says something on standard error of the provider that is used, once in a process.
func warn(used, what string) {
	if _, said := warned.LoadOrStore(used, true); !said {
		fmt.Fprintf(stderr.Writer{}, "ferry: mtl ofi: %s%s (mtl.ofi.warn=off turns this message off)\n", what, userNote())
	}
}
