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
	"github.com/ferrympi/ferry/internal/trustedfile"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

func (ofi) Providers(ctx context.Context, p any) ([]string, error) {
	_, has, err := start(ctx, p.(*params))
	return names(has), err
}

func (ofi) LogEnvironment() []string { return []string{"FI_LOG_LEVEL=info"} }

// LogReason returns the last thing that a provider said: where it offers nothing, that
// is most often why, and not all say it. Of a layered provider the lower one counts.
func (ofi) LogReason(provider, log string) (reason string) {
	for line := range strings.Lines(log) {
		// libfabric:PID:SECONDS:LAYER:PROVIDER:SUBSYSTEM:FUNCTION():LINE<LEVEL> TEXT
		part := strings.SplitN(line, ":", 8)
		if len(part) < 8 || part[0] != "libfabric" || part[4] != core(provider) {
			continue
		}
		_, text, _ := strings.Cut(part[7], "> ")
		// What its parameters are it says again and again.
		if text = strings.TrimSpace(text); text != "" && !strings.HasPrefix(part[6], "fi_param_") {
			reason = text
		}
	}
	return reason
}

func (ofi) Survey(ctx context.Context, given any) ([]mtl.Candidate, error) {
	p := given.(*params)
	// A name is no other one here: each has an answer of its own.
	o, err := find(ctx, p, func(name string, _ []string) string { return spelt(name) })
	if err != nil {
		return nil, err
	}
	defer o.free()
	p = o.params
	all := described(choose(o.infos(), p, job{oneNode: true, version: o.lib.Version()}, newTopology(p.Sysfs)))
	asked := p.ProviderInclude
	if len(asked) == 0 {
		asked = names(o.has)
	}
	all = append(all, o.unavailable(asked)...)
	for i := range all {
		all[i].Library = library(o.lib)
	}
	return all, nil
}

// library names the library as a Description does.
func library(lib *libfabric.Library) string { return fmt.Sprintf("libfabric %v", lib.Version()) }

// found is the library, and what it offers.
type found struct {
	lib    *libfabric.Library
	has    []string // providers
	lists  []*libfabric.Infos
	failed map[string]error // by provider, as libfabric spells it
	params *params          // with the names of providers as they were meant
	notes  []string         // which names became others
}

func (o *found) infos() []libfabric.Info {
	var all []libfabric.Info
	for _, l := range o.lists {
		all = append(all, l.List...)
	}
	return all
}

func (o *found) free() {
	for _, l := range o.lists {
		l.Free()
	}
}

// unavailable returns those of the providers that offer nothing.
func (o *found) unavailable(providers []string) []mtl.Candidate {
	var out []mtl.Candidate
	infos := o.infos()
	for _, name := range providers {
		if !slices.ContainsFunc(infos, func(i libfabric.Info) bool { return strings.EqualFold(i.Provider, name) }) {
			hangs := errors.Is(o.failed[spelt(name)], trial.ErrHangs)
			out = append(out, mtl.Candidate{Name: name, Provider: name, Unavailable: true, Hangs: hangs, Reason: o.absent(name, infos)})
		}
	}
	return out
}

// absent says why a provider offers nothing.
func (o *found) absent(name string, infos []libfabric.Info) string {
	if err := o.failed[spelt(name)]; err != nil {
		return err.Error()
	}
	none := fmt.Sprintf("fi_getinfo: %s (%d)", o.lib.Text(libfabric.NoData), libfabric.NoData)
	for _, i := range infos {
		if core(i.Provider) == core(name) {
			return fmt.Sprintf("%s; libfabric %v offers reliable tagged messages over it as %s", none, o.lib.Version(), i.Provider)
		}
	}
	if slices.Contains(o.has, core(name)) {
		return fmt.Sprintf("%s; libfabric %v has %s, which finds nothing here that could carry reliable tagged messages", none, o.lib.Version(), core(name))
	}
	return fmt.Sprintf("%s; libfabric %v has no %s: it was not compiled in, or found no device of its own when it started", none, o.lib.Version(), core(name))
}

// load loads the library. A file that another user can change is refused.
func load(ctx context.Context, p *params) (*libfabric.Library, error) {
	lib, err := trial.Within(ctx, p.Deadline, trial.LoadCall(p.Library), func(context.Context) (*libfabric.Library, error) {
		if err := trustedfile.CheckLibrary(p.Library); err != nil {
			return nil, err
		}
		setEnvironment("")
		lib, err := libfabric.Load(p.Library)
		if err != nil {
			return nil, err
		}
		if v := lib.Version(); libfabric.Oldest.After(v) {
			return nil, fmt.Errorf("%w: %s is version %v, too old: ferry needs %v", framework.ErrUnsupported, p.Library, v, libfabric.Oldest)
		}
		return lib, nil
	}, func(*libfabric.Library) {})
	if errors.Is(err, trial.ErrHangs) {
		err = fmt.Errorf("%s was not loaded within %v: %w", p.Library, p.Deadline, err)
	}
	return lib, err
}

