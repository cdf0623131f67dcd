package testprov_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/internal/ucp/testprov"
)

// The tests show that each fault occurs. Otherwise the tests of remedies could not fail.

// pair contains two workers, the first with an endpoint to the second.
type pair struct {
	t    *testing.T
	w    [2]*ucp.Worker
	to   ucp.Endpoint
	ends [2]map[uint32]ucp.Event
}

func open(t *testing.T, class string, peerMode bool, faults ...string) *pair {
	t.Helper()
	if err := ucp.Built(); err != nil {
		t.Skip(err)
	}
	testprov.Set(t, "rc,dc,ud,tcp,shm,cuda", faults...)
	l, err := ucp.Load(testprov.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t}
	for i := range p.w {
		w, err := l.Open([]ucp.Setting{{Name: "TLS", Value: class + ",self"}}, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.AddSlots(); err != nil {
			t.Fatal(err)
		}
		w.BypassCgo()
		p.w[i], p.ends[i] = w, map[uint32]ucp.Event{}
	}
	address, err := p.w[1].Address()
	if err != nil {
		t.Fatal(err)
	}
	if p.to, err = p.w[0].Connect(address, 7, peerMode); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pair) poll() {
	var events [64]ucp.Event
	for range 10 {
		for i, w := range p.w {
			for _, e := range events[:w.Poll(events[:], false)] {
				p.ends[i][e.Slot] = e
			}
		}
	}
}

func (p *pair) send(slot uint32, n int, synchronous bool) (done bool) {
	p.t.Helper()
	done, code := p.w[0].Send(slot, p.to, bytes.Repeat([]byte{5}, n), uint64(slot), synchronous)
	if code != 0 {
		p.t.Fatal(p.w[0].Describe(code))
	}
	return done
}

func (p *pair) receive(slot uint32, n int) []byte {
	buf := make([]byte, n)
	p.w[1].Recv(slot, buf, uint64(slot), ^uint64(0), ucp.DropLonger)
	return buf
}

func (p *pair) over(i int, slot uint32) bool { _, ok := p.ends[i][slot]; return ok }

func TestClass_Each_TransfersMessages(t *testing.T) {
	for _, class := range []string{"rc", "dc", "ud", "tcp", "shm", "cuda"} {
		for _, faults := range []string{"", "inplace", "later", "queue=2"} {
			p := open(t, class, true, faults)
			for i, n := range []int{0, 8, 5000, 100_000} {
				slot := uint32(i + 1)
				if i%2 == 0 {
					p.send(slot, n, i == 2)
					p.poll()
				}
				got := p.receive(slot, n)
				if i%2 == 1 {
					p.send(slot, n, i == 1)
				}
				p.poll()
				if e := p.ends[1][slot]; !p.over(1, slot) || e.Err != 0 || e.Length != uint64(n) || !bytes.Equal(got, bytes.Repeat([]byte{5}, n)) {
					t.Errorf("%s, %s: %d bytes: %+v", class, faults, n, e)
				}
			}
		}
	}
}

func TestResources_Classes_AreListed(t *testing.T) {
	p := open(t, "rc,cuda", true, "address=70000")
	all, err := p.w[0].Resources()
	if err != nil || len(all) != 3 || all[1].String() != "rc_mlx5/mlx5_0:1" || all[2].String() != "cuda_ipc/cuda" {
		t.Errorf("%v, %v", all, err)
	}
	if a, err := p.w[0].Address(); err != nil || len(a) != 70_000 {
		t.Errorf("%d bytes, %v", len(a), err)
	}
	t.Setenv(testprov.Version, "2.0.1")
	l, err := ucp.Load(testprov.Library(t))
	if err != nil || l.Version() != (ucp.Version{Major: 2, Release: 1}) {
		t.Errorf("%v, %v", l.Version(), err)
	}
	t.Setenv(testprov.Classes, "tcp")
	if w, err := l.Open([]ucp.Setting{{Name: "TLS", Value: "rc"}}, false); err == nil {
		w.Close()
		t.Error("a missing class opens")
	}
}

func TestFault_Endpoints_FailWithAndWithoutCall(t *testing.T) {
	for fault, code := range map[string]ucp.Status{"reset": -25, "timeout": -80} {
		for _, silent := range []bool{false, true} {
			faults := []string{fault + "=1000000", ""}
			if silent {
				faults[1] = "silent"
			}
			p := open(t, "tcp", true, faults...)
			p.send(1, 100_000, false)
			faults[0] = fault + "=0"
			testprov.Set(t, "tcp", faults...)
			if _, c := p.w[0].Send(2, p.to, nil, 2, false); c != code {
				t.Errorf("%s: the next send: %v", fault, p.w[0].Describe(c))
			}
			if p.poll(); p.ends[0][1].Err != code || p.over(0, ucp.NoSlot) == silent {
				t.Errorf("%s, silent %t: %+v", fault, silent, p.ends[0])
			}
		}
	}
}

func TestWorker_Closes_FailsEndpoints(t *testing.T) {
	for _, peerMode := range []bool{true, false} {
		p := open(t, "tcp", peerMode)
		p.send(1, 100_000, false)
		p.w[1].Close()
		p.w[1] = p.w[0]
		if p.poll(); (p.over(0, 1) || p.over(1, 1)) != peerMode {
			t.Errorf("peer mode %t: %+v", peerMode, p.ends)
		}
	}
}

func TestFault_BusyQueueTags_Occur(t *testing.T) {
	p := open(t, "tcp", true, "busy")
	if p.w[0].Arm() {
		t.Error("a busy worker is armed")
	}
	p = open(t, "tcp", true, "queue=2")
	if !p.send(1, 8, false) || !p.send(2, 8, false) || p.send(3, 8, false) {
		t.Error("a queue of 2 does not take 2")
	}
	if p.poll(); !p.over(0, 3) {
		t.Error("what waited does not leave")
	}
	p = open(t, "tcp", true, "tags=1")
	p.receive(1, 8)
	p.send(3, 8, false)
	if p.poll(); !p.over(1, 1) {
		t.Errorf("bit 1 of a tag has meaning: %+v", p.ends[1])
	}
	p = open(t, "tcp", true)
	if !p.w[0].Arm() {
		t.Error("an idle worker can't be armed")
	}
}

// ucp.Worker.InvalidateRegistrations invalidates the registration, except with the fault deaf.
func TestFault_Stale_SendsOldPages(t *testing.T) {
	for fault, want := range map[string][2]byte{"": {2, 3}, "stale": {1, 3}, "stale,deaf": {1, 1}} {
		p := open(t, "tcp", true, fault)
		buf := make([]byte, 100_000)
		for i := range 3 {
			if i == 2 {
				p.w[0].InvalidateRegistrations(buf)
			}
			buf[0] = byte(i + 1)
			got := p.receive(1, len(buf))
			if _, code := p.w[0].Send(2, p.to, buf, 1, false); code != 0 {
				t.Fatal(p.w[0].Describe(code))
			}
			if p.poll(); i > 0 && got[0] != want[i-1] {
				t.Errorf("%q: message %d arrives as %d", fault, i+1, got[0])
			}
		}
	}
}

func TestFault_NoClose_NeverCompletes(t *testing.T) {
	for fault, ends := range map[string]bool{"": true, "noclose": false} {
		p := open(t, "tcp", true, fault)
		done, code := p.w[0].Disconnect(9, p.to)
		if p.poll(); code != 0 || (done || p.over(0, 9)) != ends {
			t.Errorf("%q: done %t, code %v", fault, done, code)
		}
	}
}

func TestFault_Hang_DelaysOpen(t *testing.T) {
	begin := time.Now()
	open(t, "tcp", true, "hang=1")
	if time.Since(begin) < time.Second {
		t.Error("it does not")
	}
}

func TestFault_SomeClasses_SparesOthers(t *testing.T) {
	t.Setenv(testprov.Faulty, "rc,ud")
	for class, faulty := range map[string]bool{"rc": true, "tcp": false} {
		if p := open(t, class, true, "busy"); p.w[0].Arm() == faulty {
			t.Errorf("%s: faulty %t", class, !faulty)
		}
	}
}

// It counts descriptors.
func TestClose_Descriptors_AreClosed(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	once := func() {
		p := open(t, "tcp", true)
		p.send(1, 100_000, false)
		p.poll()
		p.w[0].Close()
		p.w[1].Close()
	}
	once()
	before := count()
	for range 5 {
		once()
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, and %d before", after, before)
	}
}
