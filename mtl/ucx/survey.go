package ucx

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

func (ucx) Providers(ctx context.Context, p any) ([]string, error) {
	_, err := loadLibrary(ctx, p.(*params))
	return classNames(), err
}

func (ucx) LogEnvironment() []string { return []string{"UCX_LOG_LEVEL=diag"} }

// LogReason returns the last log line of UCX about a transport of the class.
func (ucx) LogReason(provider, log string) (reason string) {
	c, _ := classOf(provider)
	for line := range strings.Lines(log) {
		// [SECONDS] [HOST:PID:THREAD]  FILE:LINE  UCX  LEVEL TEXT
		_, text, ok := strings.Cut(line, " UCX ")
		if !ok {
			continue
		}
		_, text, _ = strings.Cut(strings.TrimSpace(text), " ")
		for _, name := range append([]string{c.name}, c.transportPatterns...) {
			if name = strings.TrimRight(name, "*_"); strings.Contains(text, "'"+name) || strings.Contains(text, name+"_") || strings.Contains(text, "asked "+name) {
				reason = strings.TrimSpace(text)
			}
		}
	}
	return reason
}

// Survey queries each class in provider_include by itself, so that unavailable ones have a reason.
func (ucx) Survey(ctx context.Context, given any) ([]mtl.Candidate, error) {
	p := given.(*params)
	if err := checkNames(p); err != nil {
		return nil, err
	}
	f, err := surveyTransports(ctx, p)
	if err != nil {
		return nil, err
	}
	all := choose(f, p, jobTraits{isOneNode: true})
	if len(p.ProviderInclude) > 0 {
		all = slices.DeleteFunc(all, func(c candidate) bool { return f.userTLS == "" && !slices.Contains(p.ProviderInclude, c.name) })
		for i := range all {
			if c := &all[i]; c.isUnavailable {
				if _, err := listResources(ctx, p, f.lib, c.ucxSettings); err != nil {
					c.refusal += ": " + err.Error()
				}
			}
		}
	}
	out := toCandidates(all, -1)
	for i := range out {
		out[i].Library = libraryName(f.libraryVersion)
	}
	return out, nil
}

// libraryName returns the name of the library for a Description.
func libraryName(v ucp.Version) string { return fmt.Sprintf("UCX %v", v) }

// survey is the library with its transports.
type survey struct {
	lib            *ucp.Library
	libraryVersion ucp.Version
	resources      []ucp.Resource
	// userTLS is the user's UCX_TLS, or empty if a parameter overrides it.
	userTLS string
	// userDevices is the user's UCX_NET_DEVICES, or empty if a parameter overrides it.
	userDevices string
	notes       []string
	interfaces  []netaddr.Interface
}

// loadLibrary loads UCX.
func loadLibrary(ctx context.Context, p *params) (*ucp.Library, error) {
	return base.LoadLibrary(ctx, p.file(), func(name string) (*ucp.Library, error) {
		setEnvironment(p)
		lib, err := ucp.Load(name)
		if err == nil && lib.Version().Before(ucp.Oldest) {
			return nil, fmt.Errorf("%w: %s is version %v, too old: ferry needs %v", framework.ErrUnsupported, name, lib.Version(), ucp.Oldest)
		}
		return lib, err
	})
}

func (p *params) file() base.Library {
	return base.Library{File: p.LibraryFile, Deadline: p.SelftestTimeout}
}

// surveyTransports loads the library and lists its transports. Parameters override the user's environment.
func surveyTransports(ctx context.Context, p *params) (*survey, error) {
	lib, err := loadLibrary(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", component, err)
	}
	f := &survey{lib: lib, libraryVersion: lib.Version()}
	f.interfaces, _ = netaddr.HostWithRoutes() // Without them UCX's order applies.
	if own := setEnvironment(p); len(own) > 0 {
		f.notes = append(f.notes, "UCX's environment has "+strings.Join(own, ", "))
	}
	if has := userVariables(); len(has) > 0 {
		f.notes = append(f.notes, "the user has set "+strings.Join(has, ", "))
	}
	settings := []ucp.Setting{{Name: "TLS", Value: "all"}}
	if tls := os.Getenv("UCX_TLS"); tls != "" {
		if len(p.ProviderInclude) > 0 {
			f.notes = append(f.notes, fmt.Sprintf("mtl.ucx.provider_include wins over UCX_TLS=%s", tls))
		} else {
			f.userTLS, settings = tls, nil
		}
	}
	if devices := os.Getenv("UCX_NET_DEVICES"); devices != "" {
		if len(p.DeviceInclude) > 0 {
			f.notes = append(f.notes, fmt.Sprintf("mtl.ucx.device_include wins over UCX_NET_DEVICES=%s", devices))
			settings = append(settings, ucp.Setting{Name: "NET_DEVICES", Value: "all"})
		} else {
			f.userDevices = devices
		}
	}
	if f.resources, err = listResources(ctx, p, lib, settings); err != nil {
		if f.userTLS != "" {
			return nil, fmt.Errorf("%s: %w: nothing here can be used with UCX_TLS=%s: %w", component, framework.ErrUnsupported, f.userTLS, err)
		}
		return nil, fmt.Errorf("%s: %w", component, err)
	}
	return f, nil
}

// listResources lists the transports of UCX with some settings.
func listResources(ctx context.Context, p *params, lib *ucp.Library, settings []ucp.Setting) ([]ucp.Resource, error) {
	return trial.Within(ctx, p.SelftestTimeout, p.LibraryFile+": its transports", func(context.Context) ([]ucp.Resource, error) {
		w, err := lib.Open(settings, false)
		if err != nil {
			return nil, err
		}
		defer w.Close()
		return w.Resources()
	}, func([]ucp.Resource) {})
}

// networkDevice returns the name of a network device of this machine that UCX supports, or "".
func networkDevice(sys string) string {
	name, _ := base.FindDevice(sys, "infiniband/", func(name string) bool { return !trial.IsLibfabricDevice(name) })
	return name
}
