package framework

import (
	"cmp"
	"fmt"
	"math"
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

// ParamSpec describes one parameter. It is plain data, so that it can come from
// another process; for a component that is compiled in, ParamsOf makes it from
// the tags of a struct.
type ParamSpec struct {
	Name          string   `json:"name"`              // in full: "btl.shm.eager_limit"
	Type          string   `json:"type"`              // one of the Type constants
	Default       string   `json:"default"`           // text of the value when nobody sets one
	DefaultSource string   `json:"-"`                 // SourceManifest when components.yaml overrides the component, else SourceDefault
	Unit          string   `json:"unit,omitempty"`    // "bytes"; may be empty
	Doc           string   `json:"doc"`               // one line
	Level         string   `json:"level"`             // one of the Level constants
	Scope         string   `json:"scope"`             // one of the Scope constants
	Secret        bool     `json:"secret,omitempty"`  // the value is never printed
	Trusted       bool     `json:"trusted,omitempty"` // the value names code to run or a file to write, so that a configuration file which another user can change must not set it
	Choices       []string `json:"choices,omitempty"` // if not nil, the value (each element of a list) is one of these
	Min           string   `json:"min,omitempty"`     // bounds, inclusive; empty for none
	Max           string   `json:"max,omitempty"`
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

// paramTypes says of each type what its values are.
var paramTypes = map[string]struct {
	want  string                         // completes "want", before the choices
	parse func(text string) (any, error) // the result's type depends on the parameter's only
	less  func(a, b any) bool            // compares two results; nil where bounds make no sense
}{
	TypeBool:     {"true or false", trimmed(parseBool), nil},
	TypeInt:      {"a whole number", trimmed(func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }), less[int64]},
	TypeFloat:    {"a number", trimmed(parseFloat), less[float64]},
	TypeString:   {"one of ", func(s string) (any, error) { return s, nil }, nil},
	TypeList:     {"a comma separated list of ", trimmed(splitList), nil},
	TypeDuration: {"a duration such as 250ms or 10s", trimmed(time.ParseDuration), less[time.Duration]},
	TypeSize:     {"a size such as 4096, 64KiB or 4MiB", trimmed(ParseSize), less[Size]},
}

func trimmed[T any](parse func(string) (T, error)) func(string) (any, error) {
	return func(text string) (any, error) { return parse(strings.TrimSpace(text)) }
}

func less[T cmp.Ordered](a, b any) bool { return a.(T) < b.(T) }

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "1", "yes", "on":
		return true, nil
	case "false", "0", "no", "off":
		return false, nil
	}
	return false, strconv.ErrSyntax
}

func parseFloat(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
		return 0, strconv.ErrRange
	}
	return f, err
}

// splitList splits at commas and trims spaces. The empty text is the empty list.
func splitList(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text, ",")
	for i, p := range parts {
		parts[i] = strings.TrimSpace(p)
	}
	return parts, nil
}

// Check says what is wrong with the description itself. A registry panics where
// it does; who has descriptions from another process asks first.
func (s *ParamSpec) Check() error {
	for _, part := range strings.Split(s.Name, ".") {
		if !ValidName(part) {
			return fmt.Errorf("param %q: want a lower case letter, then letters, digits and '_'", part)
		}
	}
	t, known := paramTypes[s.Type]
	switch {
	case !known:
		return fmt.Errorf("a parameter can't have type %q", s.Type)
	case !slices.Contains([]string{LevelUser, LevelTuner, LevelDeveloper}, s.Level):
		return fmt.Errorf("level %q: want user, tuner or developer", s.Level)
	case !slices.Contains([]string{ScopeProcess, ScopeSession, ScopeCommunicator}, s.Scope):
		return fmt.Errorf("scope %q: want process, session or communicator", s.Scope)
	case s.Doc == "":
		return fmt.Errorf("no doc")
	case s.Choices != nil && s.Type != TypeString && s.Type != TypeList:
		return fmt.Errorf("choices need a string or a list, not a %s", s.Type)
	}
	for _, bound := range []string{s.Min, s.Max} {
		if bound == "" {
			continue
		}
		if _, err := t.parse(bound); err != nil || t.less == nil {
			return fmt.Errorf("bound %q is not an ordered value of type %s", bound, s.Type)
		}
	}
	if _, err := s.parse(s.Default); err != nil {
		return fmt.Errorf("default: %w", err)
	}
	return nil
}

// parse reads text as a value of the parameter: bool, int64, float64, string,
// []string, time.Duration or Size. The error says what is wanted.
func (s *ParamSpec) parse(text string) (any, error) {
	t := paramTypes[s.Type]
	v, err := t.parse(text)
	if err != nil {
		return nil, s.bad(text)
	}
	if s.Choices != nil {
		words, list := v.([]string)
		if !list {
			words = []string{text}
		}
		for _, w := range words {
			if !slices.Contains(s.Choices, w) {
				return nil, s.bad(text)
			}
		}
	}
	if s.Min != "" {
		if low, err := t.parse(s.Min); err != nil || t.less(v, low) {
			return nil, s.bad(text)
		}
	}
	if s.Max != "" {
		if high, err := t.parse(s.Max); err != nil || t.less(high, v) {
			return nil, s.bad(text)
		}
	}
	return v, nil
}

// plain returns the text of what parse returned, in the one spelling that equal
// values share: "true" for "on", "4KiB" for "4096".
func plain(v any) string {
	if list, ok := v.([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(v)
}

// bad is the error for a text that the parameter doesn't accept.
func (s *ParamSpec) bad(text string) error {
	want := paramTypes[s.Type].want + strings.Join(s.Choices, ", ")
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
