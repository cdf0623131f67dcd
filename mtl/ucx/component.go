// Package ucx is the MTL over UCX, the library for clusters with InfiniBand, RoCE and GPUs. UCX matches messages, and chooses
// among the transports of a class.
//
// Open orders the classes of transports by the devices of the machine and tests the best one. A class that does not deliver, match,
// probe and cancel correctly within a deadline is replaced by the next best, and the reason is recorded. docs/ucx.md describes
// this.
//
// The package uses internal/ucp, and contains no unsafe code.
package ucx

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

// component is the name of this MTL in errors.
const component = "mtl ucx"

// Component returns the component for the registry.
func Component() mtl.Component { return ucx{} }

// ucx implements mtl.Component and mtl.Surveyor.
type ucx struct{}

// params are the parameters mtl.ucx.NAME.
type params struct {
	ProviderInclude []string `param:"provider_include" default:"" level:"user" scope:"process" doc:"Permitted classes of transports in order of preference: rc, dc, ud, tcp, shm, cuda. Empty: those of UCX_TLS or, if that is not set, the best class that is not excluded. All processes need the same."`
	ProviderExclude []string `param:"provider_exclude" default:"" level:"user" scope:"process" doc:"Classes that are not used. Ignored if provider_include is set."`
	DeviceInclude   []string `param:"device_include" default:"" level:"user" scope:"process" doc:"Permitted devices, such as mlx5_0:1 or eth*; empty: those of UCX_NET_DEVICES or, if that is not set, all but the excluded ones. UCX chooses among them, and may use several."`
	DeviceExclude   []string `param:"device_exclude" default:"docker*,virbr*,br-*,veth*" level:"user" scope:"process" doc:"Devices that are not used. Ignored if device_include or UCX_NET_DEVICES is set. Secondary interfaces are not used either: those inside a host, and those without the default route if an interface of at least the same speed has it."`

	LibraryFile     string        `param:"library" default:"libucp.so.0" level:"user" scope:"process" trusted:"true" doc:"File of the library, or a name that the dynamic linker resolves."`
	ErrorMode       string        `param:"error_mode" default:"peer" choices:"peer,none" level:"tuner" scope:"process" doc:"Whether UCX reports failed peers (peer). With none it has more protocols to choose from, and operations with a failed peer end when the launcher reports the failure. All processes need the same."`
	WaitMode        string        `param:"wait" default:"auto" choices:"auto,fd,poll" level:"tuner" scope:"process" doc:"How an idle process waits for messages: on a descriptor (fd) or by polling every millisecond (poll); auto: fd if ranks outnumber processors."`
	SelftestTimeout time.Duration `param:"selftest_timeout" default:"10s" min:"1ms" level:"tuner" scope:"process" doc:"Time limit for UCX to list its transports, and for each class to open and to pass its test."`
	SelftestExtent  string        `param:"selftest" default:"short" choices:"short,long" level:"tuner" scope:"process" doc:"Extent of the test of a class when it opens; ferry matrix uses long."`
	WarnsOnFailure  bool          `param:"warn" default:"true" level:"user" scope:"process" doc:"Whether rank 0 reports on standard error that a class failed its test, and its replacement."`
	SysfsDir        string        `param:"sysfs" default:"/sys" level:"developer" scope:"process" doc:"Folder in which the system lists its devices."`
}

func (ucx) Info() framework.Info {
	return framework.Info{
		Kind:     framework.MTL,
		Name:     "ucx",
		Version:  "1.0.0",
		Summary:  "InfiniBand, RoCE and what else UCX has transports for",
		Priority: 15,
	}
}

// Suggest implements framework.Suggester.
func (ucx) Suggest(word string) string {
	switch word {
	case "infiniband", "ib", "openib", "rdma", "roce", "verbs", "ucp", "uct":
		return "mtl=ucx"
	}
	return ""
}

func (ucx) Params() any { return new(params) }

// Probe reports whether UCX is available. It loads the library only if it does not find the file.
func (ucx) Probe(ctx context.Context, given any) framework.Verdict {
	p := given.(*params)
	v := p.file().Available(ctx, ucp.Built(), func() error {
		_, err := loadLibrary(ctx, p)
		return err
	}, "install UCX (Debian: libucx0), or set mtl.ucx.library to its file")
	if v.Status != framework.StatusUsable {
		return v
	}
	v.Network = networkDevice(p.SysfsDir)
	v.Suits = v.Network != ""
	return v
}

func (ucx) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	p := env.Params.(*params)
	if err := checkNames(p); err != nil {
		return nil, err
	}
	f, err := surveyTransports(ctx, p)
	if err != nil {
		return nil, err
	}
	j := jobTraits{isOneNode: env.Identity.LocalSize == env.Identity.Size, isUnrequested: env.IsUnrequested}
	all := choose(f, p, j)
	for i := range all {
		c := &all[i]
		if c.refusal != "" || c.isUnavailable {
			continue
		}
		m, wait, err := openCandidate(ctx, env, p, f.lib, c)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			c.refusal, c.hasFailed = err.Error(), true
			env.Logger.Info("mtl ucx: class refused", "class", c.name, "reason", c.refusal)
			if errors.Is(err, trial.ErrHangs) {
				break // The call may still use the parameters.
			}
			continue
		}
		if what := failures(all); what != "" && p.WarnsOnFailure && env.Identity.Proc.Rank == 0 {
			base.Warn(component, c.name, c.name+" is used, and not "+what)
		}
		m.Description.Notes = append(m.Description.Notes, f.notes...)
		m.Description.Candidates = toCandidates(all, i)
		if wait {
			return descriptorModule{m}, nil
		}
		return polledModule{m}, nil
	}
	return nil, noCandidateError(f, all, p)
}

// failures describes the classes that have failed.
func failures(all []candidate) string {
	failed := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !c.hasFailed })
	return summarize(failed)
}
