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

// Registry holds the components that a program has, those that it knows by name
// only, and the parameters of all. It is a value: there is no global registry,
// and tests make their own.
//
// Build a registry in one goroutine; after that, all methods that don't change
// it are safe for concurrent use. Mistakes in building it (a name twice, a bad
// tag) panic: they are mistakes in the program, found when it first starts.
type Registry struct {
	kinds      []Kind
	components map[string]registered // by ComponentName
	specs      map[string]*ParamSpec // by full name; never written after registration
	env        map[string]string     // environment variable -> full name
	defaults   map[string]string     // overrides from the manifest
	probeLimit time.Duration
}

type registered struct {
	component Component // nil if it is not built
	info      Info
	node      string // see SetNode
	notBuilt  Verdict
}

// NewRegistry returns a registry that has no components, and the selection
// parameters of the frameworks that ferry defines.
func NewRegistry() *Registry {
	r := &Registry{
		components: map[string]registered{},
		specs:      map[string]*ParamSpec{},
		env:        map[string]string{},
		defaults:   map[string]string{},
		// A probe is meant to take milliseconds. This bound only turns one that
		// hangs, in a driver for instance, into a verdict.
		probeLimit: 2 * time.Second,
	}
	for _, k := range []Kind{PML, MTL, BTL, Bootstrap, Coll} {
		r.addKind(k)
	}
	return r
}

// Clone returns an independent copy, to which more can be registered.
func (r *Registry) Clone() *Registry {
	c := *r
	c.kinds, c.components = slices.Clone(r.kinds), maps.Clone(r.components)
	c.specs, c.env, c.defaults = maps.Clone(r.specs), maps.Clone(r.env), maps.Clone(r.defaults)
	return &c
}

// Register adds c and its parameters. It panics when a component of that kind
// and name is there already, also as not built, or when a tag is bad.
func (r *Registry) Register(c Component) {
	if c == nil {
		panic("framework: Register of a nil component")
	}
	info := c.Info()
	r.add(registered{component: c, info: info})
	r.RegisterParams(ParamsOf(ComponentName(info.Kind, info.Name), c.Params())...)
}

// RegisterParams adds parameters by their full names: for groups that belong to no
// component, such as "cid" or "session". Who uses a group reads it by
// (*Values).Decode. It panics when a name is there already, or where Check fails.
func (r *Registry) RegisterParams(specs ...ParamSpec) {
	for _, s := range specs {
		if err := s.Check(); err != nil {
			panic(fmt.Sprintf("framework: parameter %s: %v", s.Name, err))
		}
		if first, _, _ := strings.Cut(s.Name, "."); slices.Contains(reservedWords, first) {
			panic(fmt.Sprintf("framework: parameter %s: names can't begin with %s", s.Name, first))
		}
		if _, ok := r.specs[s.Name]; ok {
			panic(fmt.Sprintf("framework: parameter %s is registered twice", s.Name))
		}
		env := EnvName(s.Name)
		if other, ok := r.env[env]; ok {
			panic(fmt.Sprintf("framework: parameters %s and %s would share the environment variable %s", other, s.Name, env))
		}
		s.DefaultSource = SourceDefault
		r.env[env] = s.Name
		r.specs[s.Name] = &s
	}
}

// NotBuilt records a component that users may ask for by name but that is not
// compiled in: reason says why, hint what they can do about it. It panics when
// the name is there already.
func (r *Registry) NotBuilt(kind Kind, name, reason, hint string) {
	r.add(registered{
		info:     Info{Kind: kind, Name: name, Priority: math.MinInt}, // behind all that are
		notBuilt: Verdict{Kind: kind, Name: name, Status: StatusNotBuilt, Reason: reason, Hint: hint},
	})
}

// SetPriority overrides the priority that the component gives itself. It panics
// when there is no such component.
func (r *Registry) SetPriority(kind Kind, name string, priority int) {
	e := r.components[ComponentName(kind, name)]
	if e.component == nil {
		panic(fmt.Sprintf("framework: priority of %s %s, which is not registered", kind, name))
	}
	e.info.Priority = priority
	r.components[ComponentName(kind, name)] = e
}

// SetNode says which component of the same kind serves the processes of a node for one
// that requires that (Requirement.Node). It panics when one of the two is not registered.
func (r *Registry) SetNode(kind Kind, name, node string) {
	e := r.components[ComponentName(kind, name)]
	if _, there := r.Lookup(kind, node); e.component == nil || !there {
		panic(fmt.Sprintf("framework: %s %s for the node, of %s, which are not both registered", kind, node, name))
	}
	e.node = node
	r.components[ComponentName(kind, name)] = e
}

// Node returns what SetNode has said of a component, or "".
func (r *Registry) Node(kind Kind, name string) string {
	return r.components[ComponentName(kind, name)].node
}

// SetDefault overrides the default of a parameter, as components.yaml asks. The
// parameter may be registered later; Defaults reports names that never were.
func (r *Registry) SetDefault(name, value string) { r.defaults[name] = value }

// Kinds returns the frameworks: those that ferry defines, then others in the
// order of registration.
func (r *Registry) Kinds() []Kind { return slices.Clone(r.kinds) }

// Components returns the components of a kind, by falling priority, equals by
// name.
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

// EnvParam returns the parameter that an environment variable sets. The name of
// a parameter can't be computed from the variable's, as '_' stands for both '.'
// and itself.
func (r *Registry) EnvParam(variable string) (name string, ok bool) {
	name, ok = r.env[variable]
	return name, ok
}

// EnvNames returns the environment variables that set a parameter, sorted.
func (r *Registry) EnvNames() []string { return slices.Sorted(maps.Keys(r.env)) }

// Defaults returns the values that hold when nobody sets anything. It fails with
// ErrConfig when components.yaml overrides a parameter that is not registered,
// or with a bad value.
func (r *Registry) Defaults() (*Values, error) {
	base, specs := valuesOf(r.specs), maps.Clone(r.specs)
	for _, name := range slices.Sorted(maps.Keys(r.defaults)) {
		text := r.defaults[name]
		if err := base.Check(Setting{Name: name, Value: text, Source: SourceManifest}); err != nil {
			return nil, err
		}
		over := *specs[name]
		over.Default, over.DefaultSource = text, SourceManifest
		specs[name] = &over
	}
	return valuesOf(specs), nil
}

func (r *Registry) byPriority(kind Kind) []registered {
	entries := slices.Collect(maps.Values(r.components))
	entries = slices.DeleteFunc(entries, func(e registered) bool { return e.info.Kind != kind })
	slices.SortFunc(entries, func(a, b registered) int {
		return cmp.Or(cmp.Compare(b.info.Priority, a.info.Priority), cmp.Compare(a.info.Name, b.info.Name))
	})
	return entries
}

// add panics if the name is bad or taken.
func (r *Registry) add(e registered) {
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
