package ucx

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

// cluster contains the resources of UCX on a node with InfiniBand.
var cluster = []ucp.Resource{
	{Transport: "self", Device: "memory"}, {Transport: "tcp", Device: "lo"}, {Transport: "tcp", Device: "ib0"}, {Transport: "tcp", Device: "docker0"},
	{Transport: "posix", Device: "memory"}, {Transport: "cma", Device: "memory"},
	{Transport: "rc_mlx5", Device: "mlx5_0:1"}, {Transport: "rc_mlx5", Device: "mlx5_1:1"}, {Transport: "dc_mlx5", Device: "mlx5_0:1"}, {Transport: "ud_verbs", Device: "mlx5_0:1"},
}

func TestChoose_Cluster_OrdersClasses(t *testing.T) {
	for name, c := range map[string]struct {
		p    params
		j    jobTraits
		want string // what is tried, in order, with devices
		says string // of the others
	}{
		"the best first":         {j: jobTraits{isOneNode: true}, want: "rc on mlx5_0:1,mlx5_1:1 dc on mlx5_0:1 ud on mlx5_0:1 tcp on lo,ib0 shm on memory", says: "no transport of class cuda"},
		"several nodes":          {want: "rc on mlx5_0:1,mlx5_1:1 dc on mlx5_0:1 ud on mlx5_0:1 tcp on lo,ib0", says: "reaches only this node"},
		"nobody has asked":       {j: jobTraits{isUnrequested: true}, want: "rc on mlx5_0:1,mlx5_1:1 dc on mlx5_0:1 ud on mlx5_0:1", says: "no MTL was requested"},
		"included":               {p: params{ProviderInclude: []string{"tcp", "ud"}}, want: "tcp on lo,ib0 ud on mlx5_0:1", says: "not in mtl.ucx.provider_include"},
		"excluded":               {p: params{ProviderExclude: []string{"rc", "dc"}}, want: "ud on mlx5_0:1 tcp on lo,ib0", says: "in mtl.ucx.provider_exclude"},
		"a device":               {p: params{DeviceInclude: []string{"mlx5_1"}}, want: "rc on mlx5_1:1", says: "mtl.ucx.device_include=mlx5_1"},
		"this host only":         {p: params{DeviceInclude: []string{"lo"}}, want: "", says: "reaches only this node"},
		"this host, one node":    {p: params{DeviceInclude: []string{"lo"}}, j: jobTraits{isOneNode: true}, want: "tcp on lo shm on memory"},
		"a class without device": {p: params{ProviderInclude: []string{"cuda"}}, j: jobTraits{isOneNode: true}, want: "", says: "no transport of class cuda"},
	} {
		t.Run(name, func(t *testing.T) {
			c.p.DeviceExclude = []string{"docker*"}
			var tried, others []string
			for _, x := range choose(&survey{resources: cluster, libraryVersion: ucp.Oldest}, &c.p, c.j) {
				if x.refusal == "" {
					tried = append(tried, x.name+" on "+x.devices())
				} else {
					others = append(others, x.refusal)
				}
			}
			if got := strings.Join(tried, " "); got != c.want {
				t.Errorf("tries %s, want %s", got, c.want)
			}
			if !strings.Contains(strings.Join(others, "; "), c.says) {
				t.Errorf("others: %q", others)
			}
		})
	}
}

func TestCheckNames_MisspeltClass_IsRefused(t *testing.T) {
	err := checkNames(&params{ProviderInclude: []string{"rcc"}})
	if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), `nearest name is "rc"`) {
		t.Errorf("%v", err)
	}
}

