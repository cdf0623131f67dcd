package tcp

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/progress"
)

// The error names parameter, value and source.
func TestParams_Invalid_IsErrConfig(t *testing.T) {
	r := framework.NewRegistry()
	r.Register(Component())
	defaults, err := r.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, value, says string }{
		{"port_range", "x", "range of ports"}, {"port_range", "1-", "range of ports"}, {"port_range", "0-5", "range of ports"},
		{"port_range", "9-8", "range of ports"}, {"port_range", "1-70000", "range of ports"}, {"port_range", "-1", "range of ports"},
		{"address_include", "10.0.0.0/99", "not a network"}, {"address_exclude", "eth[", "pattern"},
	} {
		vals, err := defaults.With("flag --set", map[string]string{"btl.tcp." + c.name: c.value})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Select(t.Context(), framework.BTL, vals)
		if !errors.Is(err, framework.ErrConfig) {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
			continue
		}
		for _, part := range []string{"btl.tcp." + c.name, `"` + c.value + `"`, "flag --set", c.says} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s=%s: %v: does not say %s", c.name, c.value, err, part)
			}
		}
	}
}

func TestParams_PortRange_IsParsed(t *testing.T) {
	for text, want := range map[string][2]int{"": {0, 0}, "4000": {4000, 4000}, "4000 - 4010": {4000, 4010}} {
		if low, high, err := (&params{PortRange: text}).ports(); err != nil || [2]int{low, high} != want {
			t.Errorf("%q: %d to %d, %v", text, low, high, err)
		}
	}
}

func TestNoAddress_OnlyLinkLocal_IsNamed(t *testing.T) {
	eth := netaddr.Interface{Name: "eth0", Flags: net.FlagUp, Nets: []netip.Prefix{netip.MustParsePrefix("169.254.1.1/16"), netip.MustParsePrefix("fe80::1/64")}}
	err := noAddress([]netaddr.Interface{eth}, []netaddr.LeftOut{{What: "loopback", Why: "the job is on more than one node"}})
	for _, part := range []string{"loopback", "169.254.1.1 (eth0): a link-local address", "fe80::1 (eth0): a link-local address"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: %q is missing", err, part)
		}
	}
}

func TestOpen_ExcludeMatchesNothing_IsLogged(t *testing.T) {
	var log bytes.Buffer
	engine := progress.New(progress.Options{})
	defer engine.Close()
	m, err := component{}.Open(t.Context(), btl.Env{
		Env:    progress.Env{Engine: engine, Logger: slog.New(slog.NewTextHandler(&log, nil))},
		Params: &params{AddressExclude: []string{"eth77*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !strings.Contains(log.String(), "address_exclude matches no interface or address of this host") || !strings.Contains(log.String(), "eth77*") {
		t.Errorf("the log has %q", log.String())
	}
}
