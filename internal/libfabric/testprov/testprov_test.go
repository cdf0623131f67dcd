package testprov_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
)

// The tests show that each fault occurs. Otherwise the tests of remedies could not fail.

// rig contains two endpoints with the addresses to[0] and to[1] of each other.
type rig struct {
	t     *testing.T
	lib   *libfabric.Library
	infos *libfabric.Infos
	ep    [2]*libfabric.Endpoint
	// The address of the other endpoint.
	to   [2]uint64
	got  map[uint32]libfabric.Event
	seen [64]libfabric.Event
}

func load(t *testing.T, profiles string, faults ...string) (*libfabric.Library, *libfabric.Infos) {
	t.Helper()
	if err := libfabric.Built(); err != nil {
		t.Skip(err)
	}
	testprov.Set(t, profiles, faults...)
	l, err := libfabric.Load(testprov.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	infos, err := l.Infos("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(infos.Free)
	return l, infos
}

// open opens two endpoints of the first entry, or of the first two.
func open(t *testing.T, profiles string, faults ...string) *rig {
	t.Helper()
	lib, infos := load(t, profiles, faults...)
	r := &rig{t: t, lib: lib, infos: infos, got: map[uint32]libfabric.Event{}}
	var names [2][]byte
	for i := range r.ep {
		info := &infos.List[i%len(infos.List)]
		var err error
		if r.ep[i], err = lib.Open(info, true, info.HasDirectedReceive, 1000); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.ep[i].Close)
		if _, err := r.ep[i].AddSlots(); err != nil {
			t.Fatal(err)
		}
		if names[i], err = r.ep[i].Name(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range r.ep {
		var err error
		if r.to[i], err = r.ep[i].Insert(names[1-i]); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// poll progresses both endpoints for a while. It stores the events of the second by slot, and those of the first by slot + 1000.
func (r *rig) poll() {
	for range 200 {
		for i, e := range r.ep {
			n, _ := e.Poll(r.seen[:])
			for _, ev := range r.seen[:n] {
				r.got[ev.Slot+uint32(1000*(1-i))] = ev
			}
		}
	}
}

// send sends from the first endpoint to the second.
func (r *rig) send(slot uint32, tag uint64, buf []byte) libfabric.Errno {
	return r.ep[0].TSend(slot, buf, r.to[0], tag, 0, 0)
}

func (r *rig) receive(slot uint32, from, tag uint64, buf []byte) libfabric.Errno {
	return r.ep[1].TRecv(slot, buf, from, tag, 0, 0)
}

// check fails the test if a call returned an error.
func (r *rig) check(codes ...libfabric.Errno) {
	r.t.Helper()
	for _, c := range codes {
		if c != 0 {
			r.t.Fatal(r.lib.Text(c))
		}
	}
}

func (r *rig) over(slot uint32) bool { _, ok := r.got[slot]; return ok }

func TestProfile_Each_TransfersMessages(t *testing.T) {
	for _, name := range testprov.Profiles {
		r := open(t, name)
		if r.infos.List[0].Provider != name {
			t.Fatalf("%s: %+v", name, r.infos.List)
		}
		for i, n := range []int{0, 1, 5000, 70_000, 3 << 20} {
			sent, got := bytes.Repeat([]byte{byte(i + 1)}, n), make([]byte, n)
			r.check(r.receive(uint32(i), r.to[1], 5, got), r.send(uint32(i), 5, sent))
			for end := time.Now().Add(time.Minute); !r.over(uint32(i)) && time.Now().Before(end); {
				r.poll()
			}
			if ev := r.got[uint32(i)]; ev.Err != 0 || ev.Length != uint64(n) || !bytes.Equal(got, sent) {
				t.Errorf("%s: %d bytes: %+v", name, n, ev)
			}
		}
	}
}

func TestFault_Order_DirectedReceivesMatchFirst(t *testing.T) {
	for fault, first := range map[string]uint32{"": 1, "order": 2} {
		r := open(t, "cxi", fault)
		r.check(r.receive(1, libfabric.AnyAddress, 5, nil), r.receive(2, r.to[1], 5, nil), r.send(0, 5, nil))
		r.poll()
		if !r.over(first) || r.over(3-first) {
			t.Errorf("%q: %+v", fault, r.got)
		}
	}
}

func TestFault_Attributes_AreReported(t *testing.T) {
	_, infos := load(t, "cxi", "nodirected", "nodata", "tags=40", "max", "queues=16")
	if i := infos.List[0]; i.HasDirectedReceive || i.CQData != 0 || i.TagFormat != 1<<39 || i.MaxMessage != 1<<20 || i.TxSize != 16 || i.RxSize != 16 {
		t.Errorf("%+v", i)
	}
	lib, infos := load(t, "cxi", "unlimited")
	i := infos.List[0]
	if _, err := lib.Open(&i, false, true, i.TxSize); err == nil {
		t.Errorf("a completion queue of %d entries opens", i.TxSize)
	}
}

func TestFault_Limits_Apply(t *testing.T) {
	r := open(t, "cxi", "tags=40", "max", "queues=16")
	if code := r.send(0, 1, make([]byte, 1<<20+1)); code != libfabric.Errno(unix.EMSGSIZE) {
		t.Errorf("a message that is too long: %v", r.lib.Text(code))
	}
	for i := range uint32(17) {
		if code := r.receive(i, libfabric.AnyAddress, 7, nil); (code == libfabric.Again) != (i == 16) {
			t.Errorf("receive %d: %v", i, r.lib.Text(code))
		}
	}
	r.check(r.send(0, 1<<40|7, nil))
	if r.poll(); !r.over(0) {
		t.Error("bit 40 of a tag has meaning")
	}
}

func TestFault_Again_RefusesSends(t *testing.T) {
	r := open(t, "cxi", "again=100")
	begin := time.Now()
	for r.send(0, 1, nil) == libfabric.Again {
	}
	if d := time.Since(begin); d < 50*time.Millisecond {
		t.Errorf("it takes a message after %v", d)
	}
}

func TestFault_Silent_HidesPeerFailure(t *testing.T) {
	for fault, told := range map[string]bool{"": true, "silent": false} {
		r := open(t, "cxi", fault)
		r.check(r.send(0, 1, make([]byte, 1<<20))) // It is not received.
		r.poll()
		r.ep[1].Close()
		r.ep[1] = r.ep[0]
		if r.poll(); r.over(1000) != told && r.over(0) != told {
			t.Errorf("%q: %+v", fault, r.got)
		}
	}
}

func TestFault_Fabrics_DoNotConnect(t *testing.T) {
	r := open(t, "cxi", "fabrics")
	r.check(r.receive(1, libfabric.AnyAddress, 5, nil), r.send(0, 5, make([]byte, 1<<20)))
	if r.poll(); r.over(1) || r.got[1000].Err == 0 {
		t.Errorf("%+v", r.got)
	}
}

func TestKeys_Different_DoNotConnect(t *testing.T) {
	for _, name := range []string{"psm3", "opx"} {
		variable := "FI_" + strings.ToUpper(name) + "_UUID"
		for second, meets := range map[string]bool{"one": true, "another": false} {
			t.Setenv(variable, "one")
			lib, infos := load(t, name)
			a, err := lib.Open(&infos.List[0], false, true, 1000)
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv(variable, second)
			b, err := lib.Open(&infos.List[0], false, true, 1000)
			if err != nil {
				t.Fatal(err)
			}
			r := &rig{t: t, lib: lib, ep: [2]*libfabric.Endpoint{a, b}, got: map[uint32]libfabric.Event{}}
			address, err := b.Name()
			if err != nil {
				t.Fatal(err)
			}
			if r.to[0], err = a.Insert(address); err != nil {
				t.Fatal(err)
			}
			a.AddSlots()
			b.AddSlots()
			r.check(r.receive(1, libfabric.AnyAddress, 5, nil), r.send(0, 5, nil))
			if r.poll(); r.over(1) != meets {
				t.Errorf("%s, %s: %+v", name, second, r.got)
			}
			a.Close()
			b.Close()
		}
	}
}

// The second message is sent from the same address with other pages.
func TestFault_Stale_SendsOldPages(t *testing.T) {
	const n = 1 << 20
	for fault, want := range map[string]byte{"": 2, "stale": 1} {
		r := open(t, "cxi", fault)
		mem, err := unix.MmapPtr(-1, 0, nil, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.MunmapPtr(mem, n)
		for i := range byte(2) {
			if i == 1 {
				if err := unix.MunmapPtr(mem, n); err != nil {
					t.Fatal(err)
				}
				if _, err := unix.MmapPtr(-1, 0, mem, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED); err != nil {
					t.Fatal(err)
				}
			}
			buf, got := bytesAt(mem, n), make([]byte, n)
			copy(buf, bytes.Repeat([]byte{i + 1}, n))
			r.check(r.receive(uint32(i), r.to[1], 5, got), r.send(uint32(i), 5, buf))
			for end := time.Now().Add(time.Minute); !r.over(uint32(i)) && time.Now().Before(end); {
				r.poll()
			}
			if i == 1 && (got[0] != want || got[n-1] != 2) {
				t.Errorf("%q: %d and %d arrive", fault, got[0], got[n-1])
			}
		}
	}
}

func TestFault_Late_OccursAfterSelfTest(t *testing.T) {
	for fault, want := range map[string]int{"late": 10, "flip": 9, "lose": 9} {
		r := open(t, "cxi", fault+"=10")
		good := 0
		for i := range uint32(20) {
			got := make([]byte, 8)
			if r.receive(i, r.to[1], 5, got) != 0 || r.send(i, 5, []byte("contents")) != 0 {
				continue
			}
			if r.poll(); r.over(i) && string(got) == "contents" {
				good++
			}
		}
		if good != want {
			t.Errorf("%s: %d messages arrive as they were", fault, good)
		}
	}
}

func TestFault_CutAndClaim_Occur(t *testing.T) {
	r := open(t, "cxi", "cut", "claim")
	r.check(r.receive(1, r.to[1], 5, make([]byte, 4)), r.send(0, 5, make([]byte, 8)), r.send(2, 6, make([]byte, 9<<10)))
	r.poll()
	if ev := r.got[1]; ev.Err != 0 || ev.Length != 4 || ev.Overflow != 0 {
		t.Errorf("8 bytes into 4: %+v", ev)
	}
	r.check(r.ep[1].Peek(3, r.to[1], 6, 0, libfabric.Claim))
	if r.poll(); r.got[3].Length != 9<<10 {
		t.Fatalf("peek: %+v", r.got[3])
	}
	delete(r.got, 3)
	r.check(r.ep[1].TRecv(3, make([]byte, 9<<10), r.to[1], 6, 0, libfabric.Claim))
	if r.poll(); r.over(3) {
		t.Errorf("claimed: %+v", r.got[3])
	}
}

// It checks sockets, and pages that a cache may hold only with that fault.
func TestClose_Descriptors_AreClosed(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	t.Setenv(testprov.Dir, t.TempDir())
	once := func() {
		r := open(t, "verbs;ofi_rxm")
		r.check(r.receive(1, r.to[1], 5, make([]byte, 8)), r.send(0, 5, make([]byte, 8)), r.send(2, 6, make([]byte, 1<<20)))
		r.poll()
		r.ep[0].Close()
		r.ep[1].Close()
	}
	once()
	before := count()
	for range 5 {
		once()
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, and %d before", after, before)
	}
	if entries, err := os.ReadDir(os.Getenv(testprov.Dir)); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// A descriptor of another buffer is also refused.
func TestFault_MRLocal_RefusesUnregisteredBuffer(t *testing.T) {
	const invalid = libfabric.Errno(unix.EINVAL)
	for _, name := range []string{"cxi", "verbs;ofi_rxm"} {
		r := open(t, name, "mr_local")
		if !r.infos.List[0].RequiresRegistration {
			t.Fatalf("%+v", r.infos.List[0])
		}
		mem := make([]byte, 64)
		if code := r.send(0, 5, mem); code != invalid {
			t.Errorf("%s: a send: %v", name, r.lib.Text(code))
		}
		if code := r.receive(0, libfabric.AnyAddress, 5, mem); code != invalid {
			t.Errorf("%s: a receive: %v", name, r.lib.Text(code))
		}
		region, err := r.ep[0].Register(mem[:32])
		if err != nil {
			t.Fatal(err)
		}
		r.ep[0].SetRegion(0, region)
		if code := r.send(0, 5, mem); code != invalid {
			t.Errorf("%s: more than is registered: %v", name, r.lib.Text(code))
		}
		r.check(r.send(0, 5, mem[8:32]))
		r.poll()
		if err := r.ep[0].Deregister(region); err != nil {
			t.Fatal(err)
		}
		if code := r.send(0, 5, mem[8:32]); code != invalid {
			t.Errorf("%s: what is not registered any more: %v", name, r.lib.Text(code))
		}
	}
}

func TestFault_Gates_BlockUntilByte(t *testing.T) {
	for _, fault := range []string{"insert", "meet", "part"} {
		gate, key, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer gate.Close()
		defer key.Close()
		put := func(n int) {
			if _, err := key.Write(make([]byte, n)); err != nil {
				t.Error(err)
			}
		}
		put(map[string]int{"insert": 2}[fault])
		r := open(t, "cxi", fmt.Sprintf("%s=%d", fault, gate.Fd()))
		name, err := r.ep[1].Name()
		if err != nil {
			t.Fatal(err)
		}
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			switch fault {
			case "insert":
				r.ep[0].Insert(name)
			case "meet":
				r.send(0, 5, nil)
			case "part":
				r.ep[0].Close()
			}
		}()
		select {
		case <-returned:
			t.Errorf("%s: it does not wait", fault)
		case <-time.After(50 * time.Millisecond):
		}
		put(10)
		<-returned
		r.ep[0].Close()
		r.ep[1].Close()
	}
}
