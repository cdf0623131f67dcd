package framework

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The levels say who a parameter is for.
const (
	LevelUser      = "user"      // anyone who runs a program
	LevelTuner     = "tuner"     // who tunes a machine or an application
	LevelDeveloper = "developer" // who works on a component, and the launcher
)

// The scopes say what shares one value of a parameter.
const (
	ScopeProcess      = "process"      // fixed by the first session that is open
	ScopeSession      = "session"      // each session has its own
	ScopeCommunicator = "communicator" // each communicator has its own
)

// The types of parameters, as in ParamSpec.Type.
const (
	TypeBool     = "bool"
	TypeInt      = "int"
	TypeFloat    = "float"
	TypeString   = "string"
	TypeList     = "list" // comma separated
	TypeDuration = "duration"
	TypeSize     = "size"
)

// ParamSpec describes one parameter.
type ParamSpec struct {
	Name          string   // in full: "btl.shm.eager_limit"
	Type          string   // one of the Type constants
	Default       string   // text of the value when nobody sets one
	DefaultSource string   // SourceDefault, or SourceManifest when components.yaml overrides the tag
	Unit          string   // "bytes"; may be empty
	Doc           string   // one line
	Level         string   // one of the Level constants
	Scope         string   // one of the Scope constants
	Secret        bool     // the value is never printed
	Choices       []string // if not nil, the value (each element of a list) is one of these
	Min, Max      string   // bounds, inclusive; empty for none
}

// EnvName returns the environment variable that sets the parameter name:
// FERRY_BTL_SHM_EAGER_LIMIT for "btl.shm.eager_limit".
func EnvName(name string) string {
	return "FERRY_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

// Redact returns text, or what may be printed in its place if the parameter is
// secret.
func (s *ParamSpec) Redact(text string) string {
	if s.Secret && text != "" {
		return "(secret)"
	}
	return text
}

// ParamsOf returns the parameters that params, a pointer to a struct, declares
// by the tags of its fields, in the order of the fields:
//
//	Eager framework.Size `param:"eager_limit" default:"4KiB" unit:"bytes" level:"tuner" scope:"process" doc:"longest eager message"`
//
// The full name is prefix + "." + the param tag. Needed are param, default,
// level, scope and doc; optional are unit, min, max (inclusive; numbers, sizes
// and durations), choices (comma separated; strings and lists) and secret:"true".
// A field's type is bool, int, int64, float64, string, []string, time.Duration
// or Size. Every exported field is a parameter, except under `param:"-"`.
//
// It panics when a tag is wrong: that is a mistake in the component, and the
// first program that registers the component shows it.
func ParamsOf(prefix string, params any) []ParamSpec {
	t := reflect.TypeOf(params)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("framework: parameters of %s: %T is not a pointer to a struct", prefix, params))
	}
	t = t.Elem()
	specs := make([]ParamSpec, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Tag.Get("param") == "-" {
			continue
		}
		s, err := specOf(prefix, f)
		if err != nil {
			panic(fmt.Sprintf("framework: parameters of %s: field %s: %v", prefix, f.Name, err))
		}
		specs = append(specs, s)
	}
	return specs
}

func specOf(prefix string, f reflect.StructField) (ParamSpec, error) {
	tag := f.Tag
	s := ParamSpec{
		Name: prefix + "." + tag.Get("param"), DefaultSource: SourceDefault,
		Unit: tag.Get("unit"), Doc: tag.Get("doc"), Level: tag.Get("level"), Scope: tag.Get("scope"),
		Min: tag.Get("min"), Max: tag.Get("max"),
	}
	if !ValidName(tag.Get("param")) {
		return s, fmt.Errorf("param %q: want a lower case letter, then letters, digits and '_'", tag.Get("param"))
	}
	switch reflect.New(f.Type).Interface().(type) {
	case *bool:
		s.Type = TypeBool
	case *int, *int64:
		s.Type = TypeInt
	case *float64:
		s.Type = TypeFloat
	case *string:
		s.Type = TypeString
	case *[]string:
		s.Type = TypeList
	case *time.Duration:
		s.Type = TypeDuration
	case *Size:
		s.Type = TypeSize
		s.Unit = cmp.Or(s.Unit, "bytes")
	default:
		return s, fmt.Errorf("a parameter can't have type %s", f.Type)
	}
	switch s.Level {
	case LevelUser, LevelTuner, LevelDeveloper:
	default:
		return s, fmt.Errorf("level %q: want user, tuner or developer", s.Level)
	}
	switch s.Scope {
	case ScopeProcess, ScopeSession, ScopeCommunicator:
	default:
		return s, fmt.Errorf("scope %q: want process, session or communicator", s.Scope)
	}
	if s.Doc == "" {
		return s, fmt.Errorf("no doc tag")
	}
	switch secret := tag.Get("secret"); secret {
	case "", "false":
	case "true":
		s.Secret = true
	default:
		return s, fmt.Errorf("secret %q: want true or false", secret)
	}
	if c := tag.Get("choices"); c != "" {
		if s.Type != TypeString && s.Type != TypeList {
			return s, fmt.Errorf("choices need a string or a list, not a %s", s.Type)
		}
		s.Choices = splitList(c)
	}
	for _, bound := range []string{s.Min, s.Max} {
		if bound == "" {
			continue
		}
		if v, err := s.parseType(bound); err != nil || !ordered(v) {
			return s, fmt.Errorf("bound %q is no ordered value of type %s", bound, s.Type)
		}
	}
	def, ok := tag.Lookup("default")
	if !ok {
		return s, fmt.Errorf("no default tag")
	}
	s.Default = def
	if _, err := s.parse(def); err != nil {
		return s, fmt.Errorf("default: %w", err)
	}
	return s, nil
}

