package settings

import (
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
)

// own is what Use has set: commands are made and run in many places, and each process has
// one main function.
var own *framework.Registry

// Use makes r the components of this program, in place of the standard ones. It is for main
// functions, before anything runs.
func Use(r *framework.Registry) { own = r }

// base returns the components that this program has, without those of the test build.
func base() *framework.Registry {
	if own != nil {
		return own.Clone()
	}
	return components.Standard()
}
