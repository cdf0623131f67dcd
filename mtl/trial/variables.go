package trial

import (
	"os"
	"slices"
	"strings"
)

// Variables returns the variables of this process's environment with a prefix, such as FI_, as sorted NAME=VALUE. It omits the overridden
// ones.
func Variables(prefix string, overridden []string) []string {
	var all []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, prefix) && !slices.ContainsFunc(overridden, func(o string) bool { return strings.HasPrefix(o, name+"=") }) {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}