// parse reads text as a value of the parameter: bool, int64, float64, string,
// []string, time.Duration or Size. The error says what is wanted.
func (s *ParamSpec) parse(text string) (any, error) {
	v, err := s.parseType(text)
	if err != nil {
		return nil, s.bad(text)
	}
	switch v := v.(type) {
	case string:
		if s.Choices != nil && !slices.Contains(s.Choices, v) {
			return nil, s.bad(text)
		}
	case []string:
		for _, e := range v {
			if s.Choices != nil && !slices.Contains(s.Choices, e) {
				return nil, s.bad(text)
			}
		}
	default:
		// The bounds were parsed when the tags were read.
		if low, err := s.parseType(s.Min); s.Min != "" && (err != nil || less(v, low)) {
			return nil, s.bad(text)
		}
		if high, err := s.parseType(s.Max); s.Max != "" && (err != nil || less(high, v)) {
			return nil, s.bad(text)
		}
	}
	return v, nil
}

func (s *ParamSpec) parseType(text string) (any, error) {
	trimmed := strings.TrimSpace(text)
	switch s.Type {
	case TypeBool:
		switch strings.ToLower(trimmed) {
		case "true", "1", "yes", "on":
			return true, nil
		case "false", "0", "no", "off":
			return false, nil
		}
		return nil, strconv.ErrSyntax
	case TypeInt:
		return strconv.ParseInt(trimmed, 10, 64)
	case TypeFloat:
		f, err := strconv.ParseFloat(trimmed, 64)
		if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return nil, strconv.ErrRange
		}
		return f, err
	case TypeDuration:
		return time.ParseDuration(trimmed)
	case TypeSize:
		return ParseSize(trimmed)
	case TypeList:
		return splitList(text), nil
	}
	return text, nil
}

// bad is the error for a text that is no value of the parameter.
func (s *ParamSpec) bad(text string) error {
	var want string
	switch s.Type {
	case TypeBool:
		want = "true or false"
	case TypeInt:
		want = "a whole number"
	case TypeFloat:
		want = "a number"
	case TypeDuration:
		want = "a duration such as 250ms or 10s"
	case TypeSize:
		want = "a size such as 4096, 64KiB or 4MiB"
	case TypeList:
		want = "a comma separated list of " + strings.Join(s.Choices, ", ")
	case TypeString:
		want = "one of " + strings.Join(s.Choices, ", ")
	}
	if s.Min != "" {
		want += ", at least " + s.Min
	}
	if s.Max != "" {
		want += ", at most " + s.Max
	}
	if s.Secret {
		return fmt.Errorf("bad value: want %s", want)
	}
	return fmt.Errorf("bad value %q: want %s", text, want)
}

func ordered(v any) bool {
	switch v.(type) {
	case int64, float64, time.Duration, Size:
		return true
	}
	return false
}

// less compares two values that parseType made for one spec.
func less(a, b any) bool {
	switch a := a.(type) {
	case int64:
		return a < b.(int64)
	case float64:
		return a < b.(float64)
	case time.Duration:
		return a < b.(time.Duration)
	case Size:
		return a < b.(Size)
	}
	return false
}

// splitList splits at commas and trims spaces. The empty text is the empty list.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	for i, p := range parts {
		parts[i] = strings.TrimSpace(p)
	}
	return parts
}

// ValidName reports whether s can name a kind, a component or a parameter: a
// lower case letter, then lower case letters, digits and '_'.
func ValidName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || i > 0 && (c >= '0' && c <= '9' || c == '_')) {
			return false
		}
	}
	return s != ""
}

// reservedWords structure configuration files, and FERRY_CONFIG names a file: no
// parameter's name begins with one of them.
var reservedWords = []string{"config", "params", "select", "version"}

// ValidKind reports whether s can name a framework: a ValidName that configuration
// files don't use otherwise.
func ValidKind(s string) bool { return ValidName(s) && !slices.Contains(reservedWords, s) }
