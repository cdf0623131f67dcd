package ucp

import "testing"

// Each parsed resource has a transport and a device.
func FuzzResources(f *testing.F) {
	f.Add("#      resource  0  :  md 0  dev 0  flags -- self/memory\n# resource 1 : md 1 tcp/eth0\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range parseResources(text) {
			if r == (Resource{}) {
				t.Errorf("%q has an empty resource", text)
			}
		}
	})
}
