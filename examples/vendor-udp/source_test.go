package udp

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

// pair opens two modules.
func pair(t testing.TB) (a, b *module) {
	job := kittest.NewJob(2, 1)
	var modules [2]*module
	for rank := range modules {
		env := job.Begin(rank, progress.Options{})
		mod, err := component{}.Open(t.Context(), btl.Env{Env: env, Params: kittest.Params(component{}, nil), Upcall: discardProtocol{}})
		if err != nil {
			t.Fatal(err)
		}
		modules[rank] = mod.(*module)
		t.Cleanup(func() { env.Engine.Close(); mod.Close() })
	}
	return modules[0], modules[1]
}

// connect opens a path from a to b.
func connect(t testing.TB, a, b *module) *sendPath {
	ep, err := a.Connect(framework.Peer{Incarnation: b.env.Self, Proc: b.env.Identity.Proc, Blob: b.Blob()})
	if err != nil {
		t.Fatal(err)
	}
	return ep.(*sendPath)
}

// waitFor calls f until it returns true, for at most a minute.
func waitFor(t testing.TB, condition string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", condition)
		}
	}
}

// The kernel reports an ICMP error once. A peek must not call the protocol, so Poll reports it.
func TestPeek_HostError_IsReportedByPoll(t *testing.T) {
	a, b := pair(t)
	e := connect(t, a, b)
	free, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err = syscall.Bind(free, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, _ := syscall.Getsockname(free)
	syscall.Close(free)
	e.dest = toSockaddr(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), addrPort(name).Port()))
	e.Reserve(9, btl.RingStart)
	e.Commit(9)
	s := &source{m: a, peer: b.env.Self}
	waitFor(t, "Peek reads the ICMP error", func() bool { s.Peek(1); return a.hasHostErrors })
	waitFor(t, "the path ends", func() bool { a.Poll(); return e.closed })
	if a.hasHostErrors {
		a.Poll()
	}
	if a.hasHostErrors {
		t.Error("hasHostErrors is set with an empty queue")
	}
}

func TestArm_BufferedDatagram_ReturnsFalse(t *testing.T) {
	a, b := pair(t)
	connect(t, a, b)
	s := &source{m: b, peer: a.env.Self}
	waitFor(t, "Peek reads the greeting", func() bool { s.Peek(1); return b.bufferedBytes > 0 })
	if b.Arm() {
		t.Error("Arm returns true with a buffered datagram")
	}
	if b.Poll() == 0 || len(b.recvPaths) != 1 || b.bufferedBytes > 0 {
		t.Errorf("a Poll leaves %d bytes, and %d peers are known", b.bufferedBytes, len(b.recvPaths))
	}
	if !b.Arm() {
		t.Error("Arm returns false without a buffered datagram")
	}
}
