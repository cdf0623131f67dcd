package ofi

// SetSysfs sets mtl.ofi.sysfs.
func SetSysfs(p any, dir string) { p.(*params).SysfsDir = dir }
