package ucx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/internal/ucp/testprov"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/mtl/trial"
	"github.com/ferrympi/ferry/mtl/ucx"
	"github.com/ferrympi/ferry/progress"
)

// The tests' own UCX simulates classes for absent hardware, and faults.

// simulate selects classes and faults, and returns their library.
func simulate(t testing.TB, classes string, faults ...string) string {
	t.Helper()
	if err := ucp.Built(); err != nil {
		t.Skip(err)
	}
	testprov.Set(t, classes, faults...)
	return testprov.Library(t)
}

func simulatedSubject(t *testing.T, class, mode, wait string, faults ...string) mtltest.Subject {
	t.Helper()
	lib := simulate(t, "rc,dc,ud,tcp,shm,cuda", faults...)
	s := subject("shm", "", mode, wait)
	s.Params = func(_ int, p any) {
		ucx.Set(p, []string{class}, nil, mode, wait)
		ucx.SetLibrary(p, lib, 10*time.Second)
	}
	s.OtherParams = func(p any) {
		ucx.Set(p, []string{map[bool]string{true: "tcp", false: "rc"}[class == "rc"]}, nil, mode, wait)
		ucx.SetLibrary(p, lib, 10*time.Second)
	}
	return s
}

// It covers operations that complete within the call or later, full queues, and a descriptor that cannot be armed.
func TestKitOverSimulatedClasses(t *testing.T) {
	needs.Time(t)
	for _, c := range []struct{ class, mode, wait, faults string }{
		{"rc", "peer", "fd", ""}, {"dc", "none", "poll", "later"}, {"ud", "peer", "poll", "inplace,noclose"},
		{"tcp", "peer", "fd", "queue=3,later,busy"}, {"cuda", "peer", "poll", "stale,silent"},
	} {
		t.Run(strings.Join([]string{c.class, c.mode, c.wait, c.faults}, " "), func(t *testing.T) {
			mtltest.Cases(simulatedSubject(t, c.class, c.mode, c.wait, c.faults)).Run(t)
		})
	}
}

// discardUpcall is an upcall that ignores everything.
type discardUpcall struct{}

func (discardUpcall) Control([]byte)                            {}
func (discardUpcall) Endpoint(uint32, int) (mtl.Endpoint, bool) { return 0, false }

func incarnation(rank uint32) framework.Incarnation {
	return framework.Incarnation{ID: framework.MakeProcID(0, rank), Nonce: uint64(rank) + 1}
}

// member is a process of a job of two on one node.
type member struct {
	mtl.Module
	t    *testing.T
	rank uint32
}

func open(rank uint32, lib string, deadline time.Duration, classes ...string) (mtl.Module, error) {
	return openIn("peer", rank, lib, deadline, classes...)
}

// openIn is open with an error mode.
func openIn(mode string, rank uint32, lib string, deadline time.Duration, classes ...string) (mtl.Module, error) {
	p := ucx.Defaults()
	ucx.Set(p, classes, nil, mode, "poll")
	ucx.SetLibrary(p, lib, deadline)
	return openWith(p, rank)
}

// openWith opens a module with parameters.
func openWith(p any, rank uint32) (mtl.Module, error) {
	return ucx.Component().Open(context.Background(), mtl.Env{
		Env: progress.Env{
			Identity: bootstrap.Identity{Proc: framework.Proc{Namespace: "job", Rank: rank}, Size: 2, LocalSize: 2, LocalRank: int(rank)},
			Worlds:   framework.NewWorlds("job"), Self: incarnation(rank), Logger: slog.New(slog.DiscardHandler),
		},
		Params: p, Upcall: discardUpcall{},
	})
}

func members(t *testing.T, lib string, classes ...string) (a, b *member) {
	t.Helper()
	return membersIn(t, "peer", lib, classes...)
}

