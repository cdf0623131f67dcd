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

// pair returns two modules.
func pair(t testing.TB) (a, b *module) {
	job := kittest.NewJob(2, 1)
	var nodes [2]*module
	for rank := range nodes {
		env := job.Begin(rank, progress.Options{})
		opened, err := component{}.Open(t.Context(), btl.Env{Env: env, Params: kittest.Params(component{}, nil), Upcall: deaf{}})
		if err != nil {
			t.Fatal(err)
		}
		nodes[rank] = opened.(*module)
		t.Cleanup(func() { env.Engine.Close(); opened.Close() })
	}
	return nodes[0], nodes[1]
}

// connect returns a path from a to b.
func connect(t testing.TB, a, b *module) *outbound {
	ep, err := a.Connect(framework.Peer{Life: b.env.Self, Proc: b.env.Identity.Proc, Blob: b.Blob()})
	if err != nil {
		t.Fatal(err)
	}
	return ep.(*outbound)
}

// soon calls f until it says that it is done.
func soon(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestAnswersOfHostsWaitForPoll: the system reports one of them to whoever reads next, once. If that
// is a peek, which must not tell the protocol, a Poll does.
func TestAnswersOfHostsWaitForPoll(t *testing.T) {
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
	e.to = sockaddr(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), addrPort(name).Port()))
	e.Reserve(9)
	e.Commit(9)
	s := &source{m: a, peer: b.env.Self}
	soon(t, "a peek meets the answer", func() bool { s.Peek(1); return a.answers })
	soon(t, "the path ends", func() bool { a.Poll(); return e.closed })
	if a.answers {
		a.Poll()
	}
	if a.answers {
		t.Error("there are more answers than datagrams")
	}
}

// TestNobodySleepsBesideADatagramThatIsKept: the socket has it no more, and would wake nobody.
func TestNobodySleepsBesideADatagramThatIsKept(t *testing.T) {
	a, b := pair(t)
	connect(t, a, b)
	s := &source{m: b, peer: a.env.Self}
	soon(t, "a peek meets the greeting", func() bool { s.Peek(1); return b.kept > 0 })
	if b.Arm() {
		t.Error("it is armed")
	}
	if b.Poll() == 0 || len(b.in) != 1 || b.kept > 0 {
		t.Errorf("a Poll leaves %d bytes, and %d peers are known", b.kept, len(b.in))
	}
	if !b.Arm() {
		t.Error("it is not armed")
	}
}
