package ob1_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/ob1/selector"
	"github.com/ferrympi/ferry/pml/pmltest"
)

type copyVM = func(pid int, b []byte, at uint64) (int, error)

// copyStack returns a stack with a forced protocol, and with replaced system calls for copies.
func copyStack(protocol string, read, write copyVM, more ...string) pmltest.Stack {
	set := map[string]string{"pml.ob1.protocol": protocol}
	for i := 0; i < len(more); i += 2 {
		set[more[i]] = more[i+1]
	}
	return pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), shm.WithCopyFuncs(read, write)}, Set: set}
}

// copies skips the test where the system forbids copies between processes.
func copies(t *testing.T) {
	t.Helper()
	b := make([]byte, 1)
	if _, err := cma.Read(unix.Getpid(), make([]byte, 1), cma.Address(b)); err != nil {
		needs.Missing(t, "process_vm_readv does not work here: %v", err)
	}
}

// allocated returns a buffer in memory from AllocMem, which is freed at the end of the test.
func allocated(t *testing.T, m pml.Module, size int) (pml.Buffer, error) {
	a, _ := framework.As[pml.Allocator](m)
	mem, err := a.Allocate(size)
	if err != nil {
		return pml.Buffer{}, err
	}
	t.Cleanup(func() { a.Free(mem) })
	return pml.Buffer{Bytes: mem, Form: pml.InRegistered}, nil
}

func patterned(n int, k byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = k + byte(i*7>>8) + byte(i)
	}
	return b
}

// A change of kernel.yama.ptrace_scope, or a seccomp filter, forbids copies during a message
// or between two, on one side or on both.
func TestCopy_ForbiddenMeanwhile_FallsBackToPipeline(t *testing.T) {
	copies(t)
	for _, protocol := range []string{"split", "put", "get", "auto"} {
		for what := range 3 {
			for after := range int64(14) {
				var reads, writes atomic.Int64
				limited := func(count *atomic.Int64, is bool, f copyVM) copyVM {
					return func(pid int, b []byte, at uint64) (int, error) {
						if count.Add(1) > after && is {
							return 0, unix.EPERM
						}
						return f(pid, b, at)
					}
				}
				w := pmltest.OpenWorld(t, copyStack(protocol, limited(&reads, what != 1, cma.Read), limited(&writes, what != 0, cma.Write)), 2)
				comms := w.Comms(t, cid.PolicyAgree)
				ctx := bounded(t)
				if err := pmltest.Each(comms, func(rank int, c pml.Comm) error {
					for k := range byte(6) {
						want := patterned(700_000+int(k)*4099, k)
						if rank == 0 {
							if err := c.Send(ctx, pml.Buffer{Bytes: want}, 1, 1, pml.PointToPoint, pml.Standard); err != nil {
								return err
							}
							continue
						}
						got := make([]byte, len(want))
						if _, err := c.Recv(ctx, pml.Buffer{Bytes: got}, 0, 1, pml.PointToPoint); err != nil || !bytes.Equal(got, want) {
							return fmt.Errorf("message %d: %v, right: %v", k, err, bytes.Equal(got, want))
						}
					}
					return nil
				}); err != nil {
					t.Fatalf("%s, %d, forbidden after %d: %v", protocol, what, after, err)
				}
			}
		}
	}
}

