// Package ofi is the MTL over libfabric, the library of the OpenFabrics Interfaces. It uses any provider and network
// interface of the machine that supports reliable tagged messages. The provider matches them.
//
// Open orders the providers by their properties and tests the best one. A provider that does not deliver, match, probe and cancel
// correctly within a deadline is replaced by the next best, and the reason is recorded. docs/libfabric.md
// describes this.
//
// The package uses internal/libfabric, and contains no unsafe code.
package ofi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

// component is the name of this MTL in errors.
const component = "mtl ofi"

// Component returns the component for the registry.
func Component() mtl.Component { return ofi{} }

// ofi implements mtl.Component and mtl.Surveyor.
type ofi struct{}

// params are the parameters mtl.ofi.NAME.
type params struct {
	ProviderInclude []string `param:"provider_include" default:"" level:"user" scope:"process" doc:"Permitted providers in order of preference, such as cxi or tcp;ofi_rxm; verbs selects verbs;ofi_rxm if verbs itself is not available. Empty: all but the excluded ones, best first. All processes need the same."`
	ProviderExclude []string `param:"provider_exclude" default:"shm,sm2,sockets,tcp,udp,net" level:"user" scope:"process" doc:"Providers that are not used. Ignored if provider_include is set."`
	DomainInclude   []string `param:"domain_include" default:"" level:"user" scope:"process" doc:"Permitted domains (network interfaces), such as eth0 or mlx5_*; empty: all but the excluded ones, nearest first."`
	DomainExclude   []string `param:"domain_exclude" default:"docker*,virbr*,br-*,veth*" level:"user" scope:"process" doc:"Domains that are not used. Ignored if domain_include is set."`

	LibraryFile     string        `param:"library" default:"libfabric.so.1" level:"user" scope:"process" trusted:"true" doc:"File of the library, or a name that the dynamic linker resolves."`
	TagLayout       string        `param:"layout" default:"auto" level:"tuner" scope:"process" doc:"Encoding of the sender of a message: data (in completion data, beside the tag), packed (in the tag), or packed with the bits of id/source/tag, such as 22/18/23; auto: data if the provider supports it and has no known defect with it. All processes need the same."`
	WaitMode        string        `param:"wait" default:"auto" choices:"auto,fd,poll" level:"tuner" scope:"process" doc:"How an idle process waits for messages: on a descriptor (fd) or by polling every millisecond (poll); auto: fd if ranks outnumber processors and the provider supports it, because it slows down busy processes."`
	SelftestTimeout time.Duration `param:"selftest_timeout" default:"10s" min:"1ms" level:"tuner" scope:"process" doc:"Time limit for libfabric to list its providers, and for each provider to open and to pass its test."`
	SelftestExtent  string        `param:"selftest" default:"short" choices:"short,long" level:"tuner" scope:"process" doc:"Extent of the test of a provider when it opens; ferry matrix uses long."`
	ConnectTimeout  time.Duration `param:"connect_timeout" default:"60s" min:"100ms" level:"tuner" scope:"process" doc:"Time after which messages for a peer fail if it accepts none and none is in flight, because its session has ended or its process is stopped."`
	WarnsOnFailure  bool          `param:"warn" default:"true" level:"user" scope:"process" doc:"Whether rank 0 reports on standard error that a provider failed its test or is refused for a defect, and its replacement."`
	SysfsDir        string        `param:"sysfs" default:"/sys" level:"developer" scope:"process" doc:"Folder in which the system lists its devices. Providers with a device come first."`
	ControlBuffers  int           `param:"control_buffers" default:"64" min:"1" max:"65536" level:"developer" scope:"process" doc:"Number of receives for control messages that are always posted."`
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

// Probe reports whether libfabric is available.
func (ofi) Probe(ctx context.Context, given any) framework.Verdict {
	p := given.(*params)
	v := p.file().Available(ctx, libfabric.Built(), func() error {
		_, err := loadLibrary(ctx, p)
		return err
	}, "install libfabric (Debian: libfabric1), or set mtl.ofi.library to its file")
	if v.Status != framework.StatusUsable {
		return v
	}
	v.Network = newTopology(p.SysfsDir).network()
	v.Suits = trial.IsLibfabricDevice(v.Network)
	return v
}

func (ofi) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	p := env.Params.(*params)
	process, _ := env.Identity.Proc.Process() // The job's namespace, for jobKeys.
	environment := setEnvironment(process.Namespace)
	o, err := surveyProviders(ctx, p, resolveName)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w%s", err, userNote())
	}
	if err := checkNames(p, o.providerNames); err != nil {
		o.freeInfos()
		return nil, fmt.Errorf("%s: %w", component, err)
	}
	given := p
	p = o.resolvedParams
	j := jobTraits{isOneNode: env.Identity.LocalSize == env.Identity.Size, localRank: env.Identity.FirstRank + env.Identity.LocalRank, libraryVersion: o.lib.Version()}
	all := choose(o.infos(), p, j, newTopology(p.SysfsDir))
	inUse := false // A hanging call still uses the lists.
	defer func() {
		if !inUse {
			o.freeInfos()
		}
	}()
	hang := map[string]string{} // Candidates whose calls hang, by provider.
	for i := range all {
		c := &all[i]
		if other := hang[c.providerInfo.Provider]; other != "" && c.refusal == "" {
			c.refusal = other + " hangs"
		}
		if env.IsUnrequested && !c.hasDevice && c.refusal == "" {
			c.refusal = "it has no network hardware, and no MTL was requested"
		}
		if c.refusal != "" {
			continue
		}
		m, err := openCandidate(ctx, env, p, o.lib, c)
		if errors.Is(err, trial.ErrHangs) {
			inUse = true
			hang[c.providerInfo.Provider] = c.providerInfo.String()
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			c.refusal, c.hasFailed = err.Error(), true
			env.Logger.Info("mtl ofi: provider refused", "provider", c.providerInfo.String(), "reason", c.refusal)
			continue
		}
		if what := describeMissed(all, c, p.ProviderInclude); what != "" && p.WarnsOnFailure && env.Identity.Proc.Rank == 0 {
			base.Warn(component, c.providerInfo.Provider, what+userNote())
		}
		m.describeChoice(o, all, i, environment)
		return awaitable(m)
	}
	if what := describeMissed(all, nil, p.ProviderInclude); env.IsUnrequested && what != "" && p.WarnsOnFailure && env.Identity.Proc.Rank == 0 {
		base.Warn(component, "", what+userNote())
	}
	return nil, fmt.Errorf("%w%s", o.noCandidateError(ctx, all, given), userNote())
}

// describeChoice completes the description of the module of the candidate all[chosen]. environment are the variables that ferry has set.
func (m *module) describeChoice(o *survey, all []candidate, chosen int, environment []string) {
	d := &m.Description
	d.Notes = append(o.resolutionNotes, d.Notes...)
	d.Notes = append(d.Notes, "libfabric's environment has "+strings.Join(environment, ", "))
	if has := userVariables(); len(has) > 0 {
		d.Notes = append(d.Notes, "the user has set "+strings.Join(has, ", "))
	}
	d.Candidates = append(toCandidates(all), o.unavailable(o.resolvedParams.ProviderInclude)...)
	for i := range all {
		switch c := &d.Candidates[i]; {
		case i == chosen:
			c.Chosen = true
		case c.Reason == "" || all[i].refusal == "":
			c.Reason = strings.TrimPrefix(c.Reason+"; "+all[chosen].providerInfo.String()+" is preferred", "; ")
		}
	}
}

// awaitable returns m with the way in which the engine waits for it.
func awaitable(m *module) (mtl.Module, error) {
	if m.ep.FD() < 0 {
		return polledModule{m}, nil
	}
	d, err := newDescriptorModule(m)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: no descriptor to wait on: %w", component, err)
	}
	return d, nil
}
