package testprov_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/internal/libtest"
)

// failing has the calls of libfabric, with the errors of a failure and of a success without a result. With an empty string no
// call fails. With anything the call loses a message, and any error will do.
var failing = []struct{ call, failed, nothing string }{
	{"fi_getinfo", "fi_getinfo: " + ioError, "no providers"},
	{"fi_dupinfo", "fi_dupinfo: Cannot allocate memory (12)", "fi_dupinfo: Cannot allocate memory (12)"},
	{"incomplete", "", ""}, // Entries that lack parts are left out.
	{"fi_fabric", "fi_fabric: " + ioError, "fi_fabric: " + noResult},
	{"fi_domain", "fi_domain: " + ioError, "fi_domain: " + noResult},
	{"fi_av_open", "fi_av_open: " + ioError, "fi_av_open: " + noResult},
	{"fi_cq_open", "fi_cq_open: " + ioError, "fi_cq_open: " + noResult},
	{"fi_control", "fi_control(FI_GETWAIT): " + ioError, "fi_control(FI_GETWAIT): " + noResult},
	{"fi_endpoint", "fi_endpoint: " + ioError, "fi_endpoint: " + noResult},
	{"fi_ep_bind", "fi_ep_bind: " + ioError, anything},
	{"fi_enable", "fi_enable: " + ioError, anything},
	{"fi_mr_reg", "fi_mr_reg: " + ioError, "fi_mr_reg: " + noResult},
	{"fi_mr_bind", "fi_mr_reg: " + ioError, anything},
	{"fi_mr_enable", "fi_mr_reg: " + ioError, anything},
	{"fi_close", "fi_close: " + ioError, ""},
	{"fi_getname", "fi_getname: " + ioError, anything},
	{"fi_av_insert", "fi_av_insert: " + ioError, "fi_av_insert: " + noResult},
	{"fi_av_remove", "", ""}, // The number of an address is never used again.
	{"fi_trywait", "fi_trywait", ""},
	{"fi_tsend", "fi_tsend: Input/output error", anything},
	{"fi_tsenddata", "fi_tsenddata: Input/output error", anything},
	{"fi_tinject", "fi_tinject: Input/output error", anything},
	{"fi_tinjectdata", "fi_tinjectdata: Input/output error", anything},
	{"fi_trecv", "fi_trecv: Input/output error", anything},
	{"fi_trecvmsg", "fi_trecvmsg: Input/output error", anything},
	{"fi_send", "fi_send: Input/output error", anything},
	{"fi_inject", "fi_inject: Input/output error", anything},
	{"fi_recv", "fi_recv: Input/output error", anything},
	{"fi_cancel", anything, anything},
	{"fi_cq_read", "fi_cq_read: Input/output error", anything},
	{"fi_cq_readerr", "fi_cq_read: Input/output error", anything},
	{"fi_cq_strerror", "", ""},
	{"fi_strerror", "", ""},
}

const (
	ioError  = "Input/output error (5)"
	noResult = "success without a result"
	anything = "*"
)

