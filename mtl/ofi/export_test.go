package ofi

import (
	"time"

	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/mtl/trial"
)

// Set sets parameters of a module for a test; library may be empty.
func Set(p any, providers []string, layout, wait string) {
	o := p.(*params)
	o.ProviderInclude, o.Layout, o.Wait = providers, layout, wait
	o.Library = testprov.System()
}

// SetLibrary has p use another library, and wait for it so long.
func SetLibrary(p any, library string, deadline time.Duration) {
	o := p.(*params)
	o.Library, o.Deadline = library, deadline
}

// SetWarn says whether a broken provider is said on standard error.
func SetWarn(p any, on bool) { p.(*params).Warn = on }

// SetConnect sets how long a peer may take nothing.
func SetConnect(p any, d time.Duration) { p.(*params).Connect = d }

// Hanging returns how many calls have not come back.
func Hanging() int { return trial.Hanging() }

// SetLayout sets mtl.ofi.layout.
func SetLayout(p any, layout string) { p.(*params).Layout = layout }
