package netaddr

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
)

const up = net.FlagUp | net.FlagRunning

func nic(name string, flags net.Flags, nets ...string) Interface {
	i := Interface{Name: name, Flags: flags}
	for _, n := range nets {
		i.Nets = append(i.Nets, netip.MustParsePrefix(n))
	}
	return i
}

var (
	lo     = nic("lo", up|net.FlagLoopback, "127.0.0.1/8", "::1/128")
	eth    = nic("eth0", up, "10.1.0.7/16", "fe80::1/64", "fd00::7/64")
	ib     = nic("ib0", up, "192.168.4.7/24")
	docker = nic("docker0", up, "172.17.0.1/16")
	vpn    = nic("tun0", up|net.FlagPointToPoint, "10.8.0.2/24")
	down   = nic("eth1", 0, "10.2.0.7/16")
)

func TestPublish_KindsOfInterfaces_OrdersByReachability(t *testing.T) {
	for _, c := range []struct {
		name string
		ifs  []Interface
		want []string
	}{
		{"only loopback", []Interface{lo, down}, []string{"127.0.0.1", "::1"}},
		{"loopback and another interface", []Interface{lo, eth}, []string{"10.1.0.7", "fd00::7"}},
		{"networks of containers come last", []Interface{docker, vpn, lo, eth, ib}, []string{"10.1.0.7", "192.168.4.7", "fd00::7", "10.8.0.2", "172.17.0.1"}},
		{"one address on two interfaces", []Interface{ib, ib}, []string{"192.168.4.7"}},
		{"only link-local", []Interface{nic("eth0", up, "fe80::1/64", "169.254.3.3/16"), lo}, []string{"127.0.0.1", "::1"}},
		{"no interface", nil, nil},
	} {
		if got := Publish(c.ifs); !slices.Equal(texts(got), c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPublish_ManyAddresses_ReturnsMaxPublished(t *testing.T) {
	i := nic("eth0", up)
	for n := range 100 {
		i.Nets = append(i.Nets, netip.MustParsePrefix(fmt.Sprintf("10.0.%d.1/24", n)))
	}
	if got := Publish([]Interface{i}); len(got) != MaxPublished || got[0].String() != "10.0.0.1" {
		t.Errorf("%d addresses, from %v", len(got), got[0])
	}
}

func TestOrder_CommonNetwork_ComesFirst(t *testing.T) {
	var peer []netip.Addr
	for _, a := range []string{"127.0.0.1", "10.9.0.1", "172.17.0.1", "192.168.4.9", "fe80::2", "224.0.0.1", "0.0.0.0"} {
		peer = append(peer, netip.MustParseAddr(a))
	}
	got := texts(Order([]Interface{lo, docker, ib, down}, append(peer, netip.Addr{})))
	if want := []string{"192.168.4.9", "10.9.0.1", "172.17.0.1", "127.0.0.1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestHost_ThisMachine_HasAddress(t *testing.T) {
	ifs, err := Host()
	if err != nil {
		t.Fatal(err)
	}
	if len(Publish(ifs)) == 0 {
		t.Skipf("this host has no address, not even loopback: %v", ifs)
	}
}

func texts(addrs []netip.Addr) []string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}

func TestUnpublished_OmittedAddresses_HaveReasons(t *testing.T) {
	many := nic("eth9", up)
	for n := range MaxPublished + 1 {
		many.Nets = append(many.Nets, netip.MustParsePrefix(fmt.Sprintf("10.0.%d.1/24", n)))
	}
	for _, c := range []struct {
		ifs  []Interface
		want []string
	}{
		{[]Interface{lo, eth}, []string{"127.0.0.1 (lo): loopback leads to this host only", "::1 (lo): loopback leads to this host only", "fe80::1 (eth0): a link-local address means nothing on another host"}},
		{[]Interface{lo}, nil},
		{[]Interface{many}, []string{"10.0.16.1 (eth9): 16 others come before it"}},
	} {
		var got []string
		for _, l := range Unpublished(c.ifs, Publish(c.ifs)) {
			got = append(got, l.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestCommon_NetworkInsideHost_IsSkipped(t *testing.T) {
	for name, inside := range map[string]bool{
		"docker0": true, "br-0123456789ab": true, "tunl0": true, "cilium_host": true, "weave": true, "kube-bridge": true, "kube-ipvs0": true, "cni0": true, "vxlan.calico": true,
		"br-ex": false, "br-lan": false, "br-int": false, "br0": false, "br-deadbeef": false, "eth0": false, "ib0": false, "bond0": false, "tun0": false,
	} {
		i := nic(name, up, "10.1.0.1/16")
		if got := Common([]Interface{i}, netip.MustParseAddr("10.1.0.2")) < 0; got != inside {
			t.Errorf("%s: inside is %t", name, got)
		}
	}
}
