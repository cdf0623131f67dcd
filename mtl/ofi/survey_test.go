package ofi_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// surveyOf surveys one provider, or all for "".
func surveyOf(t *testing.T, provider string) []mtl.Candidate {
	t.Helper()
	c := ofi.Component()
	p := c.Params()
	framework.FillDefaults(p)
	if provider != "" {
		ofi.Set(p, []string{provider}, "auto", "auto")
	}
	all, err := c.(mtl.Surveyor).Survey(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Each name is a provider with an offer or an unavailable one, also if it is queried alone.
func TestSurvey_ProvidersWithoutDevice_HaveReasons(t *testing.T) {
	needLibfabric(t)
	c := ofi.Component()
	p := c.Params()
	framework.FillDefaults(p)
	names, err := c.(mtl.Surveyor).Providers(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tcp;ofi_rxm", "sockets", "cxi", "verbs;ofi_rxm", "psm3", "efa", "opx"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not in %q", name, names)
		}
	}
	of := func(name string, all []mtl.Candidate, own bool) (here, not int) {
		for _, c := range all {
			if !regexp.MustCompile(`^libfabric [12]\.`).MatchString(c.Library) {
				t.Errorf("%s is of library %q", c.Name, c.Library)
			}
			switch {
			case c.Provider != name:
				if own && !c.Refused {
					t.Errorf("%s was not included, and is not refused", c.Name)
				}
			case !c.Unavailable:
				here++
			case strings.Contains(c.Reason, "fi_getinfo: No data available"):
				not++
			default:
				t.Errorf("%s: %q", name, c.Reason)
			}
		}
		return here, not
	}
	all := surveyOf(t, "")
	for _, name := range names {
		own := surveyOf(t, name)
		here, not := of(name, own, true)
		if (here > 0) == (not == 1) {
			t.Errorf("%s is there %d times, and unavailable %d times", name, here, not)
		}
		if h, n := of(name, all, false); h != here || n != not {
			t.Errorf("%s by itself: %d and %d; among all: %d and %d", name, here, not, h, n)
		}
	}
	if here, not := of("nosuch", surveyOf(t, "nosuch"), true); here != 0 || not != 1 {
		t.Errorf("nosuch: %d, %d", here, not)
	}
	if here, _ := of("tcp;ofi_rxm", all, false); here == 0 {
		t.Errorf("tcp;ofi_rxm is missing: %+v", all)
	}
}

// Log lines of other providers, of parameters and of other layers are ignored.
func TestLogReason_MixedLog_IsOfTheProvider(t *testing.T) {
	const log = `something else
libfabric:7:1795191319::core:core:ofi_register_provider():461<info> registering provider: shm (117.0)
libfabric:7:1795191319::psm2:core:psmx2_init_lib():233<info> no hfi device is found.
libfabric:7:1795191319::verbs:fabric:vrb_init_info():1346<info> no RDMA devices found
libfabric:7:1795191319::verbs:core:fi_param_get_():278<info> variable tx_size=<not set>
libfabric:7:1795191320:ofi_rxm:core:core:ofi_layering_ok():1110<info> Provider ofi_rxm is excluded
libfabric:7:1795191320::psm2:core:psmx2_fini():656<info> 
libfabric:7:1795191320::efa`
	for provider, want := range map[string]string{
		"verbs": "no RDMA devices found", "Verbs;ofi_rxm": "no RDMA devices found", "psm2": "no hfi device is found.", "efa": "", "nosuch": "",
	} {
		if got := ofi.Component().(mtl.Surveyor).LogReason(provider, log); got != want {
			t.Errorf("%s: %q, want %q", provider, got, want)
		}
	}
}

func TestLogReason_ChildProcess_HasReason(t *testing.T) {
	needLibfabric(t)
	c := ofi.Component().(mtl.Surveyor)
	const provider = "verbs;ofi_rxm"
	if !surveyOf(t, provider)[0].Unavailable {
		t.Skip("there is an RDMA device")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childVariable+"=survey "+provider), c.LogEnvironment()...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	if !strings.HasPrefix(out.String(), provider+": ") {
		t.Errorf("the child says %q", out.String())
	}
	t.Logf("%s%s", out.String(), c.LogReason(provider, log.String()))
	if !strings.Contains(log.String(), ":verbs:") {
		t.Skip("this libfabric was compiled without verbs, which therefore says nothing")
	}
	if c.LogReason(provider, log.String()) == "" {
		t.Errorf("no reason in %s", log.String())
	}
	if r := c.LogReason("nosuch", log.String()); r != "" {
		t.Errorf("nosuch says %q", r)
	}
}

// surveyChild prints the reason why the provider is unavailable.
func surveyChild(provider string) error {
	c := ofi.Component()
	p := c.Params()
	framework.FillDefaults(p)
	ofi.Set(p, []string{provider}, "auto", "auto")
	all, err := c.(mtl.Surveyor).Survey(context.Background(), p)
	for _, c := range all {
		fmt.Printf("%s: %s\n", c.Name, c.Reason)
	}
	return err
}
