package ofi

import (
	"net"
	"net/netip"
	"testing"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// libfabric lists the newest interface first.
func TestChoose_SecondaryInterface_IsUsedLast(t *testing.T) {
	nets := []netip.Prefix{netip.MustParsePrefix("10.1.0.1/24")}
	eth0 := netaddr.Interface{Name: "eth0", Flags: net.FlagUp, Nets: nets, HasDefault: true, Speed: 1000}
	for _, name := range []string{"eth1", "podman0", "cni0"} {
		other := netaddr.Interface{Name: name, Flags: net.FlagUp, Nets: nets, Speed: 1000}
		var infos []libfabric.Info
		for _, domain := range []string{name, "eth0"} {
			infos = append(infos, fillAttributes(libfabric.Info{Provider: "tcp;ofi_rxm", Domain: domain, AddressFormat: libfabric.IPv4Address}))
		}
		host := topology{sysfsDir: t.TempDir(), interfaces: []netaddr.Interface{other, eth0}}
		if got := choose(infos, &params{}, jobTraits{libraryVersion: v2_4}, host); got[0].providerInfo.Domain != "eth0" || got[1].refusal != "" {
			t.Errorf("%s: begins with %s (%q)", name, got[0].providerInfo, got[1].refusal)
		}
		if got := choose(infos, &params{DomainInclude: []string{"*"}}, jobTraits{libraryVersion: v2_4}, host); got[0].providerInfo.Domain != name {
			t.Errorf("%s, with domain_include: begins with %s", name, got[0].providerInfo)
		}
	}
}
