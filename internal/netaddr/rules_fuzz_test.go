package netaddr

import (
	"net/netip"
	"testing"
)

// FuzzRule checks that each element parses as a network, as a pattern of names, or to an error.
func FuzzRule(f *testing.F) {
	for _, text := range []string{"10.1.0.0/16", "fe80::1%eth0", "eth*", "[", "::/0", "", "1.2.3.4"} {
		f.Add(text)
	}
	i := Interface{Name: "eth0"}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parse(text)
		if err == nil && r.network.IsValid() == (r.names != "") {
			t.Errorf("%q is %+v", text, r)
		}
		firstMatch([]string{text}, i, netip.MustParseAddr("10.1.2.3"))
	})
}
