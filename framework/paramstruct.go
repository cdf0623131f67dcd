package framework

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Declared is the parameters of a component without a Go struct for them, for example in another process. Component.Params returns a new one with
// Specs. The caller sets Texts.
type Declared struct {
	// With the last part of the name only, for example "eager_limit".
	Specs []ParamSpec

	// Texts has the checked value of each parameter in Specs, by the same name. Values have the canonical spelling of their type, for
	// example true, 250ms, 4KiB or a,b.
	Texts map[string]string
}

// ParamsOf returns the parameters that params declares. Their full names begin with prefix and a dot. params is nil, a *Declared, or a pointer to
// a struct with fields described by tags:
//
//	Eager framework.Size `param:"eager_limit" default:"4KiB" unit:"bytes" level:"tuner" scope:"process" doc:"longest eager message"`
//
// The tags param, default, level, scope and doc are required. The tags unit, min, max (inclusive, for numbers, sizes and durations), choices
// (comma separated, for strings and lists), former (the name in earlier versions), secret:"true" and trusted:"true" are optional. A field's type is bool, int, int64, float64, string,
// []string, time.Duration or Size. Every exported field is a parameter, except with `param:"-"`.
//
// A field with only the tag reads declares no parameter. Decode sets it to the value of the parameter with that full name, which is declared
// elsewhere.
//
//	Singleton bool `reads:"bootstrap.local.singleton"`
//
// ParamsOf panics if params has another type or a tag is malformed. This is an error of the component, found by the first program that registers
// it. Registration checks the contents of the tags.
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

// fieldTypes maps types of fields to types of parameters.
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
		FormerName: formerName(prefix, tag("former")),
		Secret:     tag("secret") == "true", Trusted: tag("trusted") == "true", Min: tag("min"), Max: tag("max"),
	}
	if s.Type == "" {
		return s, fmt.Errorf("field %s: a parameter cannot have type %s", f.Name, f.Type)
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

func formerName(prefix, former string) string {
	if former == "" {
		return ""
	}
	return prefix + "." + former
}

// Decode sets params, as for ParamsOf, to the values of the parameters prefix.*. It returns ErrConfig if v lacks one of them, because another
// registry created v, and if params is a Checker that rejects a value. A field with the tag reads keeps its value if v lacks the parameter, because
// the program may lack its component.
func (v *Values) Decode(prefix string, params any) error {
	if d, ok := params.(*Declared); ok {
		d.Texts = make(map[string]string, len(d.Specs))
		for _, s := range d.Specs {
			parsed, err := v.parsedValue(prefix + "." + s.Name)
			if err != nil {
				return err
			}
			d.Texts[s.Name] = canonicalText(parsed)
		}
		return nil
	}
	err := eachField(params, func(f reflect.StructField, field reflect.Value) error {
		name := f.Tag.Get("reads")
		if name == "" {
			name = prefix + "." + f.Tag.Get("param")
		} else if _, ok := v.valueByName[name]; !ok {
			return nil
		}
		parsed, err := v.parsedValue(name)
		if err == nil && !reflect.TypeOf(parsed).ConvertibleTo(f.Type) {
			return fmt.Errorf("%w: field %s cannot have the value of %s, a %T", ErrConfig, f.Name, name, parsed)
		}
		if err == nil {
			field.Set(reflect.ValueOf(parsed).Convert(f.Type))
		}
		return err
	})
	if c, ok := params.(Checker); ok && err == nil {
		if name, wrong := c.Check(); wrong != nil {
			name = prefix + "." + name
			return fmt.Errorf("%w: parameter %s (%s): %w", ErrConfig, name, v.valueByName[name].Source, wrong)
		}
	}
	return err
}

// Checker is an optional interface of a parameter struct for rules that tags cannot express, for example that a text is a range of ports.
type Checker interface {
	// Check returns the name of a parameter with an invalid value, without prefix, and an error with the value and the expected format. It
	// returns a nil error if all values are valid.
	Check() (param string, err error)
}

// FillDefaults sets params, as for ParamsOf, to its defaults. It panics as a registry does. Tests use it, and components without a registry.
func FillDefaults(params any) {
	specs := map[string]*ParamSpec{}
	for _, s := range ParamsOf("params", params) {
		specs[s.Name] = &s
	}
	if err := valuesOf(specs).Decode("params", params); err != nil {
		panic(fmt.Sprintf("framework: defaults of %T: %v", params, err))
	}
}

// eachField calls f for each parameter field of *params.
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
