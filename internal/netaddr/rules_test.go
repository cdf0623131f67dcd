package netaddr

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestApply_Rules_SelectAddressesWithReasons(t *testing.T) {
	empty := nic("br0", up, "10.7.0.1/16")
	empty.Empty = true
	ifs := []Interface{lo, eth, ib, docker, nic("virbr0", up, "192.168.122.1/24"), empty, down}
	for _, c := range []struct {
		name  string
		rules Rules
		want  []string
		why   []string
	}{
		{"no rules", Rules{}, []string{"10.1.0.7", "192.168.4.7", "fd00::7"},
			[]string{"docker0: such a network ends", "virbr0: such", "br0: a bridge without members", "eth1: the interface is down"}},
		{"one network", Rules{Include: []string{"192.168.0.0/16"}}, []string{"192.168.4.7", "192.168.122.1"}, []string{"10.1.0.7 (eth0): not included"}},
		{"names", Rules{Include: []string{"docker*", "ib0"}}, []string{"192.168.4.7", "172.17.0.1"}, nil},
		{"all but one", Rules{Exclude: []string{"ib*", "fd00::/8"}}, []string{"10.1.0.7"}, []string{"192.168.4.7 (ib0): excluded by ib*", "fd00::7 (eth0): excluded by fd00::/8"}},
		{"one address", Rules{Include: []string{"10.1.0.7"}}, []string{"10.1.0.7"}, nil},
		{"loopback, asked for", Rules{Include: []string{"lo"}}, []string{"127.0.0.1", "::1"}, nil},
		{"nothing left", Rules{Include: []string{"eth7"}}, nil, []string{"10.1.0.7 (eth0): not included"}},
	} {
		kept, left := c.rules.Apply(ifs)
		if got := texts(Publish(kept)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		all := fmt.Sprint(left)
		for _, why := range c.why {
			if !strings.Contains(all, why) {
				t.Errorf("%s: %s lacks %q", c.name, all, why)
			}
		}
	}
}

func TestCheck_InvalidElement_ReturnsError(t *testing.T) {
	for _, bad := range []string{"", "10.1.0.0/40", "eth[", "a/b"} {
		if err := (Rules{Exclude: []string{bad}}).Check(); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if err := (Rules{Include: []string{"eth0", "ib*", "::1", "10.0.0.0/8"}}).Check(); err != nil {
		t.Error(err)
	}
}

func TestCommon_NetworksOverlap_LongestPrefixWins(t *testing.T) {
	wide, narrow := nic("eth0", up, "10.0.0.1/8"), nic("ib0", up, "10.1.0.1/16", "fd00::1/64")
	for _, ifs := range [][]Interface{{wide, narrow}, {narrow, wide}} {
		for peer, want := range map[string]string{"10.1.0.2": "ib0", "10.2.0.2": "eth0", "fd00::2": "ib0"} {
			if at := Common(ifs, netip.MustParseAddr(peer)); at < 0 || ifs[at].Name != want {
				t.Errorf("%s among %s and %s: index %d, want %s", peer, ifs[0].Name, ifs[1].Name, at, want)
			}
		}
	}
}

func TestUnmatched_ExcludeWithoutEffect_IsReturned(t *testing.T) {
	rules := Rules{Exclude: []string{"eth0", "ib9", "192.168.4.0/24", "10.77.0.0/16", "eth1", "fd00::7", "eth7*"}}
	ifs := []Interface{eth, ib, nic("eth1", up)}
	if got, want := rules.Unmatched(ifs), []string{"ib9", "10.77.0.0/16", "eth7*"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (Rules{}).Unmatched(ifs); len(got) > 0 {
		t.Errorf("without rules: %q", got)
	}
}
