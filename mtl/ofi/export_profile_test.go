package ofi

// SetSysfs has the devices of another machine.
func SetSysfs(p any, dir string) { p.(*params).Sysfs = dir }
