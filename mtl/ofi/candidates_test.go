package ofi

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl/base"
)

func info(provider, domain string, ip ...byte) libfabric.Info {
	i := fillAttributes(libfabric.Info{Provider: provider, Domain: domain})
	switch len(ip) {
	case 4:
		i.AddressFormat, i.Address = libfabric.IPv4Address, append([]byte{2, 0, 0, 0}, ip...)
	case 16:
		i.AddressFormat, i.Address = libfabric.IPv6Address, append(make([]byte, 8), ip...)
	}
	return i
}

func device(provider, domain, pci string) libfabric.Info {
	return fillAttributes(libfabric.Info{Provider: provider, Domain: domain, PCI: pci})
}

// fillAttributes sets consistent attributes.
func fillAttributes(i libfabric.Info) libfabric.Info {
	i.TagFormat, i.MaxMessage, i.TxSize, i.RxSize = math.MaxUint64, 1<<30, 1024, 1024
	return i
}

// writeFile writes a file with all of its folders.
func writeFile(t *testing.T, sys, name, text string) {
	t.Helper()
	name = filepath.Join(sys, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// twoNodeMachine returns a fake /sys with two NUMA nodes. This process runs on the second.
func twoNodeMachine(t *testing.T) topology {
	sys := t.TempDir()
	write := func(name, text string) { writeFile(t, sys, name, text) }
	write("class/cxi/far/device/numa_node", "0\n")
	write("class/cxi/near/device/numa_node", "1\n")
	write("class/cxi/near2/device/numa_node", "1\n")
	write("devices/system/node/node0/distance", "10 21\n")
	write("devices/system/node/node1/distance", "21 10\n")
	write("bus/pci/devices/0000:01:00.0/numa_node", "0\n")
	write("bus/pci/devices/0000:81:00.0/numa_node", "1\n")
	write("bus/pci/devices/0000:82:00.0/numa_node", "1\n")
	write("class/net/eth9/device/numa_node", "-1\n")
	return topology{sysfsDir: sys, numaNodes: []int{1}}
}

func TestChoose_OneProvider_OrdersCandidates(t *testing.T) {
	loopback6 := append(make([]byte, 15), 1)
	link := []byte{0xfe, 0x80, 15: 1}
	many := []libfabric.Info{
		info("sockets", "eth0", 192, 0, 2, 1),
		info("tcp;ofi_rxm", "lo", 127, 0, 0, 1),
		info("tcp;ofi_rxm", "lo", loopback6...),
		info("tcp;ofi_rxm", "eth0", link...),
		info("tcp;ofi_rxm", "eth0", 192, 0, 2, 1),
		info("tcp;ofi_rxm", "eth0", 192, 0, 2, 1), // Listed twice.
		info("tcp;ofi_rxm", "docker0", 172, 17, 0, 1),
		info("shm", "shm"),
		device("cxi", "far", "0000:01:00.0"),
		device("cxi", "near", "0000:81:00.0"),
		device("cxi", "near2", "0000:82:00.0"),
	}
	usual := params{ProviderExclude: []string{"shm", "sockets"}, DomainExclude: []string{"docker*"}}
	for name, c := range map[string]struct {
		p params
		j jobTraits
		// Accepted candidates in order.
		want []string
		why  map[string]string
	}{
		"devices first, the nearest first": {
			p: usual, want: []string{"cxi on near", "cxi on near2", "cxi on far", "tcp;ofi_rxm on eth0"},
			why: map[string]string{"tcp;ofi_rxm on lo": "on others", "tcp;ofi_rxm on docker0": "domain_exclude", "shm on shm": "provider_exclude"},
		},
		"ranks take turns": {
			p: usual, j: jobTraits{localRank: 1}, want: []string{"cxi on near2", "cxi on near", "cxi on far", "tcp;ofi_rxm on eth0"},
		},
		"on one node the loopback interface comes last": {
			p: params{ProviderInclude: []string{"TCP;OFI_RXM"}, DomainExclude: []string{"docker*"}}, j: jobTraits{isOneNode: true},
			want: []string{"tcp;ofi_rxm on eth0", "tcp;ofi_rxm on lo", "tcp;ofi_rxm on lo"},
			why:  map[string]string{"cxi on near": "provider_include"},
		},
		"an include list orders": {
			p: params{ProviderInclude: []string{"sockets", "cxi"}}, want: []string{"sockets on eth0", "cxi on near", "cxi on near2", "cxi on far"},
		},
		"domains": {
			p: params{DomainInclude: []string{"docker?", "e*"}, ProviderExclude: []string{"sockets"}}, want: []string{"tcp;ofi_rxm on eth0", "tcp;ofi_rxm on docker0"},
			why: map[string]string{"cxi on far": "domain_include"},
		},
		"local only, asked for, and the job is larger": {
			p: params{ProviderInclude: []string{"shm"}}, why: map[string]string{"shm on shm": "on others"},
		},
		"a defect is one also if asked for": {
			p: params{ProviderInclude: []string{"shm"}}, j: jobTraits{isOneNode: true, libraryVersion: libfabric.Version{Major: 1, Minor: 17}}, why: map[string]string{"shm on shm": "truncation"},
		},
		"and only in that version": {
			p: params{ProviderInclude: []string{"shm"}}, j: jobTraits{isOneNode: true, libraryVersion: libfabric.Version{Major: 1, Minor: 20}}, want: []string{"shm on shm"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.j.libraryVersion == (libfabric.Version{}) {
				c.j.libraryVersion = libfabric.Version{Major: 2, Minor: 1}
			}
			var tried []string
			refused := map[string]string{}
			for _, x := range choose(many, &c.p, c.j, twoNodeMachine(t)) {
				if name := x.providerInfo.String(); x.refusal == "" {
					tried = append(tried, name)
				} else {
					refused[name] = x.refusal
				}
			}
			if !slices.Equal(tried, c.want) {
				t.Errorf("tries %q, want %q", tried, c.want)
			}
			for name, why := range c.why {
				if !strings.Contains(refused[name], why) {
					t.Errorf("%s: %q, want %q", name, refused[name], why)
				}
			}
		})
	}
}

// In libfabric 1.17 verbs has no PCI address, and psm3 has that of an Ethernet interface.
func TestChoose_MisleadingAttributes_DevicesPrecedeSockets(t *testing.T) {
	const eth = "0000:01:00.0"
	tcp := info("tcp;ofi_rxm", "eth0", 192, 0, 2, 1)
	for name, c := range map[string]struct {
		// Folders below /sys/class.
		sys   []string
		infos []libfabric.Info
		want  []string // In order.
	}{
		"verbs and tcp": {
			[]string{"infiniband/mlx5_0/device/vendor", "net/eth0/device/vendor"},
			[]libfabric.Info{tcp, device("verbs;ofi_rxm", "mlx5_0", "")},
			[]string{"verbs;ofi_rxm on mlx5_0", "tcp;ofi_rxm on eth0"},
		},
		"psm3 on sockets, and tcp": {
			[]string{"net/eth0/device/vendor"},
			[]libfabric.Info{device("psm3", "eth0", eth), tcp},
			[]string{"tcp;ofi_rxm on eth0", "psm3 on eth0"},
		},
		"psm3 on sockets beside a card whose names are equal": {
			[]string{"infiniband/ibp1s0/device/vendor", "net/ibp1s0/device/vendor"},
			[]libfabric.Info{device("psm3", "ibp1s0", eth), tcp},
			[]string{"tcp;ofi_rxm on eth0", "psm3 on ibp1s0"},
		},
		"psm3 on its card": {
			[]string{"infiniband/irdma0/device/vendor"},
			[]libfabric.Info{tcp, device("psm3", "irdma0", "")},
			[]string{"psm3 on irdma0", "tcp;ofi_rxm on eth0"},
		},
		"cxi and everything": {
			[]string{"cxi/cxi0/device/vendor", "infiniband/mlx5_0/device/vendor", "infiniband/hfi1_0/device/vendor"},
			[]libfabric.Info{
				device("sockets", "eth0", eth), tcp, device("psm3", "eth0", eth), device("verbs;ofi_rxm", "mlx5_0", eth), device("new", "eth0", eth),
				device("opx", "hfi1", eth), device("efa", "mlx5_0-rdm", ""), device("udp;ofi_rxd", "eth0", eth), device("cxi", "cxi0", ""),
			},
			[]string{
				"cxi on cxi0", "efa on mlx5_0-rdm", "opx on hfi1", "verbs;ofi_rxm on mlx5_0", "tcp;ofi_rxm on eth0",
				"psm3 on eth0", "new on eth0", "udp;ofi_rxd on eth0", "sockets on eth0",
			},
		},
		"RDMA that is software": {
			[]string{"infiniband/rxe0/node_type"},
			[]libfabric.Info{device("verbs;ofi_rxm", "rxe0", ""), tcp},
			[]string{"tcp;ofi_rxm on eth0", "verbs;ofi_rxm on rxe0"},
		},
		"a name that begins as another does": {
			[]string{"infiniband/mlx5_1/device/vendor"},
			[]libfabric.Info{device("verbs;ofi_rxm", "mlx5_10", ""), tcp, device("verbs;ofi_rxm", "mlx5_1-xrc", "")},
			[]string{"verbs;ofi_rxm on mlx5_1-xrc", "tcp;ofi_rxm on eth0", "verbs;ofi_rxm on mlx5_10"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sys := t.TempDir()
			for _, f := range c.sys {
				writeFile(t, sys, "class/"+f, "")
			}
			var got []string
			for _, x := range choose(c.infos, &params{}, jobTraits{libraryVersion: v2_4}, topology{sysfsDir: sys}) {
				got = append(got, x.providerInfo.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("tries %q, want %q", got, c.want)
			}
		})
	}
}

func TestChoose_EqualInterfaces_RanksSpreadWithinOneNetwork(t *testing.T) {
	sys := t.TempDir()
	var infos []libfabric.Info
	for _, c := range []struct{ domain, fabric string }{{"mlx5_0", "IB-0x1"}, {"mlx5_1", "IB-0x1"}, {"mlx5_2", "IB-0x2"}} {
		writeFile(t, sys, "class/infiniband/"+c.domain+"/device/vendor", "")
		infos = append(infos, fillAttributes(libfabric.Info{Provider: "verbs;ofi_rxm", Domain: c.domain, Fabric: c.fabric, AddressFormat: libfabric.IPv4Address}))
	}
	for rank, want := range []string{"mlx5_0", "mlx5_1", "mlx5_0", "mlx5_1"} {
		if got := choose(infos, &params{}, jobTraits{localRank: rank, libraryVersion: v2_4}, topology{sysfsDir: sys}); got[0].providerInfo.Domain != want {
			t.Errorf("rank %d begins with %s, want %s", rank, got[0].providerInfo, want)
		}
	}
	one, other := offer(&infos[0], layout{}), offer(&infos[2], layout{})
	if one == other || one != offer(&infos[1], layout{}) {
		t.Errorf("offers %q and %q", one, other)
	}
}

func TestDescribeMissed_BetterCandidates_AreListed(t *testing.T) {
	cxi, net, udp, tcp := device("cxi", "cxi0", ""), info("net", "eth0"), info("udp;ofi_rxd", "eth0"), info("tcp;ofi_rxm", "eth0")
	candidates := func() []candidate {
		return []candidate{
			{providerInfo: &cxi, priority: 0, refusal: "self-test: a short message"}, {providerInfo: &tcp, priority: 5},
			{providerInfo: &net, priority: 7, refusal: "a defect", isDefective: true}, {providerInfo: &udp, priority: 9, refusal: "not in mtl.ofi.provider_include"},
		}
	}
	for _, c := range []struct {
		failed  bool
		chosen  int // Index.
		include []string
		want    string
	}{
		{false, 5, nil, ""},
		{true, 5, nil, "tcp;ofi_rxm on eth0 is used instead of cxi on cxi0: self-test: a short message"},
		{false, 5, []string{"net", "tcp;ofi_rxm"}, "tcp;ofi_rxm on eth0 is used instead of net on eth0: a defect"},
		{false, 8, nil, "tcp;ofi_rxm on eth0 is used instead of net on eth0: a defect"},
	} {
		all := candidates()
		all[0].hasFailed, all[1].priority = c.failed, c.chosen
		if got := describeMissed(all, &all[1], c.include); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// psm3 and opx report the largest number, which was once read as -1 and led to 16 receives.
func TestLimitsFor_UnlimitedQueues_AreUnlimited(t *testing.T) {
	const none = math.MaxInt
	for _, c := range []struct{ tx, rx, queue, most, receives int }{
		{2048, 2048, 8192, 8192, 1968},
		{60000, 70000, 130000, 130000, 69920},
		{none, none, 8192, none, none - 80},
		{none, 512, 8192, none, 432},
		{512, none, 8192, none, none - 80},
		{16, 16, 8192, 8192, 8},
		{1, 1, 8192, 8192, 1},
	} {
		i := libfabric.Info{Provider: "new", TxSize: c.tx, RxSize: c.rx}
		if got := limitsFor(&i, 64, v2_4); got != (queueLimits{c.queue, c.most, c.receives}) {
			t.Errorf("%d sends and %d receives: %+v", c.tx, c.rx, got)
		}
	}
	if got := limitsFor(&libfabric.Info{Provider: "sockets", TxSize: none, RxSize: none}, 64, v1_17); got.maxReceives != none/2 {
		t.Errorf("a provider that is to keep to its queue: %+v", got)
	}
}

func FuzzCardEntry(f *testing.F) {
	f.Add(cardEntry{offer: "tcp", nodeProof: "here", address: []byte{1, 2}}.encode())
	f.Add([]byte{cardVersion, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := parseCardEntry(in)
		if err == nil && string(b.encode()) != string(in) {
			t.Errorf("%q is %+v, which is %q", in, b, b.encode())
		}
	})
}

// libfabric takes no length, and would read beyond a short address.
func TestReach_IncompleteAddress_IsRefused(t *testing.T) {
	own := []byte{unix.AF_INET, 0, 1, 2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	other := slices.Replace(slices.Clone(own), 0, 1, unix.AF_INET6)
	for _, c := range []struct {
		format  uint32
		own     []byte
		address []byte
		ok      bool
	}{
		{libfabric.IPv4Address, own, own, true},
		{libfabric.IPv4Address, own, own[:15], false},
		{libfabric.IPv4Address, own, append(own, 0), false},
		{libfabric.IPv4Address, own, other, false}, // An address of IPv6 is longer.
		{16, own, other, true},                     // Only the provider reads its bytes.
		{16, own, own[:1], false},
		{libfabric.TextAddress, []byte("fi_shm://7\x00"), []byte("fi_shm://12345\x00"), true},
		{libfabric.TextAddress, []byte("fi_shm://7\x00"), []byte("fi_shm://7"), false},
	} {
		m := &module{Module: base.Module{Card: base.Card{Offer: "o"}}, localAddress: networkAddress{c.format, c.own}}
		err := m.Reach(framework.Peer{Blob: cardEntry{offer: "o", address: c.address}.encode()})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, base.ErrCardEntry) {
			t.Errorf("format %d, %q beside %q: %v", c.format, c.address, c.own, err)
		}
	}
}
