package framework

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Registry has the components of a program, the names of components that are not built, and the parameters of all. It is a value. There is no
// global registry.
//
// A registry is built by one goroutine. After that, all methods that do not change it are safe for concurrent use. Errors in building it, such as
// duplicate names and bad tags, panic, because they are errors of the program that appear at its first start.
type Registry struct {
	kinds []Kind
	// By ComponentName.
	components map[string]entry
	// Immutable after registration.
	specByName map[string]*ParamSpec
	// Full names, by environment variable.
	nameByVariable   map[string]string
	manifestDefaults map[string]string
	probeLimit       time.Duration
}

type entry struct {
	// nil if it is not built.
	component Component
	info      Info
	// Argument of SetNode.
	nodeComponent string
	notBuilt      Verdict
}

// NewRegistry returns a registry without components, with the selection parameters of ferry's frameworks.
func NewRegistry() *Registry {
	r := &Registry{
		components:       map[string]entry{},
		specByName:       map[string]*ParamSpec{},
		nameByVariable:   map[string]string{},
		manifestDefaults: map[string]string{},
		// Probes take milliseconds. The limit turns a probe that hangs, for example in a driver, into a verdict.
		probeLimit: 2 * time.Second,
	}
	for _, k := range []Kind{PML, MTL, BTL, Bootstrap, Coll} {
		r.addKind(k)
	}
	return r
}

// Clone returns an independent copy.
func (r *Registry) Clone() *Registry {
	c := *r
	c.kinds, c.components = slices.Clone(r.kinds), maps.Clone(r.components)
	c.specByName, c.nameByVariable, c.manifestDefaults = maps.Clone(r.specByName), maps.Clone(r.nameByVariable), maps.Clone(r.manifestDefaults)
	return &c
}

// Register adds c and its parameters. It panics for a duplicate name, also of a component that is not built, and for a bad tag.
func (r *Registry) Register(c Component) {
	if c == nil {
		panic("framework: Register of a nil component")
	}
	info := c.Info()
	r.add(entry{component: c, info: info})
	r.RegisterParams(ParamsOf(ComponentName(info.Kind, info.Name), c.Params())...)
}

// RegisterParams adds parameters by their full names, for groups without a component, such as "cid" or "session". (*Values).Decode reads them. It
// panics for duplicate names, and if Check fails.
func (r *Registry) RegisterParams(specs ...ParamSpec) {
	for _, s := range specs {
		if err := s.Check(); err != nil {
			panic(fmt.Sprintf("framework: parameter %s: %v", s.Name, err))
		}
		if first, _, _ := strings.Cut(s.Name, "."); slices.Contains(reservedWords, first) {
			panic(fmt.Sprintf("framework: parameter %s: names cannot begin with %s", s.Name, first))
		}
		if _, ok := r.specByName[s.Name]; ok {
			panic(fmt.Sprintf("framework: parameter %s is registered twice", s.Name))
		}
		env := EnvName(s.Name)
		if other, ok := r.nameByVariable[env]; ok {
			panic(fmt.Sprintf("framework: parameters %s and %s would share the environment variable %s", other, s.Name, env))
		}
		s.DefaultSource = SourceDefault
		r.nameByVariable[env] = s.Name
		r.specByName[s.Name] = &s
	}
}

// NotBuilt records the name of a component that is not compiled in, with the reason and a remedy for users who request it. It panics for a duplicate
// name.
func (r *Registry) NotBuilt(kind Kind, name, reason, hint string) {
	r.add(entry{
		info:     Info{Kind: kind, Name: name, Priority: math.MinInt}, // Last.
		notBuilt: Verdict{Kind: kind, Name: name, Status: StatusNotBuilt, Reason: reason, Hint: hint},
	})
}

// SetPriority overrides the priority of a component. It panics if there is no such component.
func (r *Registry) SetPriority(kind Kind, name string, priority int) {
	e := r.components[ComponentName(kind, name)]
	if e.component == nil {
		panic(fmt.Sprintf("framework: priority of %s %s, which is not registered", kind, name))
	}
	e.info.Priority = priority
	r.components[ComponentName(kind, name)] = e
}

