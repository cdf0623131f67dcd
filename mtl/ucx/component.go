// Package ucx is the MTL over UCX, the library that clusters with InfiniBand, RoCE and GPUs are
// tuned for: it matches messages, and chooses among the transports of a class.
//
// Classes of transports are chosen by what the machine has, then tested: a module whose class
// does not deliver, match, probe and cancel as it should within a deadline is left, with
// the reason, for the next best. docs/ucx.md describes them.
//
// It stands on internal/ucp, and holds no unsafe code itself.
package ucx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/stderr"
	"github.com/ferrympi/ferry/internal/trustedfile"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// component names this MTL in errors.
const component = "mtl ucx"

// Component returns the component for the registry.
func Component() mtl.Component { return ucx{} }

// ucx is an mtl.Component, and an mtl.Surveyor.
type ucx struct{}

// params are the component's parameters; each is mtl.ucx.NAME.
type params struct {
	ProviderInclude []string `param:"provider_include" default:"" level:"user" scope:"process" doc:"Classes of transports that may be used, in order of preference: rc, dc, ud, tcp, shm, cuda. Empty: what UCX_TLS says; without that the best class here that is not excluded. All processes need the same."`
	ProviderExclude []string `param:"provider_exclude" default:"" level:"user" scope:"process" doc:"Classes that are not used, unless provider_include names some."`
	DeviceInclude   []string `param:"device_include" default:"" level:"user" scope:"process" doc:"Devices that may be used, such as mlx5_0:1 or eth*; empty: what UCX_NET_DEVICES says, and without that all but those excluded. UCX chooses among them, and may use several."`
	DeviceExclude   []string `param:"device_exclude" default:"docker*,virbr*,br-*,veth*" level:"user" scope:"process" doc:"Devices that are not used, unless device_include or UCX_NET_DEVICES names some. Secondary interfaces are not used either: those inside a host, and those without the default route if one that is at least as fast has it."`

	Library   string        `param:"library" default:"libucp.so.0" level:"user" scope:"process" trusted:"true" doc:"The library: a file, or a name that the dynamic linker looks for."`
	ErrorMode string        `param:"error_mode" default:"peer" choices:"peer,none" level:"tuner" scope:"process" doc:"Whether UCX tells of peers that have died (peer). With none it has more protocols to choose from, and a death ends what waits when the launcher has told of it. All processes need the same."`
	Wait      string        `param:"wait" default:"auto" choices:"auto,fd,poll" level:"tuner" scope:"process" doc:"How an idle process hears of messages: through a descriptor (fd) or by polling every millisecond (poll); auto: fd where ranks outnumber processors."`
	Deadline  time.Duration `param:"selftest_timeout" default:"10s" min:"1ms" level:"tuner" scope:"process" doc:"How long UCX may take to say what there is, and each class to open and to pass its test."`
	Selftest  string        `param:"selftest" default:"short" choices:"short,long" level:"tuner" scope:"process" doc:"How thoroughly a class is tested when it opens; ferry matrix has the long form."`
	Warn      bool          `param:"warn" default:"true" level:"user" scope:"process" doc:"Whether rank 0 says on standard error that a class has failed its test, and what is used in its place."`
	Sysfs     string        `param:"sysfs" default:"/sys" level:"developer" scope:"process" doc:"Where the system shows its devices."`
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

// Probe says whether UCX is there. It does not load it if it sees the file.
func (ucx) Probe(ctx context.Context, given any) framework.Verdict {
	if err := ucp.Built(); err != nil {
		return framework.Verdict{
			Status: framework.StatusNotBuilt, Reason: err.Error(),
			Hint: "install a C compiler, in Debian gcc and libc6-dev, and build again",
		}
	}
	p := given.(*params)
	isOnDisk, err := trial.OnDisk(ctx, p.Deadline, p.Library)
	if err == nil && !isOnDisk {
		_, err = load(ctx, p)
	}
	if err != nil {
		return framework.Unavailable(err.Error(), trustedfile.Remedy(err, "install UCX (Debian: libucx0), or set mtl.ucx.library to its file"))
	}
	v := framework.Usable()
	v.Network = network(p.Sysfs)
	v.Suits = v.Network != ""
	return v
}

func (ucx) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	p := env.Params.(*params)
	if err := checkNames(p); err != nil {
		return nil, err
	}
	f, err := find(ctx, p)
	if err != nil {
		return nil, err
	}
	j := job{oneNode: env.Identity.LocalSize == env.Identity.Size, fabric: env.Fabric}
	all := choose(f, p, j)
	for i := range all {
		c := &all[i]
		if c.refused != "" || c.unavailable {
			continue
		}
		m, wait, err := try(ctx, env, p, f.lib, c)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			c.refused, c.failed = err.Error(), true
			env.Logger.Info("mtl ucx: left out", "class", c.name, "reason", c.refused)
			if errors.Is(err, trial.ErrHangs) {
				break // it may still use what it was given
			}
			continue
		}
		if what := failures(all); what != "" && p.Warn && env.Identity.Proc.Rank == 0 {
			warn(c.name, what)
		}
		m.about.Notes = append(m.about.Notes, f.notes...)
		m.about.Candidates = described(all, i)
		if wait {
			return awaited{m}, nil
		}
		return polled{m}, nil
	}
	return nil, nothing(f, all, p)
}

// failures names the classes that have failed.
func failures(all []candidate) string {
	failed := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !c.failed })
	return summary(failed)
}

// warned has the classes of which something was said.
var warned sync.Map

// warn says something on standard error of the class that is used, once in a process.
func warn(used, what string) {
	if _, said := warned.LoadOrStore(used, true); !said {
		fmt.Fprintf(stderr.Writer{}, "ferry: mtl ucx: %s is used, and not %s (mtl.ucx.warn=off turns this message off)\n", used, what)
	}
}
