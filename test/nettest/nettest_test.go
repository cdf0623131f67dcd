package nettest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
)

// envPart selects the part of a test that this binary runs as a child process.
const envPart = "NETTEST_PART"

var parts = map[string]func(){"hosts": createHosts, "levels": levels, "limited": createHostsUnprivileged}

func TestMain(m *testing.M) {
	Enter()
	if os.Getenv(envFerry) == "1" {
		ferrytest.Ferry()
	}
	if part := parts[os.Getenv(envPart)]; part != nil {
		part()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// testTimeout is the timeout of a test.
const testTimeout = 60 * time.Second

// connect creates a connection between the hosts over a link. It ends with the test.
func connect(t *testing.T, h *Hosts, link int) (c [2]*net.TCPConn) {
	t.Helper()
	l, err := h.Listen(1, link)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c[0], err = h.Dial(0, l.Addr()); err != nil {
		t.Fatal(err)
	}
	if c[1], err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	for _, one := range c {
		t.Cleanup(func() { _ = one.Close() }) // The test may have closed it.
		if err := one.SetDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// pingPong sends some bytes back and forth.
func pingPong(c [2]*net.TCPConn) error {
	for i := range 10 {
		for me := range c {
			want, got := fmt.Sprintf("%4d", i), make([]byte, 4)
			if _, err := c[me].Write([]byte(want)); err != nil {
				return err
			}
			if _, err := io.ReadFull(c[1-me], got); err != nil {
				return err
			}
			if string(got) != want {
				return fmt.Errorf("received %q, want %q", got, want)
			}
		}
	}
	return nil
}

func TestLink_EachKind_CarriesMessages(t *testing.T) {
	h := New(t, Link{}, Link{BitsPerSecond: 1e9}, Link{Faults: &PacketFaults{Seed: 1}}, Link{UsesIPv6: true}, Link{UsesIPv6: true, Faults: &PacketFaults{Seed: 1}})
	for link := range h.links {
		c := connect(t, h, link)
		if err := pingPong(c); err != nil {
			t.Errorf("link %d: %v", link, err)
		}
		if want := h.Addr(0, link); c[1].RemoteAddr().(*net.TCPAddr).AddrPort().Addr() != want {
			t.Errorf("link %d: connection from %v, want %v", link, c[1].RemoteAddr(), want)
		}
	}
}

// Concurrent tests have hosts with the same addresses.
func TestHosts_TwoTests_AreIsolated(t *testing.T) {
	h, other := New(t), New(t)
	l, err := h.Listen(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err := other.Dial(0, l.Addr()); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%v, error %v", c, err)
	}
}

// measureTransfer sends bytes from host 0 to host 1 and returns the elapsed time.
func measureTransfer(t *testing.T, c [2]*net.TCPConn, bytes int) time.Duration {
	t.Helper()
	start := time.Now()
	sent := make(chan error, 1)
	go func() {
		_, err := c[0].Write(make([]byte, bytes))
		sent <- err
	}()
	if _, err := io.CopyN(io.Discard, c[1], int64(bytes)); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// The first burst is not limited. The rest cannot be faster than the rate.
func TestLink_Rate_LimitsThroughput(t *testing.T) {
	const bytes, burst = 4 << 20, 256 << 10
	h := New(t, Link{BitsPerSecond: 50e6}, Link{BitsPerSecond: 200e6})
	for link, rate := range []float64{50e6, 200e6} {
		d := measureTransfer(t, connect(t, h, link), bytes)
		most := rate / 8 * d.Seconds()
		t.Logf("link %d: %.1f Mbit/s of %.0f", link, bytes*8/d.Seconds()/1e6, rate/1e6)
		if bytes-burst > most {
			t.Errorf("link %d: %d bytes in %v, want at most %.0f and a burst of %d", link, bytes, d, most, burst)
		}
	}
	h.SetRate(0, 0)
	free := measureTransfer(t, connect(t, h, 0), 16*bytes)
	t.Logf("without a rate: %.1f Mbit/s", 16*bytes*8/free.Seconds()/1e6)
	if at := 16 * bytes * 8 / free.Seconds(); at < 50e6 {
		t.Errorf("%.0f bit/s without a rate", at)
	}
}

// expectSilence fails the test if a connection delivers data or an error within half a second.
func expectSilence(t *testing.T, c *net.TCPConn, what string) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: %d bytes, error %v", what, n, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
}

// A peer that loses power sends no FIN, no RST and no unreachable host.
func TestCut_Connections_GetNoEvent(t *testing.T) {
	for name, link := range map[string]Link{"plain": {}, "rate": {BitsPerSecond: 1e9}, "relay": {Faults: &PacketFaults{}}, "ipv6": {UsesIPv6: true}} {
		t.Run(name, func(t *testing.T) {
			h := New(t, link)
			open, closed, reset := connect(t, h, 0), connect(t, h, 0), connect(t, h, 0)
			h.Cut(0)
			if _, err := open[0].Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			expectSilence(t, open[1], "bytes over a cut link")
			if err := errors.Join(closed[0].Close(), reset[0].SetLinger(0), reset[0].Close()); err != nil {
				t.Fatal(err)
			}
			expectSilence(t, closed[1], "a connection that the other end has closed")
			expectSilence(t, reset[1], "a connection that the other end has reset")
			if _, err := reset[1].Write([]byte("x")); err != nil {
				t.Error(err)
			}
			h.Join(0)
			// The kernels retransmit lost packets.
			if n, err := open[1].Read(make([]byte, 1)); n != 1 || err != nil {
				t.Errorf("after Join: %d bytes, error %v", n, err)
			}
			if n, err := closed[1].Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("close after Join: %d bytes, error %v", n, err)
			}
			if _, err := reset[1].Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("reset after Join: error %v", err)
			}
			if err := pingPong(connect(t, h, 0)); err != nil {
				t.Errorf("a new connection: %v", err)
			}
		})
	}
}

// A cut link does not affect the others.
func TestCut_OtherLink_Works(t *testing.T) {
	h := New(t, Link{}, Link{})
	c := connect(t, h, 1)
	h.Cut(0)
	if err := pingPong(c); err != nil {
		t.Error(err)
	}
	h.Down(0, 0)
	if err := pingPong(c); err != nil {
		t.Error(err)
	}
}

func TestUp_AfterDown_ConnectionsWork(t *testing.T) {
	for name, link := range map[string]Link{"veth": {}, "relay": {Faults: &PacketFaults{}}, "ipv6": {UsesIPv6: true}, "ipv6-relay": {UsesIPv6: true, Faults: &PacketFaults{}}} {
		t.Run(name, func(t *testing.T) {
			h := New(t, link)
			c := connect(t, h, 0)
			for host := range 2 {
				h.Down(host, 0)
				if err := h.On(host, func() error { return awaitCarrier("eth0", false) }); err != nil {
					t.Errorf("host %d down: %v", host, err)
				}
				if link.Faults == nil {
					if err := h.On(1-host, func() error { return awaitCarrier("eth0", false) }); err != nil {
						t.Errorf("the other end of host %d: %v", host, err)
					}
				}
				h.Up(0)
				if err := pingPong(c); err != nil {
					t.Errorf("the connection after host %d was down: %v", host, err)
				}
				if err := pingPong(connect(t, h, 0)); err != nil {
					t.Errorf("a new connection after host %d was down: %v", host, err)
				}
			}
		})
	}
}

// inProcess is the part of testing.TB that New needs, for a process that is not a test.
type inProcess struct {
	testing.TB
	cleanups []func()
}

func (*inProcess) Helper()            {}
func (p *inProcess) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }
func (*inProcess) Skipf(format string, args ...any) {
	fmt.Printf("skipped: "+format+"\n", args...)
	os.Exit(0)
}
func (*inProcess) Fatalf(format string, args ...any) {
	fmt.Printf("failed: "+format+"\n", args...)
	os.Exit(1)
}

// partCommand returns the command that runs this binary as a part.
func partCommand(name string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), envPart+"="+name), env...)
	return cmd
}

