package ucx_test

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/mtl/ucx"
)

// other is a component of its own to the kit.
type other struct{ mtl.Component }

// subject sets the parameters of a class.
func subject(class, devices, mode, wait string) mtltest.Subject {
	c := ucx.Component()
	set := func(mode string) func(any) {
		return func(p any) { ucx.Set(p, []string{class}, strings.Fields(devices), mode, wait) }
	}
	differs := map[string]string{"peer": "none", "none": "peer"}
	return mtltest.Subject{
		Component:   c,
		Params:      func(_ int, p any) { set(mode)(p) },
		Other:       other{c},
		OtherParams: set(differs[mode]),
	}
}

func TestKit(t *testing.T) {
	for _, c := range []struct{ class, devices, mode, wait string }{
		{"shm", "", "peer", "poll"},
		{"tcp", "lo", "peer", "fd"},
		{"shm", "", "none", "fd"},
		{"tcp", "lo", "none", "poll"},
	} {
		t.Run(c.class+","+c.mode+","+c.wait, func(t *testing.T) { mtltest.Cases(subject(c.class, c.devices, c.mode, c.wait)).Run(t) })
	}
}
