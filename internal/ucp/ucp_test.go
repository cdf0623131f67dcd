package ucp

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
)

func TestLoad_MissingLibrary_ErrorNamesIt(t *testing.T) {
	for _, path := range []string{"libnosuchucp.so.0", "/nonexistent/libucp.so.0", "libc.so.6"} {
		_, err := Load(path)
		if errors.Is(err, ErrNotBuilt) {
			t.Skip(err)
		}
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestVersion_Before_Compares(t *testing.T) {
	for v, old := range map[Version]bool{{1, 12, 9}: true, {1, 13, 0}: false, {1, 13, 1}: false, {1, 18, 1}: false, {2, 0, 0}: false, {0, 99, 0}: true} {
		if v.Before(Oldest) != old {
			t.Errorf("%v is too old: %t", v, !old)
		}
	}
}

func TestParseResources_OutputOfUCX_ListsAll(t *testing.T) {
	got := parseResources(`#
# UCP context
#
#     component 0  :  self
#            md 0  :  component 0  self
#
#      resource 0  :  md 0  dev 0  flags -- self/memory0
#      resource 11 :  md 3  dev 12 flags ---- rc_mlx5/mlx5_0:1
#
# memory: 0.00MB, file descriptors: 2
`)
	want := []Resource{{"self", "memory0"}, {"rc_mlx5", "mlx5_0:1"}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%v", got)
	}
}

// A layout or a constant that differs from UCX's would corrupt memory. For headers of another version use CPATH=DIR go test -count=1, where DIR
// contains ucp/api/ucp.h.
func TestABI_Headers_AreEqual(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		needs.Missing(t, "install gcc: %v", err)
	}
	if out, err := exec.Command(gcc, "-E", "-include", "ucp/api/ucp.h", "-x", "c", "/dev/null").CombinedOutput(); err != nil {
		needs.Missing(t, "install libucx-dev: %s", out)
	}
	program := filepath.Join(t.TempDir(), "abi")
	out, err := exec.Command(gcc, "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/abi.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// start opens a worker over shared memory, with 256 slots.
func start(t testing.TB) *Worker {
	t.Helper()
	Setenv("UCX_ERROR_SIGNALS", "")
	Setenv("UCX_LOG_LEVEL", "fatal")
	Setenv("UCX_POSIX_ERROR_HANDLING", "y")
	l, err := Load("libucp.so.0")
	if err != nil {
		needs.Missing(t, "install libucx0: %v", err)
	}
	w, err := l.Open([]Setting{{"TLS", "posix,self"}}, false)
	if err == nil {
		t.Cleanup(w.Close)
		err = w.Start()
	}
	if err == nil {
		_, err = w.AddSlots()
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// ends has the events that were polled and not yet returned, by worker and slot.
type ends map[*Worker]map[uint32]Event

// until polls workers until the event of a slot of the first has come. It keeps other events.
func (all ends) until(t *testing.T, slot uint32, workers ...*Worker) Event {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		for _, w := range workers {
			if all[w] == nil {
				all[w] = map[uint32]Event{}
			}
			var events [4]Event
			for _, e := range events[:w.Poll(events[:], false)] {
				all[w][e.Slot] = e
			}
		}
		if e, ok := all[workers[0]][slot]; ok {
			delete(all[workers[0]], slot)
			return e
		}
	}
	t.Fatalf("slot %d: no event", slot)
	return Event{}
}

// It covers a short, a long and a claimed message, and a canceled receive.
func TestWorker_TwoInOneProcess_ExchangeMessages(t *testing.T) {
	for _, way := range []string{"by cgo", "direct"} {
		t.Run(way, func(t *testing.T) { twoWorkersTalk(t, way == "direct") })
	}
}

func twoWorkersTalk(t *testing.T, direct bool) {
	a, b, all := start(t), start(t), ends{}
	if direct {
		a.BypassCgo()
		b.BypassCgo()
	}
	address, err := b.Address()
	if err != nil {
		t.Fatal(err)
	}
	e, err := a.Connect(address, 7, true)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{8, MaxCopied, MaxCopied + 1, 1 << 20} {
		sent, got := bytes.Repeat([]byte{byte(i + 1)}, n), make([]byte, n)
		tag := uint64(i + 1)
		if i%2 == 0 {
			b.Recv(1, got, tag, ^uint64(0), []BufferUse{DropLonger, CutLonger, Abandonable}[i%3])
		}
		done, code := a.Send(2, e, sent, tag, i == 2)
		if code != 0 {
			t.Fatal(a.Describe(code))
		}
		if i%2 == 1 {
			for {
				m, found := b.Probe(1, tag, ^uint64(0), true)
				if found {
					if m.Tag != tag || m.Length != uint64(n) {
						t.Fatalf("%+v", m)
					}
					break
				}
				b.Poll(make([]Event, 1), true)
				a.Poll(nil, false)
			}
			b.RecvClaimed(1, got, DropLonger)
		}
		if r := all.until(t, 1, b, a); r.Err != 0 || r.Length != uint64(n) || r.Tag != tag || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes: %+v", n, r)
		}
		if !done {
			if s := all.until(t, 2, a, b); s.Err != 0 {
				t.Fatal(a.Describe(s.Err))
			}
		}
	}
	for i, n := range []int{16, 1 << 20} {
		sent, got := bytes.Repeat([]byte{9}, n), make([]byte, n)
		b.Recv(1, got[:n/2], uint64(i), ^uint64(0), CutLonger)
		if _, code := a.Send(2, e, sent, uint64(i), false); code != 0 {
			t.Fatal(a.Describe(code))
		}
		r := all.until(t, 1, b, a)
		if r.Err != 0 || r.Length != uint64(n) || !bytes.Equal(got[:n/2], sent[:n/2]) || !bytes.Equal(got[n/2:], make([]byte, n/2)) {
			t.Errorf("%d bytes into half of that: %+v", n, r)
		}
	}
	b.Recv(3, make([]byte, 8), 99, ^uint64(0), CutLonger)
	b.Cancel(3)
	if r := all.until(t, 3, b); r.Err != Canceled {
		t.Errorf("%+v", r)
	}
	if done, code := a.Disconnect(4, e); code != 0 {
		t.Error(a.Describe(code))
	} else if !done {
		all.until(t, 4, a, b)
	}
}

// BenchmarkPoll measures an idle poll, which is mostly the call of C.
func BenchmarkPoll(b *testing.B) {
	w := start(b)
	events := make([]Event, 1)
	poll := func(b *testing.B) {
		for b.Loop() {
			w.Poll(events, false)
		}
	}
	b.Run("cgo", poll)
	w.BypassCgo()
	b.Run("direct", poll)
}
