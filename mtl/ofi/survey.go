package ofi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

func (ofi) Providers(ctx context.Context, p any) ([]string, error) {
	_, has, err := loadProviders(ctx, p.(*params))
	return providerNames(has), err
}

func (ofi) LogEnvironment() []string { return []string{"FI_LOG_LEVEL=info"} }

// LogReason returns the last log line of a provider, which is usually the reason if it offers nothing. For a layered provider
// it returns that of the base provider.
func (ofi) LogReason(provider, log string) (reason string) {
	for line := range strings.Lines(log) {
		// libfabric:PID:SECONDS:LAYER:PROVIDER:SUBSYSTEM:FUNCTION():LINE<LEVEL> TEXT
		part := strings.SplitN(line, ":", 8)
		if len(part) < 8 || part[0] != "libfabric" || part[4] != baseProvider(provider) {
			continue
		}
		_, text, _ := strings.Cut(part[7], "> ")
		// Lines about parameters are repeated often.
		if text = strings.TrimSpace(text); text != "" && !strings.HasPrefix(part[6], "fi_param_") {
			reason = text
		}
	}
	return reason
}

func (ofi) Survey(ctx context.Context, given any) ([]mtl.Candidate, error) {
	p := given.(*params)
	// Names are not resolved: the survey lists each one.
	o, err := surveyProviders(ctx, p, func(name string, _ []string) string { return canonicalName(name) })
	if err != nil {
		return nil, err
	}
	defer o.freeInfos()
	p = o.resolvedParams
	all := toCandidates(choose(o.infos(), p, jobTraits{isOneNode: true, libraryVersion: o.lib.Version()}, newTopology(p.SysfsDir)))
	asked := p.ProviderInclude
	if len(asked) == 0 {
		asked = providerNames(o.providerNames)
	}
	all = append(all, o.unavailable(asked)...)
	for i := range all {
		all[i].Library = libraryName(o.lib)
	}
	return all, nil
}

// libraryName returns the name of the library for a Description.
func libraryName(lib *libfabric.Library) string { return fmt.Sprintf("libfabric %v", lib.Version()) }

// survey is the library with the offers of its providers.
type survey struct {
	lib            *libfabric.Library
	providerNames  []string
	infoLists      []*libfabric.Infos
	failuresByName map[string]error // Canonical names.
	// resolvedParams has resolved names of providers.
	resolvedParams *params
	// resolutionNotes describe the resolved names.
	resolutionNotes []string
}

func (o *survey) infos() []libfabric.Info {
	var all []libfabric.Info
	for _, l := range o.infoLists {
		all = append(all, l.List...)
	}
	return all
}

func (o *survey) freeInfos() {
	for _, l := range o.infoLists {
		l.Free()
	}
}

// unavailable returns the given providers without offers.
func (o *survey) unavailable(providers []string) []mtl.Candidate {
	var out []mtl.Candidate
	infos := o.infos()
	for _, name := range providers {
		if !slices.ContainsFunc(infos, func(i libfabric.Info) bool { return strings.EqualFold(i.Provider, name) }) {
			hangs := errors.Is(o.failuresByName[canonicalName(name)], trial.ErrHangs)
			out = append(out, mtl.Candidate{Name: name, Provider: name, Unavailable: true, Hangs: hangs, Reason: o.unavailableReason(name, infos)})
		}
	}
	return out
}

// unavailableReason returns the reason why a provider offers nothing.
func (o *survey) unavailableReason(name string, infos []libfabric.Info) string {
	if err := o.failuresByName[canonicalName(name)]; err != nil {
		return err.Error()
	}
	none := fmt.Sprintf("fi_getinfo: %s (%d)", o.lib.Text(libfabric.NoData), libfabric.NoData)
	for _, i := range infos {
		if baseProvider(i.Provider) == baseProvider(name) {
			return fmt.Sprintf("%s; libfabric %v offers reliable tagged messages over it as %s", none, o.lib.Version(), i.Provider)
		}
	}
	if slices.Contains(o.providerNames, baseProvider(name)) {
		return fmt.Sprintf("%s; libfabric %v has %s, which finds nothing here that could carry reliable tagged messages", none, o.lib.Version(), baseProvider(name))
	}
	return fmt.Sprintf("%s; libfabric %v has no %s: it was not compiled in, or found no device of its own when it started", none, o.lib.Version(), baseProvider(name))
}

// loadLibrary loads libfabric.
func loadLibrary(ctx context.Context, p *params) (*libfabric.Library, error) {
	return base.LoadLibrary(ctx, p.file(), func(name string) (*libfabric.Library, error) {
		setEnvironment("")
		lib, err := libfabric.Load(name)
		if err == nil && libfabric.Oldest.After(lib.Version()) {
			return nil, fmt.Errorf("%w: %s is version %v, too old: ferry needs %v", framework.ErrUnsupported, name, lib.Version(), libfabric.Oldest)
		}
		return lib, err
	})
}

func (p *params) file() base.Library {
	return base.Library{File: p.LibraryFile, Deadline: p.SelftestTimeout}
}

