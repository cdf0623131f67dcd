package ofi

import (
	"time"

	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/mtl/trial"
)

// Set sets parameters of a module.
func Set(p any, providers []string, layout, wait string) {
	o := p.(*params)
	o.ProviderInclude, o.TagLayout, o.WaitMode = providers, layout, wait
	o.LibraryFile = testprov.System()
}

// SetLibrary sets the library and selftest_timeout.
func SetLibrary(p any, library string, deadline time.Duration) {
	o := p.(*params)
	o.LibraryFile, o.SelftestTimeout = library, deadline
}

// SetWarn sets mtl.ofi.warn.
func SetWarn(p any, on bool) { p.(*params).WarnsOnFailure = on }

// SetConnect sets mtl.ofi.connect_timeout.
func SetConnect(p any, d time.Duration) { p.(*params).ConnectTimeout = d }

// HangingCalls returns the number of calls that have not returned.
func HangingCalls() int { return trial.HangingCalls() }

// SetLayout sets mtl.ofi.layout.
func SetLayout(p any, layout string) { p.(*params).TagLayout = layout }
