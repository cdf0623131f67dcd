package testprov_test

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/libtest"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/internal/ucp/testprov"
)

// failing has the calls of UCX that can fail, with the reasons for a failure and for a success without a result. Without a
// reason no call fails.
var failing = []failure{
	{"ucp_dt_create_generic", ioError, noResult},
	{"ucp_config_read", ioError, noResult},
	{"ucp_config_modify(TLS)", ioError, ""},
	{"ucp_init_version", ioError, noResult},
	{"ucp_context_print_info", "no resources", "no resources"},
	{"ucp_worker_create", ioError, noResult},
	{"ucp_worker_get_efd", ioError, noResult},
	{"ucp_worker_get_address", ioError, noResult},
	{"ucp_ep_create", ioError, noResult},
	{"ucp_worker_arm", "not armed", ""}, // The caller polls again.
	{"ucp_tag_send_nbx", ioError, ""},
	{"ucp_tag_send_sync_nbx", ioError, anything}, // The message is lost.
	{"ucp_tag_recv_nbx", ioError, ""},
	{"ucp_tag_probe_nb", "no message", "no message"},
	{"ucp_tag_msg_recv_nbx", ioError, ""},
	{"ucp_ep_flush_nbx", ioError, ""},
	{"ucp_ep_close_nbx", ioError, ""},
	{"ucs_status_string", "", ""},
}

type failure struct{ call, failed, nothing string }

const (
	ioError  = "Input/output error (-3)"
	noResult = "success without a result"
	anything = "*"
)

// cannotFail has the calls without a result.
var cannotFail = []string{
	"ucp_get_version", "ucp_config_release", "ucp_cleanup", "ucp_worker_destroy", "ucp_worker_release_address", "ucp_worker_progress",
	"ucp_request_cancel", "ucp_request_free", "ucm_set_external_event", "ucm_vm_munmap",
}

// TestFails_EachCallOfUCX_ProcessLives makes each call fail in a child process that makes all calls.
func TestFails_EachCallOfUCX_ProcessLives(t *testing.T) {
	if err := ucp.Built(); err != nil {
		t.Skip(err)
	}
	if libtest.IsChild() {
		report(makeCalls(os.Getenv("LIBRARY")))
		return
	}
	lib := testprov.Library(t)
	check := func(fault, call, want string) {
		t.Run(fault, func(t *testing.T) {
			out, err := libtest.InChild(t, "TestFails_EachCallOfUCX_ProcessLives", "LIBRARY="+lib, testprov.Classes+"=tcp", testprov.Faults+"="+fault)
			if err != nil {
				t.Fatalf("the process ends with %v:\n%s", err, out)
			}
			if want != "" && want != anything && !strings.Contains(out, call+": "+want) {
				t.Errorf("no error %q in:\n%s", call+": "+want, out)
			}
			if want == "" && strings.Contains(out, "FAILS") {
				t.Errorf("something fails:\n%s", out)
			}
			t.Logf("%s: %s", fault, cmp.Or(regexp.MustCompile(`(?m)^FAILS .*`).FindString(out), "no error"))
		})
	}
	check("", "", "")
	check("ucs_status_string=0,ucp_worker_create", "ucp_worker_create", "no text (-3)")
	for _, f := range failing {
		name, _, _ := strings.Cut(f.call, "(")
		check(name, f.call, f.failed)
		check(name+"=0", f.call, f.nothing)
	}
}

// TestFails_ListOfCalls_IsComplete compares the lists with the calls that library.c loads.
func TestFails_ListOfCalls_IsComplete(t *testing.T) {
	text, err := os.ReadFile("../library.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`CALL\((uc\w+)\)`).FindAllSubmatch(text, -1) {
		call := string(m[1])
		if !slices.Contains(cannotFail, call) && !slices.ContainsFunc(failing, func(f failure) bool { return strings.TrimSuffix(f.call, "(TLS)") == call }) {
			t.Errorf("%s is in neither list", call)
		}
	}
}

func report(errs []error) {
	for _, err := range errs {
		fmt.Println("FAILS", err)
	}
}

// makeCalls makes all calls of UCX and returns the errors. It continues after an error where that is possible.
func makeCalls(path string) (errs []error) {
	lib, err := ucp.Load(path)
	if err != nil {
		return []error{err}
	}
	w, err := lib.Open([]ucp.Setting{{Name: "TLS", Value: "tcp,self"}}, true)
	if err != nil {
		return []error{err}
	}
	defer w.Close()
	if all, err := w.Resources(); err != nil || len(all) == 0 {
		errs = append(errs, fmt.Errorf("ucp_context_print_info: no resources (%v)", err))
	}
	if err := w.Start(); err != nil {
		return append(errs, err)
	}
	if _, err := w.AddSlots(); err != nil {
		return append(errs, err)
	}
	if !w.Arm() {
		errs = append(errs, fmt.Errorf("ucp_worker_arm: not armed"))
	}
	address, err := w.Address()
	if err != nil {
		return append(errs, err)
	}
	to, err := w.Connect(address, 1, true)
	if err != nil {
		return append(errs, err)
	}
	return append(errs, exchange(w, to)...)
}

// exchange sends the worker messages to itself, and disconnects.
func exchange(w *ucp.Worker, to ucp.Endpoint) (errs []error) {
	failed := func(call string, code ucp.Status) {
		if code != 0 {
			errs = append(errs, fmt.Errorf("%s: %s", call, w.Describe(code)))
		}
	}
	ended := map[uint32]ucp.Status{}
	poll := func() {
		var events [64]ucp.Event
		for range 10 {
			for _, e := range events[:w.Poll(events[:], true)] {
				ended[e.Slot] = e.Err
			}
		}
	}
	buf, long := make([]byte, 8), make([]byte, 2*ucp.MaxCopied)
	w.Recv(0, buf, 1, ^uint64(0), ucp.DropLonger)
	_, code := w.Send(1, to, buf, 1, false)
	failed("ucp_tag_send_nbx", code)
	_, code = w.Send(2, to, long, 2, true)
	failed("ucp_tag_send_sync_nbx", code)
	poll()
	failed("ucp_tag_recv_nbx", ended[0])
	if _, found := w.Probe(3, 2, ^uint64(0), true); found {
		w.RecvClaimed(3, long, ucp.DropLonger)
		poll()
		failed("ucp_tag_msg_recv_nbx", ended[3])
	} else {
		errs = append(errs, fmt.Errorf("ucp_tag_probe_nb: no message"))
	}
	w.Recv(4, long, 3, ^uint64(0), ucp.CutLonger) // It probes first.
	w.Cancel(4)
	_, code = w.Flush(5, to)
	failed("ucp_ep_flush_nbx", code)
	_, code = w.Disconnect(6, to)
	failed("ucp_ep_close_nbx", code)
	poll()
	return errs
}