// SetNode names the component that serves the processes of a node on behalf of another one of the same kind (Requirement.Node). It panics if one
// of them is not registered.
func (r *Registry) SetNode(kind Kind, name, node string) {
	e := r.components[ComponentName(kind, name)]
	if _, there := r.Lookup(kind, node); e.component == nil || !there {
		panic(fmt.Sprintf("framework: %s %s for the node, of %s, which are not both registered", kind, node, name))
	}
	e.nodeComponent = node
	r.components[ComponentName(kind, name)] = e
}

// Node returns the component that SetNode has named, or "".
func (r *Registry) Node(kind Kind, name string) string {
	return r.components[ComponentName(kind, name)].nodeComponent
}

// SetDefault overrides the default of a parameter, as components.yaml does. The parameter may be registered later. Defaults reports unknown names.
func (r *Registry) SetDefault(name, value string) { r.manifestDefaults[name] = value }

// Kinds returns the frameworks of ferry, then others in the order of registration.
func (r *Registry) Kinds() []Kind { return slices.Clone(r.kinds) }

// Components returns the components of a kind by descending priority, then by name.
func (r *Registry) Components(kind Kind) []Component {
	var cs []Component
	for _, e := range r.byPriority(kind) {
		if e.component != nil {
			cs = append(cs, e.component)
		}
	}
	return cs
}

// Lookup returns the component of that kind and name.
func (r *Registry) Lookup(kind Kind, name string) (Component, bool) {
	e := r.components[ComponentName(kind, name)]
	return e.component, e.component != nil
}

// EnvParam returns the parameter of an environment variable. The variable's name does not determine it, because '_' replaces both '.' and itself.
func (r *Registry) EnvParam(variable string) (name string, ok bool) {
	name, ok = r.nameByVariable[variable]
	return name, ok
}

// EnvParamRenamed returns the present variable of a parameter whose former name has the given environment variable, or "".
func (r *Registry) EnvParamRenamed(variable string) string {
	for _, s := range r.specByName {
		if s.FormerName != "" && EnvName(s.FormerName) == variable {
			return EnvName(s.Name)
		}
	}
	return ""
}

// EnvNames returns the environment variables of all parameters, sorted.
func (r *Registry) EnvNames() []string { return slices.Sorted(maps.Keys(r.nameByVariable)) }

// Defaults returns the default values. It returns ErrConfig if components.yaml overrides an unknown parameter or has an invalid value.
func (r *Registry) Defaults() (*Values, error) {
	base, specs := valuesOf(r.specByName), maps.Clone(r.specByName)
	for _, name := range slices.Sorted(maps.Keys(r.manifestDefaults)) {
		text := r.manifestDefaults[name]
		if err := base.Check(Setting{Name: name, Value: text, Source: SourceManifest}); err != nil {
			return nil, err
		}
		over := *specs[name]
		over.Default, over.DefaultSource = text, SourceManifest
		specs[name] = &over
	}
	return valuesOf(specs), nil
}

func (r *Registry) byPriority(kind Kind) []entry {
	entries := slices.Collect(maps.Values(r.components))
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.info.Kind != kind })
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.info.Priority, a.info.Priority), cmp.Compare(a.info.Name, b.info.Name))
	})
	return entries
}

// add panics if the name is bad or taken.
func (r *Registry) add(e entry) {
	kind, name := e.info.Kind, e.info.Name
	if !ValidName(string(kind)) || !ValidName(name) {
		panic(fmt.Sprintf("framework: bad component name %q of kind %q: want a lower case letter, then letters, digits and '_'", name, kind))
	}
	if _, ok := r.components[ComponentName(kind, name)]; ok {
		panic(fmt.Sprintf("framework: %s %s is registered twice", kind, name))
	}
	if !slices.Contains(r.kinds, kind) {
		r.addKind(kind)
	}
	r.components[ComponentName(kind, name)] = e
}

// addKind adds a framework and its selection parameter.
func (r *Registry) addKind(kind Kind) {
	r.kinds = append(r.kinds, kind)
	r.RegisterParams(ParamSpec{
		Name: string(kind), Type: TypeString,
		Doc:   fmt.Sprintf("%s components to use, in this order; or ^ and those not to use", kind),
		Level: LevelUser, Scope: ScopeProcess,
	})
}
