package netaddr

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

func host(list ...Interface) []Interface {
	for i := range list {
		list[i].Flags |= net.FlagUp
		list[i].Nets = []netip.Prefix{netip.MustParsePrefix("10.1.0.1/24")}
	}
	return append(list, Interface{Name: "lo", Flags: net.FlagUp | net.FlagLoopback, Nets: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}})
}

func TestSecondary_SeveralInterfaces_HostsChooseAlike(t *testing.T) {
	route := Interface{Name: "eth0", HasDefault: true, Speed: 1000}
	for name, c := range map[string]struct {
		ifs []Interface
		// The interface that is not secondary.
		want string
	}{
		"an isolated one":        {host(Interface{Name: "eth1", Speed: 1000}, route), "eth0"},
		"one of unknown speed":   {host(Interface{Name: "eth1"}, route), "eth1 eth0"},
		"a network of podman":    {host(Interface{Name: "podman0"}, Interface{Name: "eth0"}), "eth0"},
		"a network of docker":    {host(Interface{Name: "docker0"}, Interface{Name: "eth0"}), "eth0"},
		"an empty bridge":        {host(Interface{Name: "br0", Empty: true}, Interface{Name: "eth0"}), "eth0"},
		"podman with the route":  {host(Interface{Name: "podman0", HasDefault: true}, Interface{Name: "eth0"}), "eth0"},
		"a slower default route": {host(Interface{Name: "ib0", Speed: 100_000}, Interface{Name: "eth0", Speed: 1000, HasDefault: true}), "ib0 eth0"},
		"no default route":       {host(Interface{Name: "eth1"}, Interface{Name: "eth0"}), "eth1 eth0"},
		"podman alone":           {host(Interface{Name: "podman0"}), "podman0"},
	} {
		got := ""
		for _, i := range c.ifs {
			if i.Name != "lo" && Secondary(c.ifs, i.Name) == "" {
				got += " " + i.Name
			}
		}
		if got != " "+c.want {
			t.Errorf("%s: used are%s, not %s", name, got, c.want)
		}
	}
	if why := Secondary(host(route), "lo"); why != "" {
		t.Errorf("lo: %s", why)
	}
	if why := Secondary(host(route), "mlx5_0:1"); why != "" {
		t.Errorf("a verbs device: %s", why)
	}
}

func TestDefaultRoutes_TablesOfLinux_AreRead(t *testing.T) {
	v4 := "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"eth0\t00000000\tFE00010A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"eth0\t0000010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n" +
		"eth2\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\nshort\n"
	v6 := "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth1\n" +
		"00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n"
	if got := append(defaults4(v4), defaults6(v6)...); !slices.Equal(got, []string{"eth0", "eth1"}) {
		t.Errorf("%q", got)
	}
}
