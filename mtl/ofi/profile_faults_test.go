package ofi_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// With layout data, a receive from one rank would match before an older one from any.
func TestProfile_ReceivesOutOfOrder_UsesPackedLayout(t *testing.T) {
	for fault, why := range map[string]string{"order": "order", "nodirected": "FI_DIRECTED_RECV", "nodata": "completion data"} {
		t.Run(fault, func(t *testing.T) {
			d := members(t, 1, withProvider(useProfiles(t, "cxi", fault), "cxi"))[0].m.Describe()
			if !strings.HasPrefix(d.Mode, "packed") || !slices.ContainsFunc(d.Notes, func(n string) bool { return strings.Contains(n, why) }) {
				t.Errorf("%s, %q", d.Mode, d.Notes)
			}
		})
	}
	for _, provider := range testprov.Profiles { // psm3 has completion data only on request.
		d := members(t, 1, withProvider(useProfiles(t, provider), provider))[0].m.Describe()
		if !strings.Contains(d.Mode, "completion data") || slices.ContainsFunc(d.Notes, func(n string) bool { return strings.Contains(n, "sender in the tag") }) {
			t.Errorf("%s without a fault: %s, %q", provider, d.Mode, d.Notes)
		}
	}
}

func TestProfile_Defective_UsesNext(t *testing.T) {
	for fault, why := range map[string]string{
		"cut":   "too long for its receive",
		"claim": "probe and claim",
	} {
		t.Run(fault, func(t *testing.T) {
			lib := useProfiles(t, "cxi", fault)
			err := refused(t, func(p any) {
				withProvider(lib, "cxi")(p)
				ofi.SetLibrary(p, lib, 500*time.Millisecond)
			})
			if !strings.Contains(err.Error(), why) && !strings.Contains(err.Error(), "selftest_timeout") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestProfile_InconsistentAttributes_IsRefused(t *testing.T) {
	for _, c := range []struct {
		provider, fault string
		want            []string
	}{
		{"cxi", "rx=0", []string{"a receive queue of 0 entries", "rx_attr.size"}},
		{"cxi", "tx=0", []string{"a send queue of 0 entries", "tx_attr.size"}},
		{"cxi", "tags=8", []string{"8 bits", "mem_tag_format 0x80"}},
		{"cxi", "max=1000,injects=2000", []string{"1000", "max_msg_size", "2000", "inject_size"}},
		{"cxi", "max=1000,injects=500", []string{"a limit of 1000 bytes", "max_msg_size"}},
		{"efa", "injects=1125899906842624", []string{"1125899906842624", "inject_size", "bytes of memory"}},
	} {
		err := refused(t, withProvider(useProfiles(t, c.provider, c.fault), c.provider))
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v: no %q in it", c.fault, err, w)
			}
		}
	}
}

// A completion queue of the length that psm3 and opx report would not fit into memory.
func TestProfile_UnlimitedQueues_OpensShortQueue(t *testing.T) {
	for _, c := range [][]string{{"psm3"}, {"opx"}, {"cxi", "queues=1099511627776"}} {
		all := members(t, 2, withProvider(useProfiles(t, c[0], c[1:]...), c[0]))
		if err := exchange(t, all[0], all[1], 1<<20); err != nil {
			t.Errorf("%q: %v", c, err)
		}
	}
}

func TestProfile_NoSpaceForASecond_KeepsOrder(t *testing.T) {
	lib := useProfiles(t, "cxi", "again=1000")
	all := members(t, 2, withProvider(lib, "cxi"))
	a, b := all[0], all[1]
	var ops []*onceOp
	var got [][]byte
	const n = 60
	for i := range n {
		size := []int{1, 100, 5000, 100_000}[i%4]
		s, err := a.send(b, 1, slices.Repeat([]byte{byte(i)}, size), mtl.Standard)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, make([]byte, 100_000))
		r, err := b.receive(a, 1, got[i])
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, s, r)
	}
	pollUntilDone(t, all, ops...)
	for i := range n {
		if err := errors.Join(ops[2*i].Err, ops[2*i+1].Err); err != nil || got[i][0] != byte(i) {
			t.Errorf("message %d: %v, of message %d", i, err, got[i][0])
		}
	}
}