// createHosts creates hosts.
func createHosts() { New(&inProcess{}) }

// createHostsUnprivileged creates hosts in a child process without the necessary capability.
func createHostsUnprivileged() {
	if os.Getenv("NETTEST_DROPPED") == "1" {
		New(&inProcess{})
		fmt.Println("hosts were created")
		return
	}
	err := onThread(func() error {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil {
			return err
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "NETTEST_DROPPED=1")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd.Run()
	})
	if err != nil {
		os.Exit(1)
	}
}

// The skip must have a reason, and REQUIRE_ALL=1 must make it a failure.
func TestNew_WithoutPrivileges_SkipNamesReason(t *testing.T) {
	New(t) // Skips the test if the machine does not support namespaces.
	const why = "create network namespace: operation not permitted: need root or CAP_SYS_ADMIN\n"
	for _, c := range []struct{ part, env, want string }{
		{"limited", "REQUIRE_ALL=", "skipped: cannot simulate two hosts: " + why},
		{"limited", "REQUIRE_ALL=1", "failed: REQUIRE_ALL=1: cannot simulate two hosts: " + why},
		{"hosts", "PATH=/does/not/exist", "run scripts/setup or install iproute2"},
	} {
		out, err := partCommand(c.part, "REQUIRE_ALL=", c.env).Output()
		if !strings.Contains(string(out), c.want) || (err != nil) != (c.env == "REQUIRE_ALL=1") {
			t.Errorf("with %s: %q, error %v, want %q", c.env, out, err, c.want)
		}
	}
}

// A visitor that stays would move other goroutines to the host.
func TestVisit_Return_RestoresNamespace(t *testing.T) {
	h := New(t)
	where := func() string {
		at, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Error(err)
		}
		return at
	}
	home, seen := where(), map[string]bool{}
	for host := range 2 {
		if err := h.Visit(host, func() { seen[where()] = true }); err != nil {
			t.Fatal(err)
		}
		if now := where(); now != home {
			t.Errorf("after the visit at %s, want %s", now, home)
		}
	}
	if seen[home] || len(seen) != 2 {
		t.Errorf("two hosts were %v; home is %s", seen, home)
	}
}

// A command must affect the host, and its error must be reported.
func TestRun_Command_AffectsTheHost(t *testing.T) {
	h := New(t)
	l, err := h.Listen(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h.Run(0, fmt.Sprintf("ip route add prohibit %v/32", h.Addr(1, 0)))
	if _, err := h.Dial(0, l.Addr()); !errors.Is(err, unix.EACCES) {
		t.Errorf("with a route that prohibits it: %v", err)
	}
	if err := h.hosts[0].namespace.run("ip route add nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a command that fails: %v", err)
	}
}
