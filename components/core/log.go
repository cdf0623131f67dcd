package core

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// The parameters of the log. One of them has the name of the group, which a struct's tags
// can't say.
var logParams = []framework.ParamSpec{
	{Name: "log", Type: framework.TypeString, Default: "warn", Level: framework.LevelUser, Scope: framework.ScopeProcess,
		Doc: "what a process logs: off, error, warn, info or debug; more for some components, as in warn,btl.shm=debug,pml=info. In a program that has its own logger (WithLogger) that one decides"},
	{Name: "log.file", Type: framework.TypeString, Level: framework.LevelUser, Scope: framework.ScopeProcess, Trusted: true,
		Doc: "file to which the log is appended, with %r for the rank of the process; empty: standard error"},
}

// LogLevels says from which level on something is logged.
type LogLevels struct {
	Usual slog.Level
	of    map[string]slog.Level // by component ("btl.shm"), or framework ("btl")
}

// LogOff is above all levels.
const LogOff = slog.Level(math.MaxInt)

var logLevels = map[string]slog.Level{
	"off": LogOff, "error": slog.LevelError, "warn": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug,
}

// Of returns the level of a component, such as "btl.shm".
func (l LogLevels) Of(component string) slog.Level {
	level, ok := l.of[component]
	if !ok {
		kind, _, _ := strings.Cut(component, ".")
		level, ok = l.of[kind]
	}
	if !ok {
		level = l.Usual
	}
	return level
}

// ParseLog returns what the parameter log says. ErrConfig names what is wrong with it.
func ParseLog(reg *framework.Registry, values *framework.Values) (LogLevels, error) {
	l := LogLevels{Usual: slog.LevelWarn, of: map[string]slog.Level{}}
	value, _ := values.Get("log")
	refuse := func(format string, args ...any) (LogLevels, error) {
		return l, fmt.Errorf("%w: log=%s (%s): %s", framework.ErrConfig, value.Text, value.Source, fmt.Sprintf(format, args...))
	}
	usual := false
	for _, part := range strings.Split(value.Text, ",") {
		name, text, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named {
			name, text = "", name
		}
		level, ok := logLevels[text]
		if !ok {
			return refuse("%q is none of off, error, warn, info, debug", text)
		}
		_, twice := l.of[name]
		switch {
		case twice, !named && usual:
			return refuse("two levels for the same")
		case !named:
			l.Usual, usual = level, true
		default:
			if known := loggers(reg); !slices.Contains(known, name) {
				return refuse("there is no component %q; the nearest known name is %s", name, framework.Nearest(name, known))
			}
			l.of[name] = level
		}
	}
	return l, nil
}

// loggers are the names of frameworks and components.
func loggers(reg *framework.Registry) (names []string) {
	for _, kind := range reg.Kinds() {
		names = append(names, string(kind))
		for _, c := range reg.Components(kind) {
			names = append(names, framework.ComponentName(kind, c.Info().Name))
		}
	}
	return names
}
