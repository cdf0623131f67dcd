package host_test

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/plugin/host"
)

func TestTry_Plugin_ReportsWhetherItStarts(t *testing.T) {
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		good := component(t, entry("loopback"))
		if err := host.Try(t.Context(), good, kittest.Params(good, nil)); err != nil {
			t.Error(err)
		}
		e := script(t, "#!/bin/sh\necho no such library >&2\nexit 4 # %s\n")
		e.Protocol = entry("").Protocol
		bad := component(t, e)
		err := host.Try(t.Context(), bad, kittest.Params(bad, nil))
		if err == nil || !strings.Contains(err.Error(), "exit status 4") || !strings.Contains(err.Error(), `last line of output: "no such library"`) {
			t.Error(err)
		}
		if pids := children(t); len(pids) > 0 {
			t.Errorf("processes %v are left", pids)
		}
	})
}

func TestTry_CompiledIn_IsNil(t *testing.T) {
	c := self.Component()
	if err := host.Try(t.Context(), c, c.Params()); err != nil {
		t.Error(err)
	}
}
