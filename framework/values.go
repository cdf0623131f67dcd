package framework

import (
	"fmt"
	"maps"
	"reflect"
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
}

// Value is the text of a parameter and where it came from.
type Value struct{ Text, Source string }

// Values holds a value for every parameter of a registry. It is immutable and
// safe for concurrent use. (*Registry).Defaults makes the first one.
type Values struct {
	specs map[string]*ParamSpec // shared between Values, never written
	set   map[string]Value      // what differs from the defaults
}

// Get returns the value of the parameter name; ok is false if there is no such
// parameter.
func (v *Values) Get(name string) (value Value, ok bool) {
	s, ok := v.specs[name]
	if !ok {
		return Value{}, false
	}
	if value, ok = v.set[name]; ok {
		return value, true
	}
	return Value{s.Default, s.DefaultSource}, true
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
		settings = append(settings, Setting{name, set[name], source})
	}
	return v.Set(settings...)
}

// Set returns Values in which settings hold, the last one of a name. v is
// unchanged.
//
// Errors answer ErrConfig: an unknown name (the message names the nearest known
// one), and a text that is no value of its parameter. Both say the source.
func (v *Values) Set(settings ...Setting) (*Values, error) {
	if len(settings) == 0 {
		return v, nil
	}
	w := &Values{specs: v.specs, set: make(map[string]Value, len(v.set)+len(settings))}
	maps.Copy(w.set, v.set)
	for _, s := range settings {
		spec, ok := v.specs[s.Name]
		if !ok {
			return nil, fmt.Errorf("%w: unknown parameter %q (%s)%s", ErrConfig, s.Name, s.Source, v.nearest(s.Name))
		}
		if _, err := spec.parse(s.Value); err != nil {
			return nil, fmt.Errorf("%w: parameter %s (%s): %w", ErrConfig, s.Name, s.Source, err)
		}
		w.set[s.Name] = Value{s.Value, s.Source}
	}
	return w, nil
}

func (v *Values) nearest(name string) string {
	if near := Nearest(name, v.Names()); near != "" {
		return "; the nearest known name is " + near
	}
	return ""
}

// Decode fills params, a pointer to a struct as ParamsOf describes it, with the
// values of the parameters prefix.*. It fails with ErrConfig when v holds no
// such parameter, which means that v was made by a registry that does not know
// the struct.
func (v *Values) Decode(prefix string, params any) error {
	return eachField(params, func(tag string, field reflect.Value) error {
		name := prefix + "." + tag
		spec, ok := v.specs[name]
		if !ok {
			return fmt.Errorf("%w: parameter %s is not registered%s", ErrConfig, name, v.nearest(name))
		}
		value, _ := v.Get(name)
		parsed, err := spec.parse(value.Text)
		if err != nil {
			return fmt.Errorf("%w: parameter %s (%s): %w", ErrConfig, name, value.Source, err)
		}
		assign(field, parsed)
		return nil
	})
}

// FillDefaults fills params, a pointer to a struct as ParamsOf describes it,
// with the defaults of its tags. It panics where ParamsOf does. It is for tests
// and for components that are used without a registry.
func FillDefaults(params any) {
	specs := map[string]*ParamSpec{}
	list := ParamsOf("params", params)
	for i := range list {
		specs[list[i].Name] = &list[i]
	}
	if err := (&Values{specs: specs}).Decode("params", params); err != nil {
		panic(fmt.Sprintf("framework: defaults of %T: %v", params, err)) // ParamsOf has checked each default
	}
}

// Diff returns the names of the parameters of the given scope whose values
// differ between v and w, sorted. Texts that mean the same ("4KiB", "4096") do
// not differ. A parameter that only one of them has differs.
func (v *Values) Diff(w *Values, scope string) []string {
	var names []string
	for name, spec := range v.specs {
		if spec.Scope == scope && !v.same(w, name) {
			names = append(names, name)
		}
	}
	for name, spec := range w.specs {
		if _, both := v.specs[name]; !both && spec.Scope == scope {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (v *Values) same(w *Values, name string) bool {
	a, _ := v.Get(name)
	b, ok := w.Get(name)
	if !ok {
		return false
	}
	if a.Text == b.Text {
		return true
	}
	x, errX := v.specs[name].parse(a.Text)
	y, errY := w.specs[name].parse(b.Text)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// eachField calls f for each field of *params that is a parameter.
func eachField(params any, f func(tag string, field reflect.Value) error) error {
	p := reflect.ValueOf(params)
	if p.Kind() != reflect.Pointer || p.IsNil() || p.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("%w: parameters decode into a pointer to a struct, not %T", ErrConfig, params)
	}
	e := p.Elem()
	for i := range e.NumField() {
		field := e.Type().Field(i)
		tag := field.Tag.Get("param")
		if !field.IsExported() || tag == "-" {
			continue
		}
		if err := f(tag, e.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

// assign stores what parse returned in a field of the type that specOf admits.
func assign(field reflect.Value, parsed any) {
	if list, ok := parsed.([]string); ok {
		field.Set(reflect.ValueOf(slices.Clone(list)))
		return
	}
	field.Set(reflect.ValueOf(parsed).Convert(field.Type()))
}

// String lists what was set, secrets left out: for logs.
func (v *Values) String() string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(v.set)) {
		if i > 0 {
			b.WriteString(", ")
		}
		value := v.set[name]
		fmt.Fprintf(&b, "%s=%s (%s)", name, v.specs[name].Redact(value.Text), value.Source)
	}
	return b.String()
}
