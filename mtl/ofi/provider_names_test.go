package ofi

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestResolveName_Offers_AreResolved(t *testing.T) {
	for _, c := range []struct {
		name, want string
		offered    []string
	}{
		{"tcp;rxm", "tcp;ofi_rxm", []string{"tcp;ofi_rxm"}},
		{"tcp;rxm", "tcp;ofi_rxm", nil},
		{"UDP;RXD", "udp;ofi_rxd", nil},
		{"verbs;rxm", "verbs;ofi_rxm", nil},
		{"verbs", "verbs;ofi_rxm", []string{"verbs;ofi_rxm"}},
		{"verbs", "verbs", nil},
		{"tcp", "tcp;ofi_rxm", []string{"tcp;ofi_rxm", "tcp;ofi_rxm"}}, // 1.17
		{"tcp", "tcp", []string{"tcp;ofi_rxm", "tcp"}},                 // 2.0
		{"net", "net", []string{"net", "net;ofi_rxm"}},
		{"udp", "udp;ofi_rxd", []string{"udp;ofi_rxd"}},
		{"tcp", "tcp;ofi_rxm", []string{"tcp;ofi_rxd", "tcp;ofi_rxm"}},
		{"Sockets", "sockets", []string{"sockets"}},
	} {
		if got := resolveName(c.name, c.offered); got != c.want {
			t.Errorf("%s means %s where %q are offered, want %s", c.name, got, c.offered, c.want)
		}
	}
}

func TestCheckNames_UnknownNames_AreErrors(t *testing.T) {
	has := []string{"tcp", "udp", "sockets", "shm", "ofi_rxm", "ofi_rxd", "ofi_mrail"}
	for name, near := range map[string]string{
		"txp;rxm": "tcp;ofi_rxm", "verbs;": "verbs;ofi_rxm", "tcp;": "tcp;ofi_rxm", "tcp;ofi_": "tcp;ofi_rxm", "cxl": "cxi", ";": "", ";rxm": "",
		"": "", "tcp;ofi_rxm;": "tcp;ofi_rxm",
		"tcp": "-", "verbs": "-", "TCP;RXM": "-", "efa": "-", "gni": "-", "psm2;ofi_mrail": "-", "ofi_rxm": "-", "sm2": "-",
	} {
		err := checkNames(&params{ProviderInclude: []string{"tcp", name}}, has)
		if near == "-" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) ||
			near != "" && !strings.Contains(err.Error(), fmt.Sprintf("the nearest name is %q", near)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := new(params)
	if framework.FillDefaults(p); checkNames(p, nil) != nil {
		t.Errorf("the default: %v", checkNames(p, nil))
	}
}
