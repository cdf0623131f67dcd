package ofi

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// baseProvider returns the lowest of layered providers: "tcp" for "tcp;ofi_rxm".
func baseProvider(provider string) string {
	name, _, _ := strings.Cut(strings.ToLower(provider), ";")
	return name
}

// canonicalName returns a provider's name in the spelling of libfabric, in lower case and with full names of the layers.
func canonicalName(name string) string {
	name = strings.ToLower(name)
	for _, layer := range []string{"rxm", "rxd"} {
		if under, ok := strings.CutSuffix(name, ";"+layer); ok {
			return under + ";ofi_" + layer
		}
	}
	return name
}

// resolveName resolves a name in provider_include. It returns the provider of that name or, if that is not offered, the
// best one that is layered on it.
func resolveName(name string, offered []string) string {
	name = canonicalName(name)
	best := name
	for _, o := range offered {
		o = strings.ToLower(o)
		switch {
		case o == name:
			return name
		case baseProvider(o) != name:
		case best == name, providerPriority(o, false) < providerPriority(best, false):
			best = o
		}
	}
	return best
}

// providerNames returns the names for provider_include: the providers of the library, and networks that a library may
// have.
func providerNames(has []string) []string {
	var all []string
	for _, p := range known {
		if p.Listed == ListedAlways || p.Listed == ListedIfBasePresent && slices.Contains(has, baseProvider(p.Name)) {
			all = append(all, p.Name)
		}
	}
	for _, name := range has {
		if lookupProvider(name).Listed != ListedNever && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// checkNames rejects names that no library has, so that a typing error is not mistaken for a missing provider. has are the
// providers of this library.
func checkNames(p *params, has []string) error {
	for _, list := range []struct {
		name  string
		names []string
	}{{"provider_include", p.ProviderInclude}, {"provider_exclude", p.ProviderExclude}} {
		for _, given := range list.names {
			if isKnownName(canonicalName(given), has) {
				continue
			}
			all := providerNames(has)
			near := framework.Nearest(canonicalName(given), all)
			if strings.HasSuffix(given, ";") {
				near = framework.Nearest(canonicalName(given)+"ofi_rxm", all)
			}
			here := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !slices.Contains(has, baseProvider(n)) })
			return fmt.Errorf("%w: mtl.ofi.%s: libfabric has no provider %q; the nearest name is %q; this library has %s",
				framework.ErrConfig, list.name, given, near, strings.Join(here, ", "))
		}
	}
	return nil
}

// isKnownName reports whether this or another library may have a provider of this name.
func isKnownName(name string, has []string) bool {
	under, layer, layered := strings.Cut(name, ";")
	if layered && layer != "ofi_rxm" && layer != "ofi_rxd" && !slices.Contains(has, layer) {
		return false
	}
	return slices.Contains(has, under) || slices.ContainsFunc(known, func(p Provider) bool {
		ok, _ := path.Match(baseProvider(p.Name), under)
		return ok && under != ""
	})
}
