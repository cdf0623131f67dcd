// Package settings is the --set flag that several commands share: it checks
// parameters against everything that is compiled in, and hands them on to ranks.
package settings

import (
	"context"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cli/exit"
)

// Flag adds --set to flags and returns what it collects.
func Flag(flags *pflag.FlagSet) *[]string {
	return flags.StringArray("set", nil, "set a parameter: `NAME=VALUE`, as in `ferry info`; may be repeated")
}

// Registry returns what this program knows: components and core parameters.
func Registry() *framework.Registry {
	reg := components.Standard()
	core.Register(reg)
	return reg
}

// Load joins the values of --set with files and environment. Errors, which name
// the nearest known parameter, have the status of a usage error.
func Load(reg *framework.Registry, set []string) (*framework.Values, []config.Setting, error) {
	var flags []config.Setting
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, nil, exit.Usagef("--set %s: want NAME=VALUE", s)
		}
		flags = append(flags, config.Setting{Name: name, Value: value})
	}
	values, err := config.Load(reg, config.Options{Flags: flags})
	if err != nil {
		return nil, nil, &exit.Error{Status: exit.Usage, Err: err}
	}
	return values, flags, nil
}

// Prepare is for commands that start ranks: it checks the settings, and the
// selection of components that they amount to, before anything starts, and
// returns them as a rank's environment has them.
func Prepare(ctx context.Context, set []string) (env []string, err error) {
	reg := Registry()
	values, flags, err := Load(reg, set)
	if err != nil {
		return nil, err
	}
	if _, err := reg.SelectAll(ctx, values); err != nil {
		return nil, &exit.Error{Status: exit.Usage, Err: err}
	}
	return environ(flags), nil
}

func environ(flags []config.Setting) []string {
	var env []string
	for _, s := range flags {
		env = append(env, framework.EnvName(s.Name)+"="+s.Value)
	}
	return env
}
