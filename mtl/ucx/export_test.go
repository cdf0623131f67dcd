package ucx

// Set sets parameters.
func Set(p any, classes, devices []string, errorMode, wait string) {
	o := p.(*params)
	o.ProviderInclude, o.DeviceInclude, o.ErrorMode, o.Wait = classes, devices, errorMode, wait
}