func TestProfile_PeerFailureReported_OthersContinue(t *testing.T) {
	for _, provider := range testprov.Profiles {
		all := members(t, 3, withProvider(useProfiles(t, provider), provider))
		a, b, c := all[0], all[1], all[2]
		if err := errors.Join(exchange(t, a, b, 8), exchange(t, b, a, 8), exchange(t, a, c, 8)); err != nil {
			t.Fatal(err)
		}
		send, err := a.send(b, 1, make([]byte, 1<<20), mtl.Standard) // b never fetches it
		if err != nil {
			t.Fatal(err)
		}
		b.m.Close()
		pollUntilDone(t, []*member{a, c}, send)
		if !errors.Is(send.Err, framework.ErrTransport) || !strings.Contains(send.Err.Error(), "rank 1") {
			t.Errorf("%s: %v", provider, send.Err)
		}
		if err := exchange(t, a, c, 1<<20); err != nil {
			t.Errorf("%s: with another one: %v", provider, err)
		}
	}
}

func TestProfile_PeerFailureNotReported_ForgetEndsOperations(t *testing.T) {
	all := members(t, 3, withProvider(useProfiles(t, "cxi", "silent"), "cxi"))
	a, b, c := all[0], all[1], all[2]
	if err := exchange(t, a, b, 8); err != nil {
		t.Fatal(err)
	}
	send, err := a.send(b, 1, make([]byte, 1<<20), mtl.Standard)
	if err != nil {
		t.Fatal(err)
	}
	b.m.Close()
	for range 1000 {
		a.m.Poll()
	}
	if send.completions != 0 {
		t.Fatalf("the profile says %v", send.Err)
	}
	why := errors.New("killed")
	a.m.Forget(a.to(b), why)
	pollUntilDone(t, []*member{a, c}, send)
	if !errors.Is(send.Err, why) {
		t.Errorf("%v", send.Err)
	}
	if err := exchange(t, a, c, 1<<20); err != nil {
		t.Errorf("with another one: %v", err)
	}
}

func TestProfile_TwoNetworks_UsesOne(t *testing.T) {
	lib := useProfiles(t, "cxi,verbs;ofi_rxm", "fabrics")
	for _, provider := range []string{"cxi", "verbs;ofi_rxm"} {
		all := members(t, 2, func(p any) {
			withProvider(lib, provider)(p)
			ofi.SetSysfs(p, devices(t, "cxi/cxi0", "cxi/second", "infiniband/mlx5_0", "infiniband/mlx5_1"))
		})
		if err := exchange(t, all[0], all[1], 1<<20); err != nil {
			t.Errorf("%s: %v", provider, err)
		}
	}
}

func TestProfile_Hangs_UsesAnother(t *testing.T) {
	t.Cleanup(func() {
		for ofi.HangingCalls() > 0 {
			time.Sleep(10 * time.Millisecond)
		}
	})
	lib := useProfiles(t, "cxi", "hang")
	err := refused(t, func(p any) {
		withProvider(lib, "cxi")(p)
		ofi.SetLibrary(p, lib, 100*time.Millisecond)
	})
	if !strings.Contains(err.Error(), "does not return within 100ms") {
		t.Errorf("%v", err)
	}
}

// Modules over other providers continue.
func TestProfile_FailsLater_ErrorNamesIt(t *testing.T) {
	lib := useProfiles(t, "cxi", "late=20")
	all := members(t, 2, withProvider(lib, "cxi"))
	testprov.Set(t, "verbs;ofi_rxm")
	others := members(t, 2, withProvider(lib, "verbs;ofi_rxm"))
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = exchange(t, all[0], all[1], 8)
	}
	if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "cxi") {
		t.Errorf("%v", err)
	}
	for range 50 {
		if err := exchange(t, others[0], others[1], 8); err != nil {
			t.Fatalf("another stack: %v", err)
		}
	}
}
