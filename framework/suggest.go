package framework

import (
	"slices"
	"strings"
)

// Suggester is an optional interface of a component with other common names, such as those of its networks.
type Suggester interface {
	// Suggest returns the settings that select the component for a word in lower case, for example
	// "mtl=ofi with mtl.ofi.provider_include=verbs" for infiniband, or "". "" for the component's own name means the list of that name alone.
	Suggest(word string) string
}

// suggestions returns the settings that select components known by a name, in the order of the frameworks. For a framework
// that carries messages, others count only if no component of those has the name.
func (r *Registry) suggestions(asked Kind, name string) (all []string) {
	word := strings.ToLower(name)
	for _, kind := range r.kinds {
		if asked.carriesMessages() && !kind.carriesMessages() && len(all) > 0 {
			continue
		}
		for _, e := range r.byPriority(kind) {
			suggestion := ""
			if s, ok := As[Suggester](e.component); ok {
				suggestion = s.Suggest(word)
			}
			if suggestion == "" && e.info.Name == word && e.component != nil {
				suggestion = string(kind) + "=" + e.info.Name
			}
			if suggestion != "" && !slices.Contains(all, suggestion) {
				all = append(all, suggestion)
			}
		}
	}
	return all
}

// carriesMessages reports whether components of the framework move messages between processes.
func (k Kind) carriesMessages() bool { return k == PML || k == MTL || k == BTL }