// loadProviders loads the library and lists its providers, which initializes them.
func loadProviders(ctx context.Context, p *params) (*libfabric.Library, []string, error) {
	lib, err := loadLibrary(ctx, p)
	var has []string
	if err == nil {
		has, err = trial.Within(ctx, p.SelftestTimeout, p.LibraryFile+": its providers", func(context.Context) ([]string, error) { return lib.Providers() }, func([]string) {})
		if errors.Is(err, trial.ErrHangs) {
			err = fmt.Errorf("%s did not start within %v: %w; FI_LOG_LEVEL=info in the environment logs the progress of its providers", p.LibraryFile, p.SelftestTimeout, err)
		}
	}
	if none := new(libfabric.Error); errors.As(err, &none) && none.Code == libfabric.NoData {
		err = fmt.Errorf("%w: %s (libfabric %v) has no provider that starts here: %w; FI_PROVIDER and FI_PROVIDER_PATH in the environment may hide its own, FI_LOG_LEVEL=info logs its attempts, and mtl.ofi.library selects another library",
			framework.ErrUnsupported, p.LibraryFile, lib.Version(), err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", component, err)
	}
	return lib, has, nil
}

// listInfos lists the offers of one provider, or of all for "".
func listInfos(ctx context.Context, p *params, lib *libfabric.Library, provider string) (*libfabric.Infos, error) {
	return trial.Within(ctx, p.SelftestTimeout, p.LibraryFile+": offers of "+cmp.Or(provider, "all providers"), func(context.Context) (*libfabric.Infos, error) {
		return lib.Infos(provider)
	}, (*libfabric.Infos).Free)
}

// surveyProviders loads the library and lists the offers. With provider_include it queries only those providers, each by
// itself, so that a failure of another one has no effect. resolve maps an included name to that of
// an offer.
func surveyProviders(ctx context.Context, p *params, resolve func(name string, offered []string) string) (*survey, error) {
	lib, has, err := loadProviders(ctx, p)
	if err != nil {
		return nil, err
	}
	copied := *p
	o := &survey{lib: lib, providerNames: has, failuresByName: map[string]error{}, resolvedParams: &copied}
	o.resolvedParams.ProviderInclude, o.resolvedParams.ProviderExclude = nil, nil
	for _, name := range p.ProviderExclude {
		o.resolvedParams.ProviderExclude = append(o.resolvedParams.ProviderExclude, canonicalName(name))
	}
	if len(p.ProviderInclude) == 0 {
		infos, err := listInfos(ctx, p, lib, "")
		switch {
		case errors.Is(err, trial.ErrHangs):
			return nil, fmt.Errorf("%s: %s did not list its providers within %v: %w; mtl.ofi.provider_include=NAME queries only one", component, p.LibraryFile, p.SelftestTimeout, err)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", component, err)
		}
		o.infoLists = append(o.infoLists, infos)
		return o, nil
	}
	for _, given := range p.ProviderInclude {
		name := canonicalName(given)
		infos, err := listInfos(ctx, p, lib, name)
		if err != nil {
			o.failuresByName[name] = err
		} else {
			o.infoLists = append(o.infoLists, infos)
			var offered []string
			for _, i := range infos.List {
				offered = append(offered, i.Provider)
			}
			name = resolve(name, offered)
		}
		if name != strings.ToLower(given) {
			o.resolutionNotes = append(o.resolutionNotes, fmt.Sprintf("provider %s is what mtl.ofi.provider_include calls %s", name, given))
		}
		if !slices.Contains(o.resolvedParams.ProviderInclude, name) {
			o.resolvedParams.ProviderInclude = append(o.resolvedParams.ProviderInclude, name)
		}
	}
	if ctx.Err() != nil {
		o.freeInfos()
		return nil, fmt.Errorf("%s: %w", component, context.Cause(ctx))
	}
	return o, nil
}

// noCandidateError returns the error if no candidate is left, with the reasons and with other offers of the library. given are the
// user's parameters.
func (o *survey) noCandidateError(ctx context.Context, all []candidate, given *params) error {
	p := o.resolvedParams
	why := framework.ErrUnsupported
	if len(p.ProviderInclude) == 0 && len(p.DomainInclude) == 0 {
		if len(all) == 0 {
			return fmt.Errorf("%s: %w: libfabric %v finds no provider with reliable tagged messages here (fi_info shows what it finds)", component, why, o.lib.Version())
		}
		return fmt.Errorf("%s: %w: nothing that libfabric %v offers here can be used: %s", component, why, o.lib.Version(), summarize(all))
	}
	why = framework.ErrConfig
	domains := fmt.Sprintf("mtl.ofi.domain_include=%q", strings.Join(p.DomainInclude, ","))
	if len(p.ProviderInclude) == 0 {
		return fmt.Errorf("%s: %w: nothing here can be used with %s: %s", component, why, domains, summarize(all))
	}
	asked := fmt.Sprintf("mtl.ofi.provider_include=%q", strings.Join(given.ProviderInclude, ","))
	if len(p.DomainInclude) > 0 {
		asked += " and " + domains
	}
	var reasons []string
	own := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return indexFold(p.ProviderInclude, c.providerInfo.Provider) < 0 })
	if len(own) > 0 {
		reasons = append(reasons, summarize(own))
	}
	for _, c := range o.unavailable(p.ProviderInclude) {
		reasons = append(reasons, c.Name+": "+c.Reason)
	}
	// The others are queried only now.
	there := "its other offers are unknown"
	if others, err := listInfos(ctx, p, o.lib, ""); err == nil {
		o.infoLists = append(o.infoLists, others)
		var offered []candidate
		for i := range others.List {
			if c := (candidate{providerInfo: &others.List[i]}); indexFold(p.ProviderInclude, c.providerInfo.Provider) < 0 {
				offered = append(offered, c)
			}
		}
		if there = "there are no other offers"; len(offered) > 0 {
			there = "other offers: " + summarize(offered)
		}
	}
	return fmt.Errorf("%s: %w: nothing here can be used with %s: %s; %s", component, why, asked, strings.Join(reasons, "; "), there)
}
