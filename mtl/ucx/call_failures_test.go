package ucx_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/libtest"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/internal/ucp/testprov"
)

// Each call of class rc that opens a module fails, in a child process.
func TestFails_CallOfOneClass_NextClassIsUsed(t *testing.T) {
	if libtest.IsChild() {
		fmt.Println(openAny(os.Getenv("LIBRARY")))
		return
	}
	for fault, reason := range map[string]string{
		"ucp_worker_create":        "ucp_worker_create: Input/output error (-3)",
		"ucp_worker_create=-4":     "ucp_worker_create: Out of memory (-4)",
		"ucp_worker_create=0":      "ucp_worker_create: success without a result",
		"ucp_worker_get_address":   "ucp_worker_get_address: Input/output error (-3)",
		"ucp_worker_get_address=0": "ucp_worker_get_address: success without a result",
		"ucp_ep_create":            "ucp_ep_create: Input/output error (-3)",
		"ucp_ep_create=0":          "ucp_ep_create: success without a result",
		"ucp_tag_send_nbx":         "Input/output error (-3)",
		"ucp_tag_send_sync_nbx":    "Input/output error (-3)",
		"ucp_tag_recv_nbx":         "Input/output error (-3)",
		"ucp_tag_probe_nb":         "probe and claim: nothing came",
		"ucp_tag_msg_recv_nbx":     "Input/output error (-3)",
	} {
		t.Run(fault, func(t *testing.T) {
			lib := simulate(t, "rc,tcp", fault)
			out, err := libtest.InChild(t, "TestFails_CallOfOneClass_NextClassIsUsed", "LIBRARY="+lib, testprov.Faulty+"=rc")
			if err != nil {
				t.Fatalf("the process ends with %v:\n%s", err, out)
			}
			if !strings.HasPrefix(out, "tcp, not rc: ") || !strings.Contains(out, reason) {
				t.Errorf("not tcp, or no reason %q:\n%s", reason, out)
			}
			t.Logf("%s: %s", fault, strings.TrimSuffix(out, "\nPASS\n"))
		})
	}
}

// openAny opens the best class and returns its name, with the refusal of the first one.
func openAny(lib string) string {
	m, err := open(0, lib, time.Second)
	if err != nil {
		return err.Error()
	}
	defer m.Close()
	d := m.Describe()
	return fmt.Sprint(d.Provider, ", not ", d.Candidates[0].Provider, ": ", d.Candidates[0].Reason)
}

func TestFails_CallOfEveryClass_ErrorNamesIt(t *testing.T) {
	if err := ucp.Built(); err != nil {
		t.Skip(err)
	}
	for fault, reason := range map[string]string{
		"ucp_worker_create=-4":   "ucp_worker_create: Out of memory (-4)",
		"ucp_init_version":       "ucp_init_version: Input/output error (-3)",
		"ucp_config_read=0":      "ucp_config_read: success without a result",
		"ucp_context_print_info": "UCX 1.18.1 has no transport of class rc",
	} {
		m, err := open(0, simulate(t, "rc,tcp", fault), time.Second)
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", fault, err)
		}
	}
}
