package settings

import (
	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/plugin/host"
)

// own is the registry of Use, or nil. It is global because commands are created in many places, and each process
// has one main function.
var own *framework.Registry

// Use makes r the components of this program, in place of the standard ones. It is for main
// functions, before anything runs.
func Use(r *framework.Registry) { own = r }

// Plug adds the plugins that the configuration files name, if there are any, to the
// components of this program.
func Plug() error {
	r := base()
	if err := host.Load(r, config.Options{}); err != nil {
		return &exit.Error{Status: exit.Usage, Err: err}
	}
	for _, c := range r.Components(framework.BTL) {
		if _, ok := framework.As[config.Plugged](c); ok {
			own = r
		}
	}
	return nil
}

// base returns the components that this program has, without those of the test build.
func base() *framework.Registry {
	if own != nil {
		return own.Clone()
	}
	return components.Standard()
}
