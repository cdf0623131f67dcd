package ucx

import "time"

// Defaults are parameters as they are without a user.
func Defaults() any {
	return &params{Library: "libucp.so.0", ErrorMode: "peer", Wait: "auto", Selftest: "short", Deadline: 10 * time.Second, Sysfs: "/sys"}
}

// Set sets parameters.
func Set(p any, classes, devices []string, errorMode, wait string) {
	o := p.(*params)
	o.ProviderInclude, o.DeviceInclude, o.ErrorMode, o.Wait = classes, devices, errorMode, wait
}
