package core

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// logParams are the parameters of the log. Struct tags cannot declare log, because it has the name of the group.
var logParams = []framework.ParamSpec{
	{Name: "log", Type: framework.TypeString, Default: "warn", Level: framework.LevelUser, Scope: framework.ScopeProcess,
		Doc: "log level of a process: off, error, warn, info or debug; with levels of components, as in warn,btl.shm=debug,pml=info. A logger of the program (WithLogger) takes precedence"},
	{Name: "log.file", Type: framework.TypeString, Level: framework.LevelUser, Scope: framework.ScopeProcess, Trusted: true,
		Doc: "file to which the log is appended, with %r for the rank of the process; empty: standard error"},
}

// LogLevels has the least levels that are logged.
type LogLevels struct {
	Usual slog.Level
	// By component ("btl.shm") or framework ("btl").
	byName map[string]slog.Level
}

// LogOff is above all levels.
const LogOff = slog.Level(math.MaxInt)

var logLevels = map[string]slog.Level{
	"off": LogOff, "error": slog.LevelError, "warn": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug,
}

// Of returns the level of a component, such as "btl.shm".
func (l LogLevels) Of(component string) slog.Level {
	level, ok := l.byName[component]
	if !ok {
		kind, _, _ := strings.Cut(component, ".")
		level, ok = l.byName[kind]
	}
	if !ok {
		level = l.Usual
	}
	return level
}

// ParseLog parses the parameter log. It returns ErrConfig for an invalid value.
func ParseLog(reg *framework.Registry, values *framework.Values) (LogLevels, error) {
	l := LogLevels{Usual: slog.LevelWarn, byName: map[string]slog.Level{}}
	value, _ := values.Get("log")
	refuse := func(format string, args ...any) (LogLevels, error) {
		return l, fmt.Errorf("%w: log=%s (%s): %s", framework.ErrConfig, value.Text, value.Source, fmt.Sprintf(format, args...))
	}
	hasUsual := false
	for _, part := range strings.Split(value.Text, ",") {
		name, text, hasName := strings.Cut(strings.TrimSpace(part), "=")
		if !hasName {
			name, text = "", name
		}
		level, ok := logLevels[text]
		if !ok {
			return refuse("unknown level %q; use off, error, warn, info or debug", text)
		}
		_, isDuplicate := l.byName[name]
		switch {
		case isDuplicate, !hasName && hasUsual:
			return refuse("two levels for the same component")
		case !hasName:
			l.Usual, hasUsual = level, true
		default:
			if known := loggerNames(reg); !slices.Contains(known, name) {
				return refuse("unknown component %q; the nearest known name is %s", name, framework.Nearest(name, known))
			}
			l.byName[name] = level
		}
	}
	return l, nil
}

// loggerNames returns the names of frameworks and components.
func loggerNames(reg *framework.Registry) (names []string) {
	for _, kind := range reg.Kinds() {
		names = append(names, string(kind))
		for _, c := range reg.Components(kind) {
			names = append(names, framework.ComponentName(kind, c.Info().Name))
		}
	}
	return names
}
