package tcp_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
	"github.com/ferrympi/ferry/test/nettest"
)

var full = flag.Bool("full", false, "run the tests between hosts, and the flood, at their full size")

func TestMain(m *testing.M) {
	nettest.Enter()
	if len(os.Args) > 2 && os.Args[1] == rankArg {
		if err := beRank(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if command.path != "" {
			_ = os.RemoveAll(filepath.Dir(command.path))
		}
		os.Exit(code)
	}))
}

func TestModule_Kit_Passes(t *testing.T) {
	for _, c := range []struct {
		name   string
		params func(int, any)
		first  int
	}{{"defaults", nil, 0}, {"smallest limits", tcp.Smallest, 0}, {"three links, added processes", tcp.Links(3), kittest.AddedFirst}, {"TLS", tcp.TLS, 0}, {"TLS, smallest limits", tcp.SmallestTLS, 0}} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "TLS" && !*full {
				t.Skip("with -full only; the smallest limits run always")
			}
			btltest.Cases(btltest.Subject{Component: tcp.Component(), Params: c.params, First: c.first}).Run(t)
		})
	}
}

func stack(tcp btl.Component) pmltest.Stack {
	return pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), tcp}}
}

func TestOB1_OverTCP_Passes(t *testing.T) {
	needs.Time(t)
	pmltest.Run(t, stack(tcp.Component()), pmltest.Policies...)
}

func TestOB1_FramesPoisonedAfterDelivery_Passes(t *testing.T) {
	needs.Time(t)
	pmltest.Run(t, stack(pmltest.Poisoned(tcp.Component())), cid.PolicyLazy)
}

var (
	seeds = flag.Uint64("seeds", 4, "metamorphic runner: number of seeds")
	seed  = flag.Uint64("seed", 0, "metamorphic runner: the first seed")
)

// Random programs over several parameters, with links that break often.
func TestMetamorphic_ConnectionsBreak_OutcomesAreEqual(t *testing.T) {
	for s := *seed; s < *seed+*seeds; s++ {
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) {
			var all []pmltest.Variant
			var broken []*tcp.Breaking
			for _, links := range []string{"1", "3"} {
				for _, window := range []string{"4MiB", "16KiB"} {
					b := &tcp.Breaking{Component: tcp.Component(), Seed: s, One: 50}
					broken = append(broken, b)
					st := stack(b)
					st.Set = map[string]string{"btl.tcp.links": links, "btl.tcp.window": window}
					all = append(all, pmltest.Variant{Name: links + " links, " + window, Policy: cid.PolicyLazy, Stack: st})
				}
			}
			b := &tcp.Breaking{Component: tcp.Component(), Seed: s, One: 50}
			broken = append(broken, b)
			st := stack(b)
			st.Set = map[string]string{"btl.tcp.links": "3", "btl.tcp.window": "64KiB", "btl.tcp.security": "tls"}
			all = append(all, pmltest.Variant{Name: "TLS", Policy: cid.PolicyLazy, Stack: st})
			if err := pmltest.Metamorphic(t.Context(), s, all); err != nil {
				t.Error(err)
			}
			for i, b := range broken {
				t.Logf("%s: %d connections were cut", all[i].Name, b.Cuts.Load())
			}
		})
	}
}
