package info

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ferrympi/ferry/framework"
)

// The terminal has 80 columns.
func TestFormat_LongReasons_FitTerminal(t *testing.T) {
	const width = 80
	long := strings.Repeat("why it can't be used ", 20)
	info := &Info{
		Version: "1.2.3",
		Components: []Component{
			{Framework: "bootstrap", Name: "somebodys_own", Status: "unavailable", Reason: long, Summary: long,
				Params: []Param{{ParamSpec: framework.ParamSpec{Name: "bootstrap.somebodys_own.parameter", Default: "1", Doc: long}, Value: "2", Source: "file /etc/ferry/config.yaml"}}},
			{Framework: "pml", Name: "ob1", Status: "usable", Summary: "in one line"},
		},
		Networks: []Network{
			{Component: "mtl ofi", Library: "libfabric 2.5", Devices: []Device{
				{Name: "verbs;ofi_rxm on mlx5_0 (10.1.0.0/16)", Provider: "verbs;ofi_rxm", State: "usable"},
				{Name: "net on eth0", Provider: "net", State: "refused", Reason: long},
				{Name: "net on eth1", Provider: "net", State: "refused", Reason: long},
				{Name: "cxi", Provider: "cxi", State: "unavailable", Reason: long},
			}},
			{Component: "mtl other", Reason: long},
		},
	}
	short, all := info.format(false, width), info.format(true, width)
	params, err := info.formatMatching("somebodys", width)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{short, all, params} {
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
	for text, want := range map[string]string{
		short:  "1 more providers offer nothing",
		all:    "net on eth1",
		params: "bootstrap.somebodys_own.parameter = 2\n    file /etc/ferry/config.yaml; default 1; level",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(short, "in one line") || strings.Contains(short, "net on eth") || !strings.Contains(short, "bootstrap.somebodys_own.parameter = 2") {
		t.Errorf("the short form:\n%s", short)
	}
}
