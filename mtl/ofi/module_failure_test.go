package ofi_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
	"github.com/ferrympi/ferry/progress"
)

// onceOp counts the completions of an operation.
type onceOp struct {
	mtl.Op
	completions int
}

func newOnceOp() *onceOp {
	o := new(onceOp)
	o.Owner = o
	return o
}

func (o *onceOp) Done(*mtl.Op) { o.completions++ }

// faultRig is a module over a library with a fault, which start enables.
type faultRig struct {
	t    *testing.T
	m    mtl.Module
	self mtl.Endpoint
}

func openFaulty(t *testing.T, fault, wait string) *faultRig {
	t.Helper()
	lib := faultyLibrary(t, fault)
	m, err := open(t, func(p any) {
		ofi.Set(p, []string{"tcp;ofi_rxm"}, "auto", wait)
		ofi.SetLibrary(p, lib, 10*time.Second)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	self, err := m.Connect(framework.Peer{Incarnation: framework.Incarnation{Nonce: 7}, Proc: framework.Proc{Namespace: "job"}, Blob: m.Blob()})
	if err != nil {
		t.Fatal(err)
	}
	return &faultRig{t, m, self}
}

// start enables the fault, for n occurrences if it counts.
func (r *faultRig) start(n string) { r.t.Setenv("FABRIC_FAULT_NOW", n) }

// until polls until o is complete.
func (r *faultRig) until(os ...*onceOp) {
	r.t.Helper()
	end := time.Now().Add(10 * time.Second)
	for _, o := range os {
		for o.completions == 0 {
			if r.m.Poll(); time.Now().After(end) {
				r.t.Fatal("an operation does not end")
			}
		}
	}
}

// exchange sends a message to this process.
func (r *faultRig) exchange() {
	r.t.Helper()
	e := mtl.Envelope{CID: 1, Source: 0, Tag: 1}
	recv, send := newOnceOp(), newOnceOp()
	if err := r.m.Recv(&recv.Op, r.self, e, make([]byte, 8)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.m.Send(&send.Op, r.self, e, make([]byte, 8), mtl.Synchronous); err != nil {
		r.t.Fatal(err)
	}
	r.until(recv, send)
	if err := errors.Join(recv.Err, send.Err); err != nil || recv.Bytes != 8 {
		r.t.Fatalf("%d bytes, %v", recv.Bytes, err)
	}
}

// The process continues (facts of Open MPI, fault 8). The descriptor stays open until Close, because the engine
// watches it.
func TestModule_CompletionQueueFails_EndsEveryOperation(t *testing.T) {
	r := openFaulty(t, "fail", "fd")
	e := mtl.Envelope{CID: 1, Source: 0, Tag: 1}
	recv, send, sync := newOnceOp(), newOnceOp(), newOnceOp()
	_, err2 := r.m.Send(&send.Op, r.self, e, make([]byte, 1<<20), mtl.Standard)
	_, err3 := r.m.Send(&sync.Op, r.self, e, nil, mtl.Synchronous)
	if err := errors.Join(r.m.Recv(&recv.Op, r.self, mtl.Envelope{CID: 2}, make([]byte, 8)), err2, err3); err != nil {
		t.Fatal(err)
	}
	r.start("1")
	r.until(recv, send, sync)
	for i, o := range []*onceOp{recv, send, sync} {
		if o.completions != 1 || !errors.Is(o.Err, framework.ErrTransport) || !strings.Contains(o.Err.Error(), "completion queue") {
			t.Errorf("operation %d ended %d times: %v", i, o.completions, o.Err)
		}
	}
	if _, err := r.m.Send(&send.Op, r.self, e, nil, mtl.Standard); !errors.Is(err, framework.ErrTransport) {
		t.Errorf("a later send: %v", err)
	}
	if err := r.m.Recv(&recv.Op, r.self, e, nil); !errors.Is(err, framework.ErrTransport) {
		t.Errorf("a later receive: %v", err)
	}
	fds := []unix.PollFd{{Fd: int32(r.m.(progress.Descriptor).FD()), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); n != 0 || err != nil {
		t.Errorf("its descriptor: %+v, %v", fds, err)
	}
	r.m.Close()
	if _, err := unix.Poll(fds, 0); err != nil || fds[0].Revents != unix.POLLNVAL {
		t.Errorf("its descriptor after Close: %+v, %v", fds, err)
	}
}

// A provider reports such errors for a failed connection. Many in a row fail the module.
func TestStrayError_Few_LeavesModuleUsable(t *testing.T) {
	r := openFaulty(t, "stray", "poll")
	r.start("10")
	r.exchange()
	recv := newOnceOp()
	if err := r.m.Recv(&recv.Op, r.self, mtl.Envelope{CID: 1}, nil); err != nil {
		t.Fatal(err)
	}
	r.start("1000000000")
	r.until(recv)
	if !errors.Is(recv.Err, framework.ErrTransport) || !strings.Contains(recv.Err.Error(), "errors that belong to no operation") {
		t.Errorf("%v", recv.Err)
	}
}

// It also covers probes with and without claim. A requested cancel is no error.
func TestReceive_UnrequestedCancel_IsAnError(t *testing.T) {
	r := openFaulty(t, "cancel", "poll")
	recv, probe, claim, own := newOnceOp(), newOnceOp(), newOnceOp(), newOnceOp()
	e := mtl.Envelope{CID: 1, Source: 0, Tag: 1}
	if err := r.m.Recv(&recv.Op, r.self, e, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	r.start("1")
	r.until(recv)
	for claims, o := range map[bool]*onceOp{false: probe, true: claim} {
		if err := r.m.Probe(&o.Op, r.self, e, claims); err != nil {
			t.Fatal(err)
		}
		r.until(o)
	}
	for i, o := range []*onceOp{recv, probe, claim} {
		if o.Canceled || !errors.Is(o.Err, framework.ErrTransport) || !strings.Contains(o.Err.Error(), "gave up on it") || !strings.Contains(o.Err.Error(), "with rank 0") {
			t.Errorf("operation %d: canceled %v, %v", i, o.Canceled, o.Err)
		}
	}
	os.Unsetenv("FABRIC_FAULT_NOW")
	if err := r.m.Recv(&own.Op, r.self, e, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	r.m.Cancel(&own.Op)
	r.until(own)
	if !own.Canceled || own.Err != nil {
		t.Errorf("canceled %v, %v", own.Canceled, own.Err)
	}
	r.exchange()
}

// Operations with the failed peer don't fail the module.
func TestPeer_Fails_OthersContinue(t *testing.T) {
	needLibfabric(t)
	for _, provider := range []string{"tcp;ofi_rxm", "sockets"} {
		t.Run(provider, func(t *testing.T) {
			t.Setenv("FERRY_OFI_PROVIDER", provider)
			t.Setenv("FERRY_OFI_WAIT", "poll")
			// The peer fails in the middle of a message to this process, with and without a receive, and of one from it.
			for _, posted := range []bool{true, false} {
				e, cmd, stop := startBenchChild(t, fmt.Sprintf("false 0 %d", 16<<20))
				defer stop()
				self, err := e.m.Connect(framework.Peer{Incarnation: framework.Incarnation{Nonce: 1}, Proc: framework.Proc{Namespace: "bench"}, Blob: e.m.Blob()})
				if err != nil {
					t.Fatal(err)
				}
				r := &faultRig{t, e.m, self}
				recv, send := newOnceOp(), newOnceOp()
				if posted {
					if err := e.m.Recv(&recv.Op, e.peer, mtl.Envelope{CID: 1, Source: 1, Tag: 1}, make([]byte, 16<<20)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := e.m.Send(&send.Op, e.peer, mtl.Envelope{CID: 1, Source: 0, Tag: 2}, make([]byte, 4<<20), mtl.Standard); err != nil {
					t.Fatal(err)
				}
				for i := range 100 {
					if i == 10 {
						cmd.Process.Kill()
					}
					r.exchange()
				}
				for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
					e.m.Poll()
				}
				if recv.Canceled {
					t.Error("the receive was not canceled")
				}
				r.exchange()
			}
		})
	}
}
