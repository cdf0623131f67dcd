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

// Levels name the audience of a parameter.
const (
	LevelUser      = "user"      // Everyone who runs a program.
	LevelTuner     = "tuner"     // Tuning of a machine or an application.
	LevelDeveloper = "developer" // Development of components, and the launcher.
)

// Scopes are the units that share one value of a parameter.
const (
	ScopeProcess      = "process"      // The first open session fixes the value.
	ScopeSession      = "session"      // Each session has a value.
	ScopeCommunicator = "communicator" // Each communicator has a value.
)

// The types of parameters, as in ParamSpec.Type.
const (
	TypeBool     = "bool"
	TypeInt      = "int"
	TypeFloat    = "float"
	TypeString   = "string"
	TypeList     = "list" // Comma separated.
	TypeDuration = "duration"
	TypeSize     = "size"
)

// ParamSpec describes one parameter. It is plain data that may come from another process. ParamsOf derives it from struct tags.
type ParamSpec struct {
	// Full name, for example "btl.shm.eager_limit".
	Name string `json:"name"`
	// Full name in earlier versions, or "". Errors about it have the present name.
	FormerName string `json:"-"`
	// One of the Type constants.
	Type    string `json:"type"`
	Default string `json:"default"`
	// DefaultSource is SourceManifest if components.yaml overrides the component's default, else SourceDefault.
	DefaultSource string `json:"-"`
	// For example "bytes". May be empty.
	Unit string `json:"unit,omitempty"`
	Doc  string `json:"doc"` // One line.
	// One of the Level constants.
	Level string `json:"level"`
	// One of the Scope constants.
	Scope string `json:"scope"`
	// Secret prevents that the value is printed.
	Secret bool `json:"secret,omitempty"`
	// Trusted marks a value that names code to run or a file to write. A configuration file that another user can change must not set it.
	Trusted bool `json:"trusted,omitempty"`
	// Choices are the allowed values, or the allowed elements of a list. Nil allows all.
	Choices []string `json:"choices,omitempty"`
	// Min and Max are inclusive bounds. Empty means no bound.
	Min string `json:"min,omitempty"`
	Max string `json:"max,omitempty"`
}

// EnvName returns the environment variable of a parameter, for example FERRY_BTL_SHM_EAGER_LIMIT for "btl.shm.eager_limit".
func EnvName(name string) string {
	return "FERRY_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

// Redact returns text, or a placeholder if the parameter is secret.
func (s *ParamSpec) Redact(text string) string {
	if s.Secret && text != "" {
		return "(secret)"
	}
	return text
}

// paramTypes describes the values of each type.
var paramTypes = map[string]struct {
	// Completes "want" in messages, before the choices.
	want string
	// The result's type depends only on the parameter's type.
	parse func(text string) (any, error)
	// Compares two results. nil for types without bounds.
	less func(a, b any) bool
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

// splitList splits at commas and trims spaces. An empty text is an empty list.
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

// Check returns an error if the description is invalid. A registry panics for such a description, so callers check descriptions from other
// processes first.
func (s *ParamSpec) Check() error {
	for _, part := range strings.Split(s.Name, ".") {
		if !ValidName(part) {
			return fmt.Errorf("param %q: want a lower case letter, then letters, digits and '_'", part)
		}
	}
	t, known := paramTypes[s.Type]
	switch {
	case !known:
		return fmt.Errorf("a parameter cannot have type %q", s.Type)
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

// parse returns the value of a text as bool, int64, float64, string, []string, time.Duration or Size. The error contains the expected format.
func (s *ParamSpec) parse(text string) (any, error) {
	t := paramTypes[s.Type]
	v, err := t.parse(text)
	if err != nil {
		return nil, s.invalidValue(text)
	}
	if s.Choices != nil {
		words, list := v.([]string)
		if !list {
			words = []string{text}
		}
		for _, w := range words {
			if !slices.Contains(s.Choices, w) {
				return nil, s.invalidValue(text)
			}
		}
	}
	if s.Min != "" {
		if low, err := t.parse(s.Min); err != nil || t.less(v, low) {
			return nil, s.invalidValue(text)
		}
	}
	if s.Max != "" {
		if high, err := t.parse(s.Max); err != nil || t.less(high, v) {
			return nil, s.invalidValue(text)
		}
	}
	return v, nil
}

// canonicalText returns the canonical text of a parsed value, for example "true" for "on" and "4KiB" for "4096".
func canonicalText(v any) string {
	if list, ok := v.([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(v)
}

// invalidValue returns the error for an invalid text.
func (s *ParamSpec) invalidValue(text string) error {
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

// ValidName reports whether s is a valid name of a kind, a component or a parameter. It starts with a lower case letter, followed by lower case
// letters, digits and '_'.
func ValidName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || i > 0 && (c >= '0' && c <= '9' || c == '_')) {
			return false
		}
	}
	return s != ""
}

// reservedWords are keys of configuration files, and FERRY_CONFIG names a file. No parameter's name begins with one of them.
var reservedWords = []string{"config", "params", "select", "version"}

// ValidKind reports whether s is a ValidName for a framework that configuration files do not reserve.
func ValidKind(s string) bool { return ValidName(s) && !slices.Contains(reservedWords, s) }
