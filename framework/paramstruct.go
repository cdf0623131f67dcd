package framework

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Declared is the parameters of a component that has no Go struct for them, such
// as one in another process: it gives descriptions, and gets names and texts.
// Component.Params returns a new one with Specs; who fills it sets Texts.
type Declared struct {
	Specs []ParamSpec // with the last part of the name only: "eager_limit"

	// Texts has the value of each parameter in Specs, by the same name. They are
	// checked, and in their type's plain spelling: true, 250ms, 4KiB, a,b.
	Texts map[string]string
}

// ParamsOf returns the parameters that params declares; their full names begin
// with prefix and a dot. Params is nil, a *Declared, or a pointer to a struct. The
// tags of a struct's fields describe them, in the order of the fields:
//
//	Eager framework.Size `param:"eager_limit" default:"4KiB" unit:"bytes" level:"tuner" scope:"process" doc:"longest eager message"`
//
// Needed are param, default, level, scope and doc; optional are unit, min, max
// (inclusive; numbers, sizes and durations), choices (comma separated; strings and
// lists), secret:"true" and trusted:"true". A field's type is bool, int, int64, float64, string,
// []string, time.Duration or Size. Every exported field is a parameter, except
// under `param:"-"`.
//
// A field whose only tag is reads doesn't declare a parameter: Decode gives it the value of
// the parameter with that full name, which something else declares.
//
//	Singleton bool `reads:"bootstrap.local.singleton"`
//
// It panics when params is something else or a tag can't be read: that is a mistake
// in the component, and the first program that registers the component shows it.
// What the tags say is checked by Check, when they are registered.
func ParamsOf(prefix string, params any) []ParamSpec {
	if d, ok := params.(*Declared); ok {
		specs := slices.Clone(d.Specs)
		for i := range specs {
			specs[i].Name = prefix + "." + specs[i].Name
		}
		return specs
	}
	var specs []ParamSpec
	err := eachField(params, func(f reflect.StructField, _ reflect.Value) error {
		if f.Tag.Get("reads") != "" {
			return nil
		}
		s, err := specOf(prefix, f)
		specs = append(specs, s)
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("framework: parameters of %s: %v", prefix, err))
	}
	return specs
}

// fieldTypes are the types of parameters by those of fields.
var fieldTypes = map[reflect.Type]string{
	reflect.TypeFor[bool](): TypeBool, reflect.TypeFor[int](): TypeInt, reflect.TypeFor[int64](): TypeInt,
	reflect.TypeFor[float64](): TypeFloat, reflect.TypeFor[string](): TypeString, reflect.TypeFor[[]string](): TypeList,
	reflect.TypeFor[time.Duration](): TypeDuration, reflect.TypeFor[Size](): TypeSize,
}

func specOf(prefix string, f reflect.StructField) (ParamSpec, error) {
	tag := f.Tag.Get
	s := ParamSpec{
		Name: prefix + "." + tag("param"), Type: fieldTypes[f.Type],
		Unit: tag("unit"), Doc: tag("doc"), Level: tag("level"), Scope: tag("scope"),
		Secret: tag("secret") == "true", Trusted: tag("trusted") == "true", Min: tag("min"), Max: tag("max"),
	}
	if s.Type == "" {
		return s, fmt.Errorf("field %s: a parameter can't have type %s", f.Name, f.Type)
	}
	for _, flag := range []string{"secret", "trusted"} {
		if v := tag(flag); v != "" && v != "true" && v != "false" {
			return s, fmt.Errorf("field %s: %s %q: want true or false", f.Name, flag, v)
		}
	}
	if s.Type == TypeSize && s.Unit == "" {
		s.Unit = "bytes"
	}
	s.Choices, _ = splitList(tag("choices"))
	var ok bool
	if s.Default, ok = f.Tag.Lookup("default"); !ok {
		return s, fmt.Errorf("field %s: no default tag", f.Name)
	}
	return s, nil
}

// Decode fills params, which is as for ParamsOf, with the values of the parameters
// prefix.*. It fails with ErrConfig when v holds no such parameter, which means
// that v was made by a registry that does not know them, and when params is a Checker that
// refuses a value. A field that reads a parameter which v does not hold is left alone: who
// declares that may not be in the program.
func (v *Values) Decode(prefix string, params any) error {
	if d, ok := params.(*Declared); ok {
		d.Texts = make(map[string]string, len(d.Specs))
		for _, s := range d.Specs {
			parsed, err := v.parsed(prefix + "." + s.Name)
			if err != nil {
				return err
			}
			d.Texts[s.Name] = plain(parsed)
		}
		return nil
	}
	err := eachField(params, func(f reflect.StructField, field reflect.Value) error {
		name := f.Tag.Get("reads")
		if name == "" {
			name = prefix + "." + f.Tag.Get("param")
		} else if _, ok := v.values[name]; !ok {
			return nil
		}
		parsed, err := v.parsed(name)
		if err == nil && !reflect.TypeOf(parsed).ConvertibleTo(f.Type) {
			return fmt.Errorf("%w: field %s can't have the value of %s, a %T", ErrConfig, f.Name, name, parsed)
		}
		if err == nil {
			field.Set(reflect.ValueOf(parsed).Convert(f.Type))
		}
		return err
	})
	if c, ok := params.(Checker); ok && err == nil {
		if name, wrong := c.Check(); wrong != nil {
			name = prefix + "." + name
			return fmt.Errorf("%w: parameter %s (%s): %w", ErrConfig, name, v.values[name].Source, wrong)
		}
	}
	return err
}

// Checker is an optional ability of a parameter struct: it says what tags can't, such as
// that a text is a range of ports.
type Checker interface {
	// Check returns the parameter whose value makes no sense, without prefix, and why;
	// nil, if there is none. The error has the value, and what is wanted.
	Check() (param string, err error)
}

// FillDefaults fills params, which is as for ParamsOf, with its defaults. It
// panics where a registry does. It is for tests and for components that are used
// without a registry.
func FillDefaults(params any) {
	specs := map[string]*ParamSpec{}
	for _, s := range ParamsOf("params", params) {
		specs[s.Name] = &s
	}
	if err := valuesOf(specs).Decode("params", params); err != nil {
		panic(fmt.Sprintf("framework: defaults of %T: %v", params, err))
	}
}

// eachField calls f for each field of *params that is a parameter.
func eachField(params any, f func(reflect.StructField, reflect.Value) error) error {
	if params == nil {
		return nil
	}
	p := reflect.ValueOf(params)
	switch {
	case p.Kind() != reflect.Pointer || p.Type().Elem().Kind() != reflect.Struct:
		return fmt.Errorf("%w: parameters: %T is not a pointer to a struct", ErrConfig, params)
	case p.IsNil():
		return fmt.Errorf("%w: parameters: nil %T", ErrConfig, params)
	}
	for field, value := range p.Elem().Fields() {
		if !field.IsExported() || field.Tag.Get("param") == "-" {
			continue
		}
		if err := f(field, value); err != nil {
			return err
		}
	}
	return nil
}