// start loads the library and asks which providers it has: it starts them for that.
func start(ctx context.Context, p *params) (*libfabric.Library, []string, error) {
	lib, err := load(ctx, p)
	var has []string
	if err == nil {
		has, err = trial.Within(ctx, p.Deadline, p.Library+": its providers", func(context.Context) ([]string, error) { return lib.Providers() }, func([]string) {})
		if errors.Is(err, trial.ErrHangs) {
			err = fmt.Errorf("%s did not start within %v: %w; FI_LOG_LEVEL=info in the environment has its providers say how far they get", p.Library, p.Deadline, err)
		}
	}
	if none := new(libfabric.Error); errors.As(err, &none) && none.Code == libfabric.NoData {
		err = fmt.Errorf("%w: %s (libfabric %v) has no provider that starts here: %w; FI_PROVIDER and FI_PROVIDER_PATH in the environment may keep it from its own, FI_LOG_LEVEL=info has it say which it tries, and mtl.ofi.library names another library",
			framework.ErrUnsupported, p.Library, lib.Version(), err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", component, err)
	}
	return lib, has, nil
}

// ask asks one provider, or all of them for "", what they offer.
func ask(ctx context.Context, p *params, lib *libfabric.Library, provider string) (*libfabric.Infos, error) {
	return trial.Within(ctx, p.Deadline, p.Library+": offers of "+cmp.Or(provider, "all providers"), func(context.Context) (*libfabric.Infos, error) {
		return lib.Infos(provider)
	}, (*libfabric.Infos).Free)
}

// find loads the library and asks what there is. Where providers are included, it
// asks no others, and each by itself: what others do, or one of them, is then
// nobody's business.
// The names of those are taken for what meaning makes of them, given what is offered.
func find(ctx context.Context, p *params, meaning func(name string, offered []string) string) (*found, error) {
	lib, has, err := start(ctx, p)
	if err != nil {
		return nil, err
	}
	copied := *p
	o := &found{lib: lib, has: has, failed: map[string]error{}, params: &copied}
	o.params.ProviderInclude, o.params.ProviderExclude = nil, nil
	for _, name := range p.ProviderExclude {
		o.params.ProviderExclude = append(o.params.ProviderExclude, spelt(name))
	}
	if len(p.ProviderInclude) == 0 {
		infos, err := ask(ctx, p, lib, "")
		switch {
		case errors.Is(err, trial.ErrHangs):
			return nil, fmt.Errorf("%s: %s did not say within %v which providers there are: %w; with mtl.ofi.provider_include=NAME only that one is asked", component, p.Library, p.Deadline, err)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", component, err)
		}
		o.lists = append(o.lists, infos)
		return o, nil
	}
	for _, given := range p.ProviderInclude {
		name := spelt(given)
		infos, err := ask(ctx, p, lib, name)
		if err != nil {
			o.failed[name] = err
		} else {
			o.lists = append(o.lists, infos)
			var offered []string
			for _, i := range infos.List {
				offered = append(offered, i.Provider)
			}
			name = meaning(name, offered)
		}
		if name != strings.ToLower(given) {
			o.notes = append(o.notes, fmt.Sprintf("provider %s is what mtl.ofi.provider_include calls %s", name, given))
		}
		if !slices.Contains(o.params.ProviderInclude, name) {
			o.params.ProviderInclude = append(o.params.ProviderInclude, name)
		}
	}
	if ctx.Err() != nil {
		o.free()
		return nil, fmt.Errorf("%s: %w", component, context.Cause(ctx))
	}
	return o, nil
}

// nothing says that no candidate is left to try, why, and what else there is. given is as
// the user has it.
func (o *found) nothing(ctx context.Context, all []candidate, given *params) error {
	p := o.params
	why := framework.ErrUnsupported
	if len(p.ProviderInclude) == 0 && len(p.DomainInclude) == 0 {
		if len(all) == 0 {
			return fmt.Errorf("%s: %w: libfabric %v finds no provider with reliable tagged messages here (fi_info shows what it finds)", component, why, o.lib.Version())
		}
		return fmt.Errorf("%s: %w: nothing that libfabric %v offers here can be used: %s", component, why, o.lib.Version(), summary(all))
	}
	why = framework.ErrConfig
	domains := fmt.Sprintf("mtl.ofi.domain_include=%q", strings.Join(p.DomainInclude, ","))
	if len(p.ProviderInclude) == 0 {
		return fmt.Errorf("%s: %w: nothing here can be used with %s: %s", component, why, domains, summary(all))
	}
	asked := fmt.Sprintf("mtl.ofi.provider_include=%q", strings.Join(given.ProviderInclude, ","))
	if len(p.DomainInclude) > 0 {
		asked += " and " + domains
	}
	var reasons []string
	own := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return indexFold(p.ProviderInclude, c.info.Provider) < 0 })
	if len(own) > 0 {
		reasons = append(reasons, summary(own))
	}
	for _, c := range o.unavailable(p.ProviderInclude) {
		reasons = append(reasons, c.Name+": "+c.Reason)
	}
	// Only now are the others asked.
	there := "it does not say what else there is"
	if others, err := ask(ctx, p, o.lib, ""); err == nil {
		o.lists = append(o.lists, others)
		var offered []candidate
		for i := range others.List {
			if c := (candidate{info: &others.List[i]}); indexFold(p.ProviderInclude, c.info.Provider) < 0 {
				offered = append(offered, c)
			}
		}
		if there = "there is nothing else"; len(offered) > 0 {
			there = "there is: " + summary(offered)
		}
	}
	return fmt.Errorf("%s: %w: nothing here can be used with %s: %s; %s", component, why, asked, strings.Join(reasons, "; "), there)
}
