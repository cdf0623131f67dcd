package framework

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Sources of values that were not set. Other sources are texts for messages, such as "file /etc/ferry/config.yaml" or "environment FERRY_BTL".
const (
	SourceDefault  = "default"
	SourceManifest = "components.yaml"
)

// Setting sets one parameter.
type Setting struct {
	// Full name of the parameter.
	Name  string
	Value string
	// For messages, for example "flag --set" or "environment FERRY_BTL".
	Source string
	// IsStanding reports that a file sets it for all jobs.
	IsStanding bool
}

// Value is the text of a parameter and its source.
type Value struct {
	Text, Source string
	IsStanding   bool // That of Setting.
}

// isSet reports whether the value was set.
func (v Value) isSet() bool { return v.Source != SourceDefault && v.Source != SourceManifest }

// Values holds a value for every parameter of a registry. It is immutable and
// safe for concurrent use. (*Registry).Defaults makes the first one.
type Values struct {
	// Shared between Values and immutable.
	specByName map[string]*ParamSpec
	// One for each spec.
	valueByName map[string]Value
}

// valuesOf returns the defaults of specs. It keeps specs.
func valuesOf(specs map[string]*ParamSpec) *Values {
	v := &Values{specs, make(map[string]Value, len(specs))}
	for name, s := range specs {
		v.valueByName[name] = Value{Text: s.Default, Source: s.DefaultSource}
	}
	return v
}

// Get returns the value of the parameter name; ok is false if there is no such
// parameter.
func (v *Values) Get(name string) (value Value, ok bool) {
	value, ok = v.valueByName[name]
	return value, ok
}

// Spec returns the description of the parameter name.
func (v *Values) Spec(name string) (spec ParamSpec, ok bool) {
	s, ok := v.specByName[name]
	if !ok {
		return ParamSpec{}, false
	}
	return *s, true
}

// Names returns the full names of all parameters, sorted.
func (v *Values) Names() []string { return slices.Sorted(maps.Keys(v.specByName)) }

// With returns Values with the texts of set, all from source. It does not change v. Errors are those of Set.
func (v *Values) With(source string, set map[string]string) (*Values, error) {
	settings := make([]Setting, 0, len(set))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		settings = append(settings, Setting{Name: name, Value: set[name], Source: source})
	}
	return v.Set(settings...)
}

// Set returns Values with settings applied. The last setting of a name counts. It does not change v. Errors are those of Check.
func (v *Values) Set(settings ...Setting) (*Values, error) {
	if err := v.Check(settings...); err != nil {
		return nil, err
	}
	w := &Values{v.specByName, maps.Clone(v.valueByName)}
	for _, s := range settings {
		w.valueByName[s.Name] = Value{s.Value, s.Source, s.IsStanding}
	}
	return w, nil
}

// Check returns ErrConfig for an invalid setting. It may have an unknown name, for which the message suggests the nearest known one, or a text that its
// parameter does not accept. Both messages have the source.
func (v *Values) Check(settings ...Setting) error {
	for _, s := range settings {
		spec, ok := v.specByName[s.Name]
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
	for _, spec := range v.specByName {
		if spec.FormerName == name {
			return "; it is now " + spec.Name
		}
	}
	if near := Nearest(name, v.Names()); near != "" {
		return "; the nearest known name is " + near
	}
	return ""
}

// parsedValue returns the value of the parameter name.
func (v *Values) parsedValue(name string) (any, error) {
	value, ok := v.valueByName[name]
	if !ok {
		return nil, fmt.Errorf("%w: parameter %s is not registered%s", ErrConfig, name, v.nearest(name))
	}
	parsed, err := v.specByName[name].parse(value.Text)
	if err != nil {
		return nil, fmt.Errorf("%w: parameter %s (%s): %w", ErrConfig, name, value.Source, err)
	}
	return parsed, nil
}

// Diff returns the names of the parameters of a scope whose values differ between v and w, sorted. Different spellings of a value ("4KiB",
// "4096") are equal. A parameter that only one of them has differs.
func (v *Values) Diff(w *Values, scope string) []string {
	var names []string
	specs := maps.Clone(v.specByName)
	maps.Copy(specs, w.specByName)
	for name, spec := range specs {
		if spec.Scope == scope && !v.hasSameValue(w, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (v *Values) hasSameValue(w *Values, name string) bool {
	x, errX := v.parsedValue(name)
	y, errY := w.parsedValue(name)
	return errX == nil && errY == nil && canonicalText(x) == canonicalText(y)
}

// String lists the values that were set, without secrets, for logs.
func (v *Values) String() string {
	var set []string
	for _, name := range v.Names() {
		if value, spec := v.valueByName[name], v.specByName[name]; value.Source != spec.DefaultSource {
			set = append(set, fmt.Sprintf("%s=%s (%s)", name, spec.Redact(value.Text), value.Source))
		}
	}
	return strings.Join(set, ", ")
}
