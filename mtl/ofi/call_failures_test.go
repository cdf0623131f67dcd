package ofi_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/internal/libtest"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// TestFails_CallOfOneProvider_NextProviderIsUsed fails each call of provider cxi that opens a module, in a child process.
func TestFails_CallOfOneProvider_NextProviderIsUsed(t *testing.T) {
	if libtest.IsChild() {
		fmt.Println(openFirstOf(t, os.Getenv("LIBRARY"), "cxi", "efa"))
		return
	}
	for fault, reason := range map[string]string{
		"fi_domain":      "fi_domain: Input/output error (5)",
		"fi_domain=0":    "fi_domain: success without a result",
		"fi_av_open=0":   "fi_av_open: success without a result",
		"fi_cq_open=-12": "fi_cq_open: Cannot allocate memory (12)",
		"fi_cq_open=0":   "fi_cq_open: success without a result",
		"fi_endpoint":    "fi_endpoint: Input/output error (5)",
		"fi_endpoint=0":  "fi_endpoint: success without a result",
		"fi_ep_bind":     "fi_ep_bind: Input/output error (5)",
		"fi_enable":      "fi_enable: Input/output error (5)",
		"fi_getname":     "fi_getname: Input/output error (5)",
		"fi_recv":        "Input/output error",
		"fi_av_insert":   "fi_av_insert: Input/output error (5)",
		"fi_av_insert=0": "fi_av_insert: success without a result",
		"fi_trecvmsg":    "Input/output error",
		"fi_cq_read":     "completion queue: Input/output error",
	} {
		t.Run(fault, func(t *testing.T) {
			lib := useProfiles(t, "cxi,efa", fault)
			out, err := libtest.InChild(t, "TestFails_CallOfOneProvider_NextProviderIsUsed", "LIBRARY="+lib, testprov.Faulty+"=cxi")
			if err != nil {
				t.Fatalf("the process ends with %v:\n%s", err, out)
			}
			if !strings.HasPrefix(out, "efa, not cxi: ") || !strings.Contains(out, reason) {
				t.Errorf("not efa, or no reason %q:\n%s", reason, out)
			}
			t.Logf("%s: %s", fault, strings.TrimSuffix(out, "\nPASS\n"))
		})
	}
}

// openFirstOf opens the first working provider and describes it, with the refusal of the first.
func openFirstOf(t *testing.T, lib string, providers ...string) string {
	m, err := open(t, func(p any) {
		ofi.Set(p, providers, "auto", "auto")
		ofi.SetLibrary(p, lib, time.Second)
		ofi.SetWarn(p, false)
	})
	if err != nil {
		return err.Error()
	}
	defer m.Close()
	d := m.Describe()
	return fmt.Sprint(d.Provider, ", not ", d.Candidates[0].Provider, ": ", d.Candidates[0].Reason)
}

// TestOpen_UserVariableSet_ErrorNamesIt requires the user's variables in the error, without keys, log levels, and
// variables that ferry overrides.
func TestOpen_UserVariableSet_ErrorNamesIt(t *testing.T) {
	lib := useProfiles(t, "cxi", "fi_domain")
	for name, value := range map[string]string{"FI_CXI_X": "7", "FI_PSM3_UUID": "secret", "FI_LOG_LEVEL": "warn", "FI_OFI_RXM_USE_SRX": "0"} {
		t.Setenv(name, value)
	}
	_, err := open(t, func(p any) {
		ofi.Set(p, []string{"cxi"}, "auto", "auto")
		ofi.SetLibrary(p, lib, time.Second)
		ofi.SetWarn(p, false)
	})
	if err == nil {
		t.Fatal("the module opens although fi_domain fails")
	}
	if !strings.Contains(err.Error(), "the user has set FI_CXI_X=7, FI_PSM3_UUID") {
		t.Errorf("the variables are missing: %v", err)
	}
	for _, other := range []string{"secret", "FI_LOG_LEVEL", "FI_OFI_RXM_USE_SRX"} {
		if strings.Contains(err.Error(), other) {
			t.Errorf("%s is in the error: %v", other, err)
		}
	}
}