func TestCopy_ForcedAndForbidden_ReturnsErrTransport(t *testing.T) {
	forbidden := func(int, []byte, uint64) (int, error) { return 0, unix.EPERM }
	w := pmltest.OpenWorld(t, copyStack("auto", forbidden, forbidden, "btl.shm.single_copy", "cma"), 2)
	comms := w.Comms(t, cid.PolicyAgree)
	ctx := bounded(t)
	if err := pmltest.Each(comms, func(rank int, c pml.Comm) error {
		buf := pml.Buffer{Bytes: make([]byte, 1<<20)}
		if rank == 0 {
			return c.Send(ctx, buf, 1, 1, pml.PointToPoint, pml.Standard)
		}
		if _, err := c.Recv(ctx, buf, 0, 1, pml.PointToPoint); !errors.Is(err, framework.ErrTransport) || !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The process is disconnected while the sender writes a chunk. The buffer belongs to the
// receive until the chunk is written, and not longer.
func TestPut_ReceiveFails_WaitsForChunk(t *testing.T) {
	copies(t)
	entered, release := make(chan bool, 1), make(chan bool)
	var first atomic.Bool
	write := func(pid int, b []byte, at uint64) (int, error) {
		if first.CompareAndSwap(false, true) {
			entered <- true
			<-release
		}
		return cma.Write(pid, b, at)
	}
	w := pmltest.OpenWorld(t, copyStack("put", cma.Read, write), 2)
	comms := w.Comms(t, cid.PolicyAgree)
	ctx := bounded(t)
	const size = 1 << 20
	buf := make([]byte, size)
	recv, err := comms[1].Irecv(pml.Buffer{Bytes: buf}, 0, 1, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		sent <- comms[0].Send(ctx, pml.Buffer{Bytes: bytes.Repeat([]byte{1}, size)}, 1, 1, pml.PointToPoint, pml.Standard)
	}()
	<-entered
	for _, c := range pmltest.Inspect(w.Procs[1].Module).Comms {
		for _, p := range c.Sends {
			if want := "put, bytes 65536 to 1048576, the sender is writing"; p.Transfer != want {
				t.Errorf("the transfer is %q, want %q", p.Transfer, want)
			}
		}
	}
	w.Procs[1].Module.PeerChanged(framework.UnreachableEvent(w.Group()[0].Incarnation, framework.ErrPeerDisconnected))
	// The receive is pending, since the chunk is not written yet.
	for range 1000 {
		w.Procs[1].Engine.Lock()
		w.Procs[1].Engine.Progress()
		done := recv.Done()
		w.Procs[1].Engine.Unlock()
		if done {
			close(release)
			t.Fatal("the receive ended during a put")
		}
	}
	close(release)
	if _, err := recv.Wait(ctx, recv.Generation()); err == nil {
		t.Error("the receive has succeeded")
	}
	clear(buf)
	w.Procs[0].Module.PeerChanged(framework.UnreachableEvent(w.Group()[1].Incarnation, framework.ErrPeerDisconnected))
	select {
	case <-sent:
	case <-time.After(time.Minute):
		t.Fatal("the send is still pending")
	}
	if !bytes.Equal(buf, make([]byte, size)) {
		t.Error("memory was changed after the end of the receive")
	}
}

// With get, a message is complete before the next RTS is handled, so that the receiver sees
// none in flight. The sender marks the messages of a window, and those behind a window. The
// first one is smaller, and counts in its own size class.
func TestWindow_AnyProtocol_IsRecognized(t *testing.T) {
	copies(t)
	for _, protocol := range []string{"pipeline", "get", "put"} {
		w := pmltest.OpenWorld(t, copyStack(protocol, cma.Read, cma.Write), 2)
		comms := w.Comms(t, cid.PolicyAgree)
		ctx := bounded(t)
		const windows, each = 4, 8
		// Otherwise a preempted sender would make two windows of one.
		begun := make(chan struct{}, windows)
		if err := pmltest.Each(comms, func(rank int, c pml.Comm) error {
			for range windows {
				var all []*pml.Request
				if rank == 1 {
					<-begun
				}
				for k := range each {
					size := 100_000
					if k == 0 {
						size = 40_000
					}
					start := c.Irecv
					if rank == 0 {
						start = func(b pml.Buffer, peer, tag int, plane pml.Plane) (*pml.Request, error) {
							return c.Isend(b, 1, tag, plane, pml.Standard)
						}
					}
					r, err := start(pml.Buffer{Bytes: make([]byte, size)}, 0, 1, pml.PointToPoint)
					if err != nil {
						return err
					}
					all = append(all, r)
				}
				if rank == 0 {
					begun <- struct{}{}
				}
				for _, r := range all {
					if _, err := r.Wait(ctx, r.Generation()); err != nil {
						return err
					}
				}
				// An acknowledgment ends the window.
				peer := 1 - rank
				if rank == 0 {
					if _, err := c.Recv(ctx, pml.Buffer{}, peer, 2, pml.PointToPoint); err != nil {
						return err
					}
				} else if err := c.Send(ctx, pml.Buffer{}, peer, 2, pml.PointToPoint, pml.Standard); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		seen, small := map[bool]uint64{}, uint64(0)
		for _, l := range w.Procs[1].Module.Route(w.Group()[0].Incarnation).Estimates {
			for _, way := range l.Protocols {
				seen[l.Window] += way.Messages
				if l.UpTo <= 1<<16 {
					small += way.Messages
				}
			}
		}
		if small == 0 || small > windows {
			t.Errorf("%s: %d messages of the smaller class, want 1 to %d", protocol, small, windows)
		}
		// The RTS of the very first message does not mark a window.
		if seen[false] > 1 || seen[true] < windows*each-2 {
			t.Errorf("%s: %d messages alone and %d in a window, of %d windows of %d", protocol, seen[false], seen[true], windows, each)
		}
	}
}

// The sender copies neither of two crossing messages, since its help would delay its own
// receive. The pipeline is excluded as well where get reads mapped memory. Apart from the
// first ones, both messages use the same protocol.
func TestCrossing_ExcludesPutAndSplit(t *testing.T) {
	for name, memory := range map[string]btl.Memory{"ordinary": btl.Ordinary, "AllocMem": btl.Allocated} {
		t.Run(name, func(t *testing.T) { testCrossing(t, memory) })
	}
}

func testCrossing(t *testing.T, memory btl.Memory) {
	copies(t)
	w := pmltest.OpenWorld(t, copyStack("auto", cma.Read, cma.Write), 2)
	comms := w.Comms(t, cid.PolicyAgree)
	ctx := bounded(t)
	const times, size = 200, 100_000
	var meet [2]chan struct{}
	for i := range meet {
		meet[i] = make(chan struct{}, 1)
	}
	together := func(rank int) {
		meet[1-rank] <- struct{}{}
		<-meet[rank]
	}
	if err := pmltest.Each(comms, func(rank int, c pml.Comm) error {
		in, out := make([]byte, size), pml.Buffer{Bytes: make([]byte, size)}
		if memory == btl.Allocated {
			var err error
			if out, err = allocated(t, w.Procs[rank].Module, size); err != nil {
				return err
			}
		}
		for range times {
			recv, err := c.Irecv(pml.Buffer{Bytes: in}, 1-rank, 1, pml.PointToPoint)
			if err != nil {
				return err
			}
			together(rank)
			send, err := c.Isend(out, 1-rank, 1, pml.PointToPoint, pml.Standard)
			if err != nil {
				return err
			}
			together(rank)
			for _, r := range []*pml.Request{recv, send} {
				if _, err := r.Wait(ctx, r.Generation()); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	passed, by := uint64(0), [2]map[string]uint64{{}, {}}
	for rank, p := range w.Procs {
		for _, l := range p.Module.Route(w.Group()[1-rank].Incarnation).Estimates {
			for _, way := range l.Protocols {
				if l.BothWays {
					passed += way.Messages
					by[rank][way.Protocol] += way.Messages
				}
				helps := way.Protocol == "put" || way.Protocol == "split" || l.Allocated && way.Protocol != "get"
				if l.Allocated != (memory == btl.Allocated) || l.BothWays && way.Messages > 0 && helps {
					t.Errorf("rank %d: %v", rank, l)
				}
			}
		}
	}
	if passed == 0 {
		t.Error("no message was recognized as crossing")
	}
	for p := range selector.Protocols {
		n, other := by[0][p.String()], by[1][p.String()]
		if max(n, other)-min(n, other) > passed/20 {
			t.Errorf("protocols of messages: %v", by)
			break
		}
	}
}

// The limit applies to the payload without the header. A message in memory from AllocMem uses
// get nevertheless, which copies once.
func TestSend_EagerLimit_CompletesAtOnce(t *testing.T) {
	copies(t)
	for _, c := range []struct {
		length    int
		allocated bool
		offered   bool
		set       []string
	}{
		{32 << 10, false, false, nil}, {48 << 10, false, true, nil}, {16 << 10, true, false, nil}, {32 << 10, true, true, nil},
		{32 << 10, true, false, []string{"btl.shm.single_copy", "off"}},
		{32 << 10, true, false, []string{"btl.shm.memory_min", "64KiB"}},
	} {
		w := pmltest.OpenWorld(t, copyStack("auto", cma.Read, cma.Write, c.set...), 2)
		ctx := bounded(t)
		sent := make(chan struct{})
		if err := pmltest.Each(w.Comms(t, cid.PolicyAgree), func(rank int, p pml.Comm) error {
			if rank == 1 {
				if _, err := p.Recv(ctx, pml.Buffer{}, 0, 0, pml.PointToPoint); err != nil {
					return err
				}
				<-sent
				_, err := p.Recv(ctx, pml.Buffer{Bytes: make([]byte, c.length)}, 0, 1, pml.PointToPoint)
				return err
			}
			defer close(sent)
			// Opens the path.
			if err := p.Send(ctx, pml.Buffer{}, 1, 0, pml.PointToPoint, pml.Synchronous); err != nil {
				return err
			}
			out := pml.Buffer{Bytes: make([]byte, c.length)}
			if c.allocated {
				var err error
				if out, err = allocated(t, w.Procs[rank].Module, c.length); err != nil {
					return err
				}
			}
			r, err := p.Isend(out, 1, 1, pml.PointToPoint, pml.Standard)
			if err != nil {
				return err
			}
			if _, done, err := r.Peek(r.Generation()); err != nil || done == c.offered {
				t.Errorf("%d bytes, out of AllocMem memory: %t, %v: complete without a receive: %t, %v", c.length, c.allocated, c.set, done, err)
			}
			sent <- struct{}{}
			_, err = r.Wait(ctx, r.Generation())
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCrossingTime_LateReceive_IsIgnored(t *testing.T) {
	const from, whole = 100 * time.Microsecond, 108 * time.Microsecond
	for end, want := range map[time.Duration]time.Duration{
		whole + 4*time.Microsecond: 12 * time.Microsecond,
		whole + time.Millisecond:   8 * time.Microsecond,
	} {
		if took := ob1.CrossingTime(from, whole, end); took != want {
			t.Errorf("first %v, second %v: got %v, want %v", whole-from, end-from, took, want)
		}
	}
}

// The copy finds that the process does not exist, before the bootstrap reports the failure.
func TestCopy_SenderFails_ReturnsErrProcFailed(t *testing.T) {
	gone := func(int, []byte, uint64) (int, error) { return 0, unix.ESRCH }
	w := pmltest.OpenWorld(t, copyStack("auto", gone, gone, "btl.shm.single_copy", "cma"), 2)
	comms := w.Comms(t, cid.PolicyAgree)
	ctx := bounded(t)
	// Opens the paths.
	if err := pmltest.Each(comms, func(rank int, c pml.Comm) error {
		if rank == 0 {
			return c.Send(ctx, pml.Buffer{Bytes: []byte{1}}, 1, 1, pml.PointToPoint, pml.Synchronous)
		}
		_, err := c.Recv(ctx, pml.Buffer{Bytes: make([]byte, 1)}, 0, 1, pml.PointToPoint)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	recv, err := comms[1].Irecv(pml.Buffer{Bytes: make([]byte, 1<<20)}, 0, 1, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := comms[0].Isend(pml.Buffer{Bytes: make([]byte, 1<<20)}, 1, 1, pml.PointToPoint, pml.Standard); err != nil {
		t.Fatal(err)
	}
	// The RTS arrives.
	for range 100 {
		w.Procs[1].Engine.Lock()
		w.Procs[1].Engine.Progress()
		w.Procs[1].Engine.Unlock()
	}
	w.Procs[1].Module.PeerChanged(framework.FailedEvent(w.Group()[0].Incarnation, "killed by a test"))
	if _, err := recv.Wait(ctx, recv.Generation()); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("got %v", err)
	}
}
