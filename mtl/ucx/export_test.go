package ucx

import (
	"time"

	"github.com/ferrympi/ferry/mtl"
)

// Defaults returns the default parameters.
func Defaults() any {
	return &params{LibraryFile: "libucp.so.0", ErrorMode: "peer", WaitMode: "auto", SelftestExtent: "short", SelftestTimeout: 10 * time.Second, SysfsDir: "/sys"}
}

// SetLibrary sets the library and selftest_timeout.
func SetLibrary(p any, file string, deadline time.Duration) {
	o := p.(*params)
	o.LibraryFile, o.SelftestTimeout, o.WarnsOnFailure = file, deadline, false
}

// Block prevents the arrival of the ping of the queue guard.
func Block(m mtl.Module) {
	own := m.(polledModule).module
	own.checkQueue()
	own.queueGuard.pingNonce[0]++
}

// Set sets parameters.
func Set(p any, classes, devices []string, errorMode, wait string) {
	o := p.(*params)
	o.ProviderInclude, o.DeviceInclude, o.ErrorMode, o.WaitMode = classes, devices, errorMode, wait
}
