package ucx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/internal/trustedfile"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

func (ucx) Providers(ctx context.Context, p any) ([]string, error) {
	_, err := load(ctx, p.(*params))
	return classNames(), err
}

func (ucx) LogEnvironment() []string { return []string{"UCX_LOG_LEVEL=diag"} }

// LogReason returns the last thing that UCX said of a transport of the class.
func (ucx) LogReason(provider, log string) (reason string) {
	c, _ := classOf(provider)
	for line := range strings.Lines(log) {
		// [SECONDS] [HOST:PID:THREAD]  FILE:LINE  UCX  LEVEL TEXT
		_, text, ok := strings.Cut(line, " UCX ")
		if !ok {
			continue
		}
		_, text, _ = strings.Cut(strings.TrimSpace(text), " ")
		for _, name := range append([]string{c.name}, c.transports...) {
			if name = strings.TrimRight(name, "*_"); strings.Contains(text, "'"+name) || strings.Contains(text, name+"_") || strings.Contains(text, "asked "+name) {
				reason = strings.TrimSpace(text)
			}
		}
	}
	return reason
}

// Survey asks UCX for each class that is included by itself, so that it says why there is none.
func (ucx) Survey(ctx context.Context, given any) ([]mtl.Candidate, error) {
	p := given.(*params)
	if err := checkNames(p); err != nil {
		return nil, err
	}
	f, err := find(ctx, p)
	if err != nil {
		return nil, err
	}
	all := choose(f, p, job{oneNode: true})
	if len(p.ProviderInclude) > 0 {
		all = slices.DeleteFunc(all, func(c candidate) bool { return f.tls == "" && !slices.Contains(p.ProviderInclude, c.name) })
		for i := range all {
			if c := &all[i]; c.unavailable {
				if _, err := resources(ctx, p, f.lib, c.settings); err != nil {
					c.refused += ": " + err.Error()
				}
			}
		}
	}
	out := described(all, -1)
	for i := range out {
		out[i].Library = library(f.version)
	}
	return out, nil
}

// library names the library as a Description does.
func library(v ucp.Version) string { return fmt.Sprintf("UCX %v", v) }

// found is the library, and what it offers.
type found struct {
	lib       *ucp.Library
	version   ucp.Version
	resources []ucp.Resource
	tls       string // the user's UCX_TLS, where that says what is used
	devices   string // the user's UCX_NET_DEVICES, likewise
	notes     []string

	interfaces []netaddr.Interface
}

// load loads the library. A file that another user can change is refused.
func load(ctx context.Context, p *params) (*ucp.Library, error) {
	lib, err := trial.Within(ctx, p.Deadline, trial.LoadCall(p.Library), func(context.Context) (*ucp.Library, error) {
		if err := trustedfile.CheckLibrary(p.Library); err != nil {
			return nil, err
		}
		setEnvironment(p)
		lib, err := ucp.Load(p.Library)
		if err != nil {
			return nil, err
		}
		if v := lib.Version(); v.Before(ucp.Oldest) {
			return nil, fmt.Errorf("%w: %s is version %v, too old: ferry needs %v", framework.ErrUnsupported, p.Library, v, ucp.Oldest)
		}
		return lib, nil
	}, func(*ucp.Library) {})
	if errors.Is(err, trial.ErrHangs) {
		err = fmt.Errorf("%s was not loaded within %v: %w", p.Library, p.Deadline, err)
	}
	return lib, err
}

// find loads the library and asks what there is. Where a parameter and the user's environment
// both speak, the parameter wins.
func find(ctx context.Context, p *params) (*found, error) {
	lib, err := load(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", component, err)
	}
	f := &found{lib: lib, version: lib.Version()}
	f.interfaces, _ = netaddr.HostWithRoutes() // Without them the order of UCX decides.
	if own := setEnvironment(p); len(own) > 0 {
		f.notes = append(f.notes, "UCX's environment has "+strings.Join(own, ", "))
	}
	if has := users(); len(has) > 0 {
		f.notes = append(f.notes, "the user has set "+strings.Join(has, ", "))
	}
	settings := []ucp.Setting{{Name: "TLS", Value: "all"}}
	if tls := os.Getenv("UCX_TLS"); tls != "" {
		if len(p.ProviderInclude) > 0 {
			f.notes = append(f.notes, fmt.Sprintf("mtl.ucx.provider_include wins over UCX_TLS=%s", tls))
		} else {
			f.tls, settings = tls, nil
		}
	}
	if devices := os.Getenv("UCX_NET_DEVICES"); devices != "" {
		if len(p.DeviceInclude) > 0 {
			f.notes = append(f.notes, fmt.Sprintf("mtl.ucx.device_include wins over UCX_NET_DEVICES=%s", devices))
			settings = append(settings, ucp.Setting{Name: "NET_DEVICES", Value: "all"})
		} else {
			f.devices = devices
		}
	}
	if f.resources, err = resources(ctx, p, lib, settings); err != nil {
		if f.tls != "" {
			return nil, fmt.Errorf("%s: %w: nothing here can be used with UCX_TLS=%s: %w", component, framework.ErrUnsupported, f.tls, err)
		}
		return nil, fmt.Errorf("%s: %w", component, err)
	}
	return f, nil
}

// resources asks UCX what there is with some settings.
func resources(ctx context.Context, p *params, lib *ucp.Library, settings []ucp.Setting) ([]ucp.Resource, error) {
	return trial.Within(ctx, p.Deadline, p.Library+": its transports", func(context.Context) ([]ucp.Resource, error) {
		w, err := lib.Open(settings, false)
		if err != nil {
			return nil, err
		}
		defer w.Close()
		return w.Resources()
	}, func([]ucp.Resource) {})
}

// network names the hardware of a network that the system shows and UCX has transports
// for, or "" if it shows none.
func network(sys string) string {
	found, _ := os.ReadDir(filepath.Join(sys, "class/infiniband")) // none, if it is not there
	for _, entry := range found {
		if _, err := os.Stat(filepath.Join(sys, "class/infiniband", entry.Name(), "device")); err == nil && !trial.OfLibfabric(entry.Name()) {
			return entry.Name()
		}
	}
	return ""
}