func TestNetworkDevice_LibfabricHardware_IsIgnored(t *testing.T) {
	for device, want := range map[string]bool{"mlx5_0": true, "bnxt_re0": true, "hfi1_0": false, "efa_0": false} {
		sys := t.TempDir()
		if err := os.MkdirAll(filepath.Join(sys, "class/infiniband", device, "device"), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := networkDevice(sys); (got == device) != want {
			t.Errorf("%s: %q", device, got)
		}
	}
}

func TestEnvironment_UserVariables_Remain(t *testing.T) {
	has := func(name string) bool { return name == "UCX_LOG_LEVEL" || name == "UCX_ERROR_SIGNALS" }
	all := environment(true, has)
	if slices.Contains(all, "UCX_LOG_LEVEL=fatal") || !slices.Contains(all, "UCX_ERROR_SIGNALS=") || !slices.Contains(all, "UCX_MEM_MMAP_HOOK_MODE=none") || !slices.Contains(all, "UCX_POSIX_ERROR_HANDLING=y") {
		t.Errorf("%q", all)
	}
}

func TestHazards_Versions_AreNamed(t *testing.T) {
	tcp, shm := &candidate{resources: cluster[1:2]}, &candidate{resources: cluster[4:5]}
	if n := tcp.hazards(ucp.Version{Major: 1, Minor: 13}); len(n) != 1 || !strings.Contains(n[0], "1.13") {
		t.Errorf("%q", n)
	}
	if n := tcp.hazards(ucp.Version{Major: 1, Minor: 18}); len(n) != 1 || !strings.Contains(n[0], "rarely") {
		t.Errorf("%q", n)
	}
	if n := shm.hazards(ucp.Version{Major: 1, Minor: 18}); len(n) != 1 || !strings.Contains(n[0], "pml.cm.shared_memory") {
		t.Errorf("%q", n)
	}
}

// Without a cache UCX 1.16 and newer crash in peer mode when a peer leaves.
func TestErrorMode_NoCache_IsNone(t *testing.T) {
	p, shm, old, newer := &params{ErrorMode: "peer"}, &candidate{}, ucp.Version{Major: 1, Minor: 15}, ucp.Version{Major: 1, Minor: 16}
	for _, c := range []struct {
		variable, value string
		v               ucp.Version
		want            string
	}{
		{"UCX_MEM_EVENTS", "n", newer, "none"}, {"UCX_MEM_EVENTS", "n", old, "peer"}, {"UCX_MEM_EVENTS", "y", newer, "peer"},
		{"UCX_RCACHE_ENABLE", "no", newer, "none"}, {"UCX_RCACHE_ENABLE", "", newer, "peer"},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			if mode, note := shm.errorMode(p, c.v); mode != c.want || (note == "") != (mode == "peer") {
				t.Errorf("%s, %q", mode, note)
			}
		})
	}
}

// No message has the tag of control messages.
func TestTag_AnyEnvelope_KeepsEveryField(t *testing.T) {
	for _, e := range []mtl.Envelope{{}, {CID: 1<<cidBits - 1, Source: 1<<sourceBits - 1, Tag: 1<<tagBits - 1}, {CID: 5, Source: 6, Tag: 7}} {
		tag := tagOf(e)
		if envelopeOf(tag) != e || tag&controlTag != 0 {
			t.Errorf("%+v: %#x is %+v", e, tag, envelopeOf(tag))
		}
		for _, w := range []mtl.Envelope{e, {CID: e.CID, Source: mtl.AnySource, Tag: e.Tag}, {CID: e.CID, Source: e.Source, Tag: mtl.AnyTag}, {CID: e.CID, Source: mtl.AnySource, Tag: mtl.AnyTag}} {
			want, mask := matchOf(w)
			if (tag^want)&mask != 0 || (controlTag^want)&mask == 0 {
				t.Errorf("%+v asked for by %+v: %#x, mask %#x", e, w, want, mask)
			}
		}
	}
}

var entry = cardEntry{incarnation: framework.Incarnation{ID: 1, Nonce: 2}, offer: "tcp, packed", transportNames: "tcp/eth0", libraryVersion: "1.13.1", workerAddress: []byte{1, 0, 2}}

