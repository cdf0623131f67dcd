package framework

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The sources of values that nobody set. All other sources are texts for
// people, such as "file /etc/ferry/config.yaml" or "environment FERRY_BTL".
const (
	SourceDefault  = "default"
	SourceManifest = "components.yaml"
)

// Setting sets one parameter.
type Setting struct {
	Name   string // full name of the parameter
	Value  string // its text
	Source string // where it comes from, for messages: "flag --set", "environment FERRY_BTL"
	// Standing says that it was set for all jobs, in a file, and not for this one.
	Standing bool
}

// Value is the text of a parameter and where it came from.
type Value struct {
	Text, Source string
	Standing     bool // as in a Setting
}

// set says that somebody has set it.
func (v Value) set() bool { return v.Source != SourceDefault && v.Source != SourceManifest }

// Values holds a value for every parameter of a registry. It is immutable and
// safe for concurrent use. (*Registry).Defaults makes the first one.
type Values struct {
	specs  map[string]*ParamSpec // shared between Values, never written
	values map[string]Value      // one for each spec
}

// valuesOf returns the defaults of specs, which it keeps.
func valuesOf(specs map[string]*ParamSpec) *Values {
	v := &Values{specs, make(map[string]Value, len(specs))}
	for name, s := range specs {
		v.values[name] = Value{Text: s.Default, Source: s.DefaultSource}
	}
	return v
}

// Get returns the value of the parameter name; ok is false if there is no such
// parameter.
func (v *Values) Get(name string) (value Value, ok bool) {
	value, ok = v.values[name]
	return value, ok
}

// Spec returns the description of the parameter name.
func (v *Values) Spec(name string) (spec ParamSpec, ok bool) {
	s, ok := v.specs[name]
	if !ok {
		return ParamSpec{}, false
	}
	return *s, true
}

// Names returns the full names of all parameters, sorted.
func (v *Values) Names() []string { return slices.Sorted(maps.Keys(v.specs)) }

// With returns Values in which the parameters of set have new values, all from
// source. v is unchanged. Errors are those of Set.
func (v *Values) With(source string, set map[string]string) (*Values, error) {
	settings := make([]Setting, 0, len(set))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		settings = append(settings, Setting{Name: name, Value: set[name], Source: source})
	}
	return v.Set(settings...)
}

// Set returns Values in which settings hold, the last one of a name. v is
// unchanged. Errors are those of Check.
func (v *Values) Set(settings ...Setting) (*Values, error) {
	if err := v.Check(settings...); err != nil {
		return nil, err
	}
	w := &Values{v.specs, maps.Clone(v.values)}
	for _, s := range settings {
		w.values[s.Name] = Value{s.Value, s.Source, s.Standing}
	}
	return w, nil
}

// Check says which of settings can't be set. Errors answer ErrConfig: an unknown
// name (the message names the nearest known one), and a text that its
// parameter doesn't accept. Both name the source.
func (v *Values) Check(settings ...Setting) error {
	for _, s := range settings {
		spec, ok := v.specs[s.Name]
		if !ok {
			return fmt.Errorf("%w: unknown parameter %q (%s)%s", ErrConfig, s.Name, s.Source, v.nearest(s.Name))
		}
		if _, err := spec.parse(s.Value); err != nil {
			return fmt.Errorf("%w: parameter %s (%s): %w", ErrConfig, s.Name, s.Source, err)
		}
	}
	return nil
}

func (v *Values) nearest(name string) string {
	if near := Nearest(name, v.Names()); near != "" {
		return "; the nearest known name is " + near
	}
	return ""
}

// parsed returns the value of the parameter name.
func (v *Values) parsed(name string) (any, error) {
	value, ok := v.values[name]
	if !ok {
		return nil, fmt.Errorf("%w: parameter %s is not registered%s", ErrConfig, name, v.nearest(name))
	}
	parsed, err := v.specs[name].parse(value.Text)
	if err != nil {
		return nil, fmt.Errorf("%w: parameter %s (%s): %w", ErrConfig, name, value.Source, err)
	}
	return parsed, nil
}

// Diff returns the names of the parameters of the given scope whose values
// differ between v and w, sorted. Texts that mean the same ("4KiB", "4096") do
// not differ. A parameter that only one of them has differs.
func (v *Values) Diff(w *Values, scope string) []string {
	var names []string
	specs := maps.Clone(v.specs)
	maps.Copy(specs, w.specs)
	for name, spec := range specs {
		if spec.Scope == scope && !v.same(w, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (v *Values) same(w *Values, name string) bool {
	x, errX := v.parsed(name)
	y, errY := w.parsed(name)
	return errX == nil && errY == nil && plain(x) == plain(y)
}

// String lists what was set, secrets left out: for logs.
func (v *Values) String() string {
	var set []string
	for _, name := range v.Names() {
		if value, spec := v.values[name], v.specs[name]; value.Source != spec.DefaultSource {
			set = append(set, fmt.Sprintf("%s=%s (%s)", name, spec.Redact(value.Text), value.Source))
		}
	}
	return strings.Join(set, ", ")
}
