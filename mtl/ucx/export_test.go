package ucx

import (
	"time"

	"github.com/ferrympi/ferry/mtl"
)

// Defaults are parameters as they are without a user.
func Defaults() any {
	return &params{Library: "libucp.so.0", ErrorMode: "peer", Wait: "auto", Selftest: "short", Deadline: 10 * time.Second, Sysfs: "/sys"}
}

// SetLibrary has the library be a file, with so much time for its tests.
func SetLibrary(p any, file string, deadline time.Duration) {
	o := p.(*params)
	o.Library, o.Deadline, o.Warn = file, deadline, false
}

// Block has the message by which a module finds out whether its queue moves never come.
func Block(m mtl.Module) {
	own := m.(polledModule).module
	own.checkQueue()
	own.guard.nonce[0]++
}

// Set sets parameters.
func Set(p any, classes, devices []string, errorMode, wait string) {
	o := p.(*params)
	o.ProviderInclude, o.DeviceInclude, o.ErrorMode, o.Wait = classes, devices, errorMode, wait
}