// UCX takes no length and must not see such an entry.
func TestReach_InvalidEntry_IsRefused(t *testing.T) {
	whole := entry.encode()
	m := &module{Module: base.Module{Card: base.Card{Offer: entry.offer}}, transportTraits: transportTraits{libraryVersion: "1.18.0", transportNames: "tcp/eth1"}, peersByEndpoint: []peer{{}}}
	look := func(b []byte, incarnation framework.Incarnation) error {
		_, err := m.checkReach(framework.Peer{Incarnation: incarnation, Blob: b})
		return err
	}
	if err := look(whole, entry.incarnation); err != nil {
		t.Errorf("another minor version: %v", err)
	}
	for n := range len(whole) {
		if look(whole[:n], entry.incarnation) == nil {
			t.Errorf("%d bytes of %d are taken", n, len(whole))
		}
		changed := bytes.Clone(whole)
		changed[n] ^= 1
		if look(changed, entry.incarnation) == nil {
			t.Errorf("byte %d changed is taken", n)
		}
	}
	if err := look(whole, framework.Incarnation{ID: 9, Nonce: 9}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("another process's: %v", err)
	}
	newer, apart := entry, entry
	newer.libraryVersion, apart.offer = "2.0.0", "rc, packed"
	if err := look(newer.encode(), entry.incarnation); err == nil || !strings.Contains(err.Error(), "2.0.0") || !strings.Contains(err.Error(), "1.18.0") {
		t.Errorf("another major version: %v", err)
	}
	if err := look(apart.encode(), entry.incarnation); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "tcp/eth0") || !strings.Contains(err.Error(), "tcp/eth1") {
		t.Errorf("another class: %v", err)
	}
}

// An entry is decoded completely or rejected.
func FuzzCardEntry(f *testing.F) {
	f.Add(entry.encode())
	f.Add([]byte{cardVersion})
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := parseCardEntry(in)
		if err == nil && !bytes.Equal(b.encode(), in) {
			t.Errorf("%x is taken as %+v", in, b)
		}
	})
}

// By a second device the name of a sender may arrive after the sender has left.
func TestLimitConnections_OldVersion_UsesOneDevice(t *testing.T) {
	lanes := func(v ucp.Version, class string) string {
		for _, c := range choose(&survey{resources: cluster, libraryVersion: v}, &params{}, jobTraits{isOneNode: true}) {
			if i := slices.IndexFunc(c.ucxSettings, func(s ucp.Setting) bool { return s.Name == "MAX_RNDV_RAILS" }); i >= 0 && c.name == class {
				return c.ucxSettings[i].Value
			}
		}
		return "UCX's"
	}
	if got := lanes(ucp.Oldest, "tcp"); got != "1" {
		t.Errorf("UCX %v over tcp has %s lanes for long messages", ucp.Oldest, got)
	}
	if got := lanes(fixesConnectAbort, "tcp"); got != "UCX's" {
		t.Errorf("UCX %v over tcp has %s", fixesConnectAbort, got)
	}
	if got := lanes(ucp.Oldest, "rc"); got != "UCX's" {
		t.Errorf("UCX %v over rc has %s", ucp.Oldest, got)
	}
	t.Setenv("UCX_MAX_RNDV_RAILS", "2")
	if got := lanes(ucp.Oldest, "tcp"); got != "UCX's" {
		t.Errorf("where the user has set them it is %s", got)
	}
}

func TestMedium_Resources_MemoryOrLoopback(t *testing.T) {
	self, lo, posix := ucp.Resource{Transport: "self", Device: "memory"}, ucp.Resource{Transport: "tcp", Device: "lo"}, ucp.Resource{Transport: "posix", Device: "memory"}
	for _, c := range []struct {
		resources []ucp.Resource
		want      trial.Medium
	}{{[]ucp.Resource{self, lo}, trial.Loopback}, {[]ucp.Resource{self, posix}, trial.Memory}, {[]ucp.Resource{self, lo, posix}, trial.Memory}} {
		if got := (&candidate{resources: c.resources}).medium(); got != c.want {
			t.Errorf("%v: %d, not %d", c.resources, got, c.want)
		}
	}
}