// TestFails_EachCallOfLibfabric_ProcessLives makes each call fail in a child process that makes all calls.
func TestFails_EachCallOfLibfabric_ProcessLives(t *testing.T) {
	if err := libfabric.Built(); err != nil {
		t.Skip(err)
	}
	if libtest.IsChild() {
		if err := makeCalls(os.Getenv("LIBRARY")); err != nil {
			fmt.Println("FAILS " + strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		return
	}
	lib := testprov.Library(t)
	check := func(fault, want string) {
		t.Run(fault, func(t *testing.T) {
			env := testprov.Environment("cxi", "mr_local", fault)
			out, err := libtest.InChild(t, "TestFails_EachCallOfLibfabric_ProcessLives", append(env, "LIBRARY="+lib)...)
			line := regexp.MustCompile(`(?m)^FAILS .*`).FindString(out)
			switch {
			case err != nil:
				t.Fatalf("the process ends with %v:\n%s", err, out)
			case want == "" && line != "":
				t.Errorf("%s", line)
			case want != anything && !strings.Contains(line, want):
				t.Errorf("no error %q: %s", want, line)
			}
			t.Logf("%s: %s", fault, cmp.Or(line, "no error"))
		})
	}
	check("", "")
	check("fi_strerror,fi_domain", "fi_domain: no text (5)")
	for _, f := range failing {
		check(f.call, f.failed)
		if f.call != "fi_close" { // The library would keep the region.
			check(f.call+"=0", f.nothing)
		}
	}
}

// makeCalls makes all calls of libfabric and returns the errors. It continues after an error of an operation.
func makeCalls(path string) error {
	lib, err := libfabric.Load(path)
	if err != nil {
		return err
	}
	if has, err := lib.Providers(); err != nil {
		return err
	} else if len(has) == 0 && !strings.Contains(os.Getenv(testprov.Faults), "incomplete") {
		return errors.New("no providers")
	}
	infos, err := lib.Infos("")
	if err != nil {
		return err
	}
	defer infos.Free()
	if len(infos.List) == 0 {
		return nil
	}
	ep, err := lib.Open(&infos.List[0], true, true, 100)
	if err != nil {
		return err
	}
	defer ep.Close()
	if _, err := ep.AddSlots(); err != nil {
		return err
	}
	name, err := ep.Name()
	if err != nil {
		return err
	}
	to, err := ep.Insert(name)
	if err != nil {
		return err
	}
	buf := make([]byte, 64)
	region, err := ep.Register(buf)
	if err != nil {
		return err
	}
	err = exchange(ep, lib, region, buf, to)
	ep.Remove(to)
	return errors.Join(err, ep.Deregister(region))
}

// exchange sends the endpoint messages to itself by each call.
func exchange(ep *libfabric.Endpoint, lib *libfabric.Library, region *libfabric.Region, buf []byte, to uint64) (err error) {
	const all = ^uint64(0)
	failed := func(call string, code libfabric.Errno) {
		if code != 0 {
			err = errors.Join(err, fmt.Errorf("%s: %s", call, lib.Text(code)))
		}
	}
	for slot := range uint32(10) {
		ep.SetRegion(slot, region)
	}
	poll := func() {
		var events [16]libfabric.Event
		for range 20 {
			n, code := ep.Poll(events[:])
			if code != 0 {
				failed("fi_cq_read", code)
				return
			}
			for i := range events[:n] {
				_ = ep.Describe(&events[i])
			}
		}
	}
	failed("fi_recv", ep.Recv(0, buf))
	failed("fi_recv", ep.Recv(1, buf))
	failed("fi_send", ep.Send(2, buf[:8], to, 0))
	failed("fi_inject", ep.Send(0, buf[:8], to, libfabric.Inject))
	failed("fi_trecv", ep.TRecv(3, buf, libfabric.AnyAddress, 0, all, 0))
	failed("fi_tsend", ep.TSend(4, buf[:8], to, 1, 0, 0))
	failed("fi_tsenddata", ep.TSend(5, buf[:8], to, 1, 7, libfabric.WithData))
	failed("fi_tinject", ep.TSend(0, buf[:8], to, 1, 0, libfabric.Inject))
	failed("fi_tinjectdata", ep.TSend(0, buf[:8], to, 1, 7, libfabric.Inject|libfabric.WithData))
	poll()
	failed("fi_trecvmsg", ep.Peek(6, libfabric.AnyAddress, 0, all, libfabric.Claim))
	poll()
	failed("fi_trecv", ep.TRecv(7, buf, libfabric.AnyAddress, 99, 0, 0)) // A failed completion follows.
	ep.Cancel(7)
	if !ep.TryWait() && strings.Contains(os.Getenv(testprov.Faults), "fi_trywait") {
		err = errors.Join(err, errors.New("fi_trywait"))
	}
	poll()
	return err
}