// membersIn is members with an error mode.
func membersIn(t *testing.T, mode, lib string, classes ...string) (a, b *member) {
	t.Helper()
	var both [2]*member
	for i := range both {
		m, err := openIn(mode, uint32(i), lib, 10*time.Second, classes...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		both[i] = &member{m, t, uint32(i)}
	}
	return both[0], both[1]
}

func (m *member) peer() framework.Peer {
	return framework.Peer{Incarnation: incarnation(m.rank), Proc: framework.Proc{Namespace: "job", Rank: m.rank}, Blob: m.Blob()}
}

func (m *member) to(other *member) mtl.Endpoint {
	m.t.Helper()
	to, err := m.Connect(other.peer())
	if err != nil {
		m.t.Fatal(err)
	}
	return to
}

// testOp is an operation.
type testOp struct {
	mtl.Op
	isOver bool
}

func (o *testOp) Done(*mtl.Op) { o.isOver = true }

func newTestOp() *testOp {
	o := new(testOp)
	o.Owner = o
	return o
}

func (m *member) send(other *member, tag int32, buf []byte) *testOp {
	m.t.Helper()
	o := newTestOp()
	done, err := m.Send(&o.Op, m.to(other), mtl.Envelope{CID: 1, Source: int32(m.rank), Tag: tag}, buf, mtl.Standard)
	if err != nil {
		m.t.Fatal(err)
	}
	o.isOver = done
	return o
}

func (m *member) receive(other *member, tag int32, buf []byte) *testOp {
	m.t.Helper()
	o := newTestOp()
	if err := m.Recv(&o.Op, m.to(other), mtl.Envelope{CID: 1, Source: int32(other.rank), Tag: tag}, buf); err != nil {
		m.t.Fatal(err)
	}
	return o
}

// pollUntilDone polls until all operations are complete.
func pollUntilDone(t *testing.T, all []*member, ops ...*testOp) {
	t.Helper()
	for end := time.Now().Add(time.Minute); len(ops) > 0; {
		if ops[0].isOver {
			ops = ops[1:]
			continue
		}
		if time.Now().After(end) {
			t.Fatalf("%d operations don't end", len(ops))
		}
		for _, m := range all {
			m.Poll()
		}
	}
}

func TestOpen_Cluster_UsesBestClass(t *testing.T) {
	lib := simulate(t, "rc,dc,ud,tcp,shm,cuda")
	a, b := members(t, lib)
	if d := a.Describe(); d.Provider != "rc" || d.Device != "mlx5_0:1" || d.Library != "UCX 1.18.1" {
		t.Errorf("%+v", d)
	}
	got := make([]byte, 100_000)
	pollUntilDone(t, []*member{a, b}, b.receive(a, 1, got), a.send(b, 1, bytes.Repeat([]byte{3}, len(got))))
	if got[99_999] != 3 {
		t.Error("the message has other contents")
	}
}

// The faults are lost bits of tags, and registrations that outlive their memory.
func TestOpen_FaultyClass_UsesNext(t *testing.T) {
	for fault, says := range map[string]string{
		"tags=40": "self-test: a short message", "tags=63": "self-test: a control message", "stale,deaf": "pages have changed",
	} {
		lib := simulate(t, "rc,tcp", fault)
		t.Setenv(testprov.Faulty, "rc")
		m, err := open(0, lib, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if d := m.Describe(); d.Provider != "tcp" || !strings.Contains(fmt.Sprint(d.Candidates), says) {
			t.Errorf("%s: %+v", fault, d)
		}
		m.Close()
	}
}

// No other class is tried, because it might use the same devices.
func TestOpen_HangingClass_Fails(t *testing.T) {
	m, err := open(0, simulate(t, "dc", "hang=3"), 200*time.Millisecond)
	if m != nil {
		m.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "does not return") {
		t.Errorf("%v", err)
	}
	for trial.HangingCalls() > 0 {
		time.Sleep(time.Millisecond) // the next test has the library whole
	}
}

// The error contains the excess.
func TestOpen_LongAddress_IsRefused(t *testing.T) {
	if m, err := open(0, simulate(t, "rc", "address=40000"), 10*time.Second); err != nil {
		t.Errorf("40,000 bytes: %v", err)
	} else {
		m.Close()
	}
	_, err := open(0, simulate(t, "rc", "address=60000"), 10*time.Second)
	if err == nil || !strings.Contains(err.Error(), "more than fit there") || !strings.Contains(err.Error(), "device_include") {
		t.Errorf("60,000 bytes: %v", err)
	}
}

// Both sides report it.
func TestReach_OtherMajorVersion_IsNamed(t *testing.T) {
	lib := simulate(t, "rc")
	a, _ := members(t, lib)
	t.Setenv(testprov.Version, "2.0.0")
	m, err := open(1, lib, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := &member{m, t, 1}
	err = a.Reach(b.peer())
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "2.0.0") || !strings.Contains(err.Error(), "1.18.1") {
		t.Errorf("%v", err)
	}
}

// Earlier and later sends fail, and the module closes.
func TestEndpoint_Fails_EndsSends(t *testing.T) {
	for _, fault := range []string{"timeout", "reset"} {
		lib := simulate(t, "rc")
		a, b := members(t, lib)
		before := a.send(b, 1, make([]byte, 100_000))
		testprov.Set(t, "rc", fault+"=0", "silent")
		later := a.send(b, 2, nil)
		pollUntilDone(t, []*member{a, b}, before, later)
		for _, o := range []*testOp{before, later} {
			if !errors.Is(o.Err, framework.ErrTransport) || !strings.Contains(o.Err.Error(), map[string]string{"timeout": "-80", "reset": "-25"}[fault]) {
				t.Errorf("%s: %v", fault, o.Err)
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// UCX crashes if the endpoint is made before it has processed its events.
func TestForget_UnconnectedPeer_ConnectsAfterEvents(t *testing.T) {
	a, b := members(t, simulate(t, "tcp"))
	to := a.to(b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	a.send(b, 1, nil)
	a.Forget(to, errors.New("it has died"))
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestClose_EndpointsNeverClose_Returns(t *testing.T) {
	a, b := members(t, simulate(t, "rc", "noclose"))
	pollUntilDone(t, []*member{a, b}, a.send(b, 1, nil))
	done := make(chan error)
	go func() { done <- a.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits")
	}
}

// Other pages are mapped at the address when it is sent again.
func TestSend_PagesChange_SendsNewContents(t *testing.T) {
	a, b := members(t, simulate(t, "rc", "stale"))
	const n = 1 << 20
	memory, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	for i := range byte(3) {
		copy(memory, bytes.Repeat([]byte{i + 1}, n))
		got := make([]byte, n)
		pollUntilDone(t, []*member{a, b}, b.receive(a, 1, got), a.send(b, 1, memory))
		if got[0] != i+1 || got[n-1] != i+1 {
			t.Errorf("message %d arrives as %d", i+1, got[0])
		}
		if err := unix.Madvise(memory, unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
	}
}
