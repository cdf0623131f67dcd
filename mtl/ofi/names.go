package ofi

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// core returns the lower of layered providers.
func core(provider string) string {
	name, _, _ := strings.Cut(strings.ToLower(provider), ";")
	return name
}

// spelt is a provider's name as libfabric spells it: in lower case, and with the whole
// name of its layers.
func spelt(name string) string {
	name = strings.ToLower(name)
	for _, layer := range []string{"rxm", "rxd"} {
		if under, ok := strings.CutSuffix(name, ";"+layer); ok {
			return under + ";ofi_" + layer
		}
	}
	return name
}

// meant is what a name in provider_include means where these providers are offered: that
// one, or the best of what is layered on it, where it offers nothing by itself.
func meant(name string, offered []string) string {
	name = spelt(name)
	best := name
	for _, o := range offered {
		o = strings.ToLower(o)
		switch {
		case o == name:
			return name
		case core(o) != name:
		case best == name, place(o, false) < place(best, false):
			best = o
		}
	}
	return best
}

// names returns what the providers that the library has are called in
// provider_include, and the networks that it could have.
func names(has []string) []string {
	var all []string
	for _, p := range known {
		if p.Listed == Always || p.Listed == IfCore && slices.Contains(has, core(p.Name)) {
			all = append(all, p.Name)
		}
	}
	for _, name := range has {
		if about(name).Listed != Never && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// checkNames refuses names of providers that no library has, so that a slip is not taken
// for a provider that is missing here. has is what this one has.
func checkNames(p *params, has []string) error {
	for _, list := range []struct {
		name  string
		names []string
	}{{"provider_include", p.ProviderInclude}, {"provider_exclude", p.ProviderExclude}} {
		for _, given := range list.names {
			if isName(spelt(given), has) {
				continue
			}
			all := names(has)
			near := framework.Nearest(spelt(given), all)
			if strings.HasSuffix(given, ";") {
				near = framework.Nearest(spelt(given)+"ofi_rxm", all)
			}
			here := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !slices.Contains(has, core(n)) })
			return fmt.Errorf("%w: mtl.ofi.%s: no provider of libfabric is called %q; the nearest name is %q; here are %s",
				framework.ErrConfig, list.name, given, near, strings.Join(here, ", "))
		}
	}
	return nil
}

// isName says whether a provider could be called so, here or elsewhere.
func isName(name string, has []string) bool {
	under, layer, layered := strings.Cut(name, ";")
	if layered && layer != "ofi_rxm" && layer != "ofi_rxd" && !slices.Contains(has, layer) {
		return false
	}
	return slices.Contains(has, under) || slices.ContainsFunc(known, func(p Provider) bool {
		ok, _ := path.Match(core(p.Name), under)
		return ok && under != ""
	})
}
