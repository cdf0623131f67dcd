package ofi

// Set sets parameters of a module for a test.
func Set(p any, provider, layout, wait string) {
	o := p.(*params)
	o.ProviderInclude, o.Layout, o.Wait = []string{provider}, layout, wait
}
