package tcp

import (
	"errors"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestPortRangeThatIsNoneIsAConfigurationError(t *testing.T) {
	for _, bad := range []string{"x", "1-", "0-5", "9-8", "1-70000", "-1"} {
		p := &params{PortRange: bad}
		if err := p.check(); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "btl.tcp.port_range") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for text, want := range map[string][2]int{"": {0, 0}, "4000": {4000, 4000}, "4000 - 4010": {4000, 4010}} {
		if low, high, err := (&params{PortRange: text}).ports(); err != nil || [2]int{low, high} != want {
			t.Errorf("%q: %d to %d, %v", text, low, high, err)
		}
	}
}

func TestAddressPatternThatIsNoneIsAConfigurationError(t *testing.T) {
	if err := (&params{Exclude: []string{"10.0.0.0/99"}}).check(); !errors.Is(err, framework.ErrConfig) {
		t.Error(err)
	}
}
