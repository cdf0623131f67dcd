package host_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/plugin/host"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// source is the plugin in C, written from docs/plugin-protocol.md alone.
const source = "../../examples/plugin-c/plugin.c"

// compiled is where it is, once a test has asked for it.
var compiled = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ferry-plugin-c-")
	if err != nil {
		return "", err
	}
	scratch = dir
	binary := filepath.Join(dir, "btl-c")
	out, err := exec.Command("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", binary, source).CombinedOutput()
	if err != nil {
		err = &compileError{err, string(out)}
	}
	return binary, err
})

// scratch is the folder of compiled programs. TestMain removes it.
var scratch string

type compileError struct {
	error
	text string
}

func (e *compileError) Error() string {
	return "gcc " + source + ": " + e.error.Error() + "\n" + e.text
}

// inC returns the plugin in C as a component.
func inC(t *testing.T, args ...string) btl.Component {
	t.Helper()
	needs.Program(t, "gcc", "gcc")
	binary, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	return component(t, host.Entry{Kind: framework.BTL, Name: "c", Command: append([]string{binary}, args...), Protocol: config.ProtocolFerry})
}

func TestPluginInC_Loopback_KeepsContract(t *testing.T) {
	btltest.Cases(btltest.Subject{Component: inC(t)}).Run(t)
}

func TestPluginInC_OB1_PassesKit(t *testing.T) {
	needs.Time(t)
	policies := []cid.Policy{cid.PolicyLazy} // which asks most of a transport
	if *full {
		policies = pmltest.Policies
	}
	pmltest.Run(t, pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), inC(t)}}, policies...)
}

// A random program has the same result over all stacks.
func TestRandomPrograms_OverPlugins_HaveEqualResults(t *testing.T) {
	over := func(name string, policy cid.Policy, btls ...btl.Component) pmltest.Variant {
		return pmltest.Variant{Name: name, Policy: policy, Stack: pmltest.Stack{PML: ob1.Component(), BTLs: btls}}
	}
	all := []pmltest.Variant{
		over("memory", cid.PolicyAgree, btltest.NewMemory(btltest.Options{NoRead: true})),
		over("plugin in C", cid.PolicyLazy, self.Component(), inC(t)),
		over("plugin in C, and to itself one in Go", cid.PolicyGather, component(t, entry("loopback")), inC(t)),
	}
	seeds := uint64(3)
	if *full {
		seeds = 50
	}
	for seed := range seeds {
		if err := pmltest.Metamorphic(t.Context(), seed, all); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func TestPluginInC_OtherVersion_ReturnsError(t *testing.T) {
	e := inC(t).(config.Plugged).Plugin()
	e.Env = append(e.Env, "FERRY_PLUGIN=9")
	e.Name = "acme"
	if _, _, _, err := open(t, e, io.Discard, nil); err == nil || !strings.Contains(err.Error(), "the plugin reports: \"this plugin speaks version 1") {
		t.Error(err)
	}
}

func TestPluginInC_Null_KeepsContract(t *testing.T) {
	needs.Time(t)
	btltest.Cases(btltest.Subject{Component: inC(t, "null")}).Run(t)
}
