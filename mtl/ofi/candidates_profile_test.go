package ofi_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// The attributes of the providers don't affect the order.
func TestProfile_WithDevice_IsPreferred(t *testing.T) {
	all := []string{"cxi/cxi0", "infiniband/mlx5_0", "infiniband/rdmap0s6", "infiniband/hfi1_0", "net/eth0"}
	for _, c := range []struct {
		offered, faults string
		devices         []string
		want            string
	}{
		{"verbs;ofi_rxm,tcp;ofi_rxm", "", []string{"infiniband/mlx5_0"}, "verbs;ofi_rxm"},
		{"verbs;ofi_rxm,tcp;ofi_rxm", "", nil, "tcp;ofi_rxm"},
		{"psm3,tcp;ofi_rxm", "ethernet", []string{"net/eth0"}, "tcp;ofi_rxm"},
		{"psm3,tcp;ofi_rxm", "ethernet", []string{"net/eth0", "infiniband/eth0"}, "tcp;ofi_rxm"}, // who names devices may name two alike
		{"psm3,tcp;ofi_rxm", "", []string{"infiniband/mlx5_0"}, "psm3"},
		{"cxi,verbs;ofi_rxm,psm3,efa,opx,tcp;ofi_rxm", "", all, "cxi"},
		{"efa,verbs;ofi_rxm,psm3,tcp;ofi_rxm", "", all, "efa"},
		{"opx,psm3,tcp;ofi_rxm", "", all, "opx"},
	} {
		t.Run(c.offered+" "+c.faults, func(t *testing.T) {
			lib := useProfiles(t, c.offered, c.faults)
			sys := devices(t, c.devices...)
			d := members(t, 1, func(p any) {
				withProvider(lib, "")(p)
				ofi.SetSysfs(p, sys)
			})[0].m.Describe()
			if d.Provider != c.want {
				t.Errorf("%s is used, and %s should be: %+v", d.Provider, c.want, d.Candidates)
			}
			chosen := 0
			for _, x := range d.Candidates {
				if x.Chosen {
					chosen++
				} else if x.Reason == "" && strings.Contains(c.offered, x.Provider) {
					t.Errorf("no reason for %s", x.Name)
				}
			}
			if chosen != 1 {
				t.Errorf("%d are chosen", chosen)
			}
		})
	}
}

func TestLibrary_NoProvider_ErrorNamesIt(t *testing.T) {
	lib := useProfiles(t, "")
	err := refused(t, withProvider(lib, ""))
	for _, part := range []string{lib, "no provider", "FI_PROVIDER_PATH", "mtl.ofi.library"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if !errors.Is(err, framework.ErrUnsupported) {
		t.Error(err)
	}
}
