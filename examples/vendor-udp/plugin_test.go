package udp

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/plugin/host"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// protocols lists the control protocols of plugins.
var protocols = []string{config.ProtocolGoPlugin, config.ProtocolFerry}

// asPlugin builds and registers the component as a plugin.
func asPlugin(t *testing.T, protocol string) btl.Component {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "btl-udp")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./btl-udp").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := framework.NewRegistry()
	if err := host.Register(r, host.Entry{Kind: framework.BTL, Name: "udp", Command: []string{binary}, Protocol: protocol}); err != nil {
		t.Fatal(err)
	}
	c, _ := r.Lookup(framework.BTL, "udp")
	return c.(btl.Component)
}

func TestPlugin_ContractKit_Passes(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) { btltest.Cases(btltest.Subject{Component: asPlugin(t, protocol)}).Run(t) })
	}
}

func TestPlugin_RandomPrograms_MatchCompiledIn(t *testing.T) {
	var all []pmltest.Variant
	for name, c := range map[string]btl.Component{
		"compiled in": Component(), "plugin": asPlugin(t, config.ProtocolGoPlugin), "plugin over the ferry protocol": asPlugin(t, config.ProtocolFerry),
	} {
		all = append(all, pmltest.Variant{Name: name, Policy: cid.PolicyLazy, Stack: pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), c}}})
	}
	for seed := range uint64(3) {
		if err := pmltest.Metamorphic(t.Context(), seed, all); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func TestPlugin_UnderOB1_Passes(t *testing.T) {
	pmltest.Run(t, pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), asPlugin(t, config.ProtocolGoPlugin)}}, pmltest.Policies...)
}
