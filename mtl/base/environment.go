package base

import (
	"os"
	"path"
	"slices"
	"strings"
)

// Variables returns the variables to set for a library, as NAME=VALUE. These are the forced ones, and the defaults that the user has not set.
func Variables(forced, defaults []string, has func(name string) bool) []string {
	left := slices.DeleteFunc(slices.Clone(defaults), func(v string) bool { return has(variableName(v)) })
	return append(slices.Clone(forced), left...)
}

// SetVariables sets variables, as NAME=VALUE.
func SetVariables(all []string, set func(name, value string)) {
	for _, v := range all {
		name, value, _ := strings.Cut(v, "=")
		set(name, value)
	}
}

// UserVariables returns the variables of this process's environment with a prefix, such as FI_, as sorted NAME=VALUE. It omits the
// forced ones.
func UserVariables(prefix string, forced []string) []string {
	var all []string
	for _, v := range os.Environ() {
		name := variableName(v)
		if strings.HasPrefix(name, prefix) && !slices.ContainsFunc(forced, func(f string) bool { return variableName(f) == name }) {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}

func variableName(v string) string {
	name, _, _ := strings.Cut(v, "=")
	return name
}

// MatchesAny reports whether one of a device's names matches one of the patterns (path.Match). A malformed pattern matches
// itself.
func MatchesAny(patterns []string, names ...string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			ok, err := path.Match(p, name)
			return ok || err != nil && p == name
		})
	})
}
