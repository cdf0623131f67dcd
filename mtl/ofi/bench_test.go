package ofi_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
	"github.com/ferrympi/ferry/progress"
)

// The benchmarks measure the module without an engine or a protocol, between this process and a child, over the
// provider in FERRY_OFI_PROVIDER or tcp;ofi_rxm.
const childVariable = "FERRY_OFI_BENCH_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childVariable); what != "" {
		if err := child(what); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// benchPeer is one process of a benchmark.
type benchPeer struct {
	m    mtl.Module
	peer mtl.Endpoint
	rank int32
}

// openBenchPeer opens a module and connects it with that of the other process. Each writes its blob to out and reads the other's from in.
func openBenchPeer(rank int, in, out *os.File) (*benchPeer, error) {
	provider := os.Getenv("FERRY_OFI_PROVIDER")
	if provider == "" {
		provider = "tcp;ofi_rxm"
	}
	c := ofi.Component()
	p := c.Params()
	framework.FillDefaults(p)
	ofi.Set(p, []string{provider}, "auto", os.Getenv("FERRY_OFI_WAIT"))
	proc := framework.Proc{Namespace: "bench", Rank: uint32(rank)}
	m, err := c.Open(context.Background(), mtl.Env{
		Env:    progress.Env{Identity: bootstrap.Identity{Proc: proc, Size: 2, LocalSize: 2, LocalRank: rank}, Worlds: framework.NewWorlds("bench"), Self: framework.Incarnation{Nonce: uint64(rank) + 1}, Logger: slog.New(slog.DiscardHandler)},
		Params: p, Upcall: discardUpcall{},
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%x\n", m.Blob())
	var text string
	if _, err := fmt.Fscanln(in, &text); err != nil {
		return nil, err
	}
	blob, err := hex.DecodeString(text)
	if err != nil {
		return nil, err
	}
	other := uint32(1 - rank)
	peer, err := m.Connect(framework.Peer{Incarnation: framework.Incarnation{ID: framework.MakeProcID(0, other), Nonce: uint64(other) + 1}, Proc: framework.Proc{Namespace: "bench", Rank: other}, Blob: blob})
	return &benchPeer{m, peer, int32(rank)}, err
}

// completionFlag is an operation that records its completion.
type completionFlag struct {
	mtl.Op
	over bool
}

func newCompletionFlag() *completionFlag {
	f := new(completionFlag)
	f.Owner = f
	return f
}

func (f *completionFlag) Done(*mtl.Op) { f.over = true }

func (e *benchPeer) send(f *completionFlag, buf []byte) {
	done, err := e.m.Send(&f.Op, e.peer, mtl.Envelope{CID: 1, Source: e.rank, Tag: 1}, buf, mtl.Standard)
	if err != nil {
		panic(err)
	}
	f.over = done
}

func (e *benchPeer) recv(f *completionFlag, buf []byte) {
	f.over = false
	if err := e.m.Recv(&f.Op, e.peer, mtl.Envelope{CID: 1, Source: 1 - e.rank, Tag: 1}, buf); err != nil {
		panic(err)
	}
}

func (e *benchPeer) wait(fs ...*completionFlag) {
	for _, f := range fs {
		for !f.over {
			e.m.Poll()
		}
		if f.Err != nil {
			panic(f.Err)
		}
	}
}

// windowSize is the same as in the OSU bandwidth test.
const windowSize = 64

// bounce returns a message of equal length for each message.
func (e *benchPeer) bounce(first bool, n, size int) {
	s, r := newCompletionFlag(), newCompletionFlag()
	buf := make([]byte, size)
	for range n {
		e.recv(r, buf)
		if first {
			e.send(s, buf)
			e.wait(s)
		}
		e.wait(r)
		if !first {
			e.send(s, buf)
			e.wait(s)
		}
	}
}

// stream sends windows of messages. An empty message acknowledges each window.
func (e *benchPeer) stream(first bool, windows, size int) {
	ops := make([]*completionFlag, windowSize)
	for i := range ops {
		ops[i] = newCompletionFlag()
	}
	ack := newCompletionFlag()
	buf := make([]byte, size)
	for range windows {
		if first {
			e.recv(ack, nil)
			for _, f := range ops {
				e.send(f, buf)
			}
			e.wait(ops...)
			e.wait(ack)
			continue
		}
		for _, f := range ops {
			e.recv(f, buf)
		}
		e.wait(ops...)
		e.send(ack, nil)
		e.wait(ack)
	}
}

func child(what string) error {
	if provider, ok := strings.CutPrefix(what, "survey "); ok {
		return surveyChild(provider)
	}
	if name, ok := strings.CutPrefix(what, "probe "); ok {
		return probeChild(name)
	}
	if what, ok := strings.CutPrefix(what, "warned "); ok {
		return warnedChild(what)
	}
	if lib, ok := strings.CutPrefix(what, "handlers "); ok {
		return handlersChild(lib)
	}
	if what, ok := strings.CutPrefix(what, "profile "); ok {
		return profileChild(what)
	}
	var bounce bool
	var n, size int
	if _, err := fmt.Sscan(what, &bounce, &n, &size); err != nil {
		return err
	}
	e, err := openBenchPeer(1, os.Stdin, os.Stdout)
	if err != nil {
		return err
	}
	if n == 0 { // Until it is killed.
		for {
			f := newCompletionFlag()
			e.send(f, make([]byte, size))
			e.wait(f)
		}
	}
	if bounce {
		e.bounce(false, n, size)
	} else {
		e.stream(false, n, size)
	}
	for !e.m.Idle() {
		e.m.Poll()
	}
	return e.m.Close()
}

// startBenchChild starts a child and connects with it. stop waits for its end.
func startBenchChild(t testing.TB, what string) (e *benchPeer, cmd *exec.Cmd, stop func()) {
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+what)
	cmd.Stderr = os.Stderr
	toChild, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, fromChild, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout = toChild, fromChild
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toChild.Close()
	fromChild.Close()
	e, err = openBenchPeer(0, in, out)
	if err != nil {
		cmd.Process.Kill()
		t.Fatal(err)
	}
	return e, cmd, func() {
		e.m.Close()
		if err := cmd.Wait(); err != nil {
			t.Log(err)
		}
		in.Close()
		out.Close()
	}
}

// pair runs f beside a child that performs n rounds, after warm-up rounds.
func pair(b *testing.B, bounce bool, n, size int, f func(e *benchPeer, n int)) {
	const warm = 100
	e, _, stop := startBenchChild(b, fmt.Sprintf("%v %d %d", bounce, n+warm, size))
	defer stop()
	f(e, warm)
	b.ResetTimer()
	f(e, n)
	b.StopTimer()
}

func BenchmarkLatency8(b *testing.B) {
	needBench(b)
	pair(b, true, b.N, 8, func(e *benchPeer, n int) { e.bounce(true, n, 8) })
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/message")
}

func BenchmarkRate8(b *testing.B) {
	needBench(b)
	pair(b, false, b.N, 8, func(e *benchPeer, n int) { e.stream(true, n, 8) })
	b.ReportMetric(windowSize*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

func BenchmarkBandwidth1MiB(b *testing.B) {
	needBench(b)
	b.SetBytes(windowSize << 20)
	pair(b, false, b.N, 1<<20, func(e *benchPeer, n int) { e.stream(true, n, 1<<20) })
}

func needBench(b *testing.B) {
	b.Helper()
	needLibfabric(b)
	if os.Getenv("FERRY_OFI_WAIT") == "" {
		b.Setenv("FERRY_OFI_WAIT", "auto")
	}
}
