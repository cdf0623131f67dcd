package ucx

import (
	"net"
	"net/netip"
	"testing"

	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/internal/ucp"
)

func TestPermitted_SecondaryInterface_IsLeftOut(t *testing.T) {
	nets := []netip.Prefix{netip.MustParsePrefix("10.1.0.1/24")}
	f := &survey{interfaces: []netaddr.Interface{
		{Name: "eth1", Flags: net.FlagUp, Nets: nets, Speed: 1000}, {Name: "podman0", Flags: net.FlagUp, Nets: nets},
		{Name: "eth0", Flags: net.FlagUp, Nets: nets, HasDefault: true, Speed: 1000},
	}}
	all := []ucp.Resource{{Transport: "tcp", Device: "eth1"}, {Transport: "tcp", Device: "podman0"}, {Transport: "tcp", Device: "eth0"}, {Transport: "self", Device: "memory"}}
	if got := resourceNames(f.permitted(all, &params{}), nil); got != "tcp/eth0 self/memory" {
		t.Errorf("used are %s", got)
	}
	if got := resourceNames(f.permitted(all, &params{DeviceInclude: []string{"eth1"}}), nil); got != "tcp/eth1 self/memory" {
		t.Errorf("with device_include=eth1, used are %s", got)
	}
	if got := resourceNames(all[2:], f.interfaces); got != "tcp/eth0 (10.1.0.1) self/memory" {
		t.Error(got)
	}
}
