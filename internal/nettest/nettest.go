// Package nettest makes two hosts of this machine, for tests of what crosses a
// network: two network namespaces with links between them. A link has a rate, can
// be cut and joined again while something runs, and may lose, delay and swap packets
// by a seed. It needs the right to make namespaces (root), and iproute2.
//
//	func TestMain(m *testing.M) { nettest.Enter(); ... }
//
//	h := nettest.New(t, nettest.Link{Rate: 1e9}, nettest.Link{Rate: 1e9})
//	job := exec.Command("ferry", append([]string{"run", "-n", "4", nettest.Nodes}, h.Command("bin/spmv")...)...)
//	h.Cut(0)
//
// The lower half of a job's ranks is on host 0, the rest on host 1, and each host is a node (ferry run --nodes).
// The namespaces end with the open descriptors of this process and of the processes on the hosts.
package nettest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

// Hosts are two hosts. They go when the test ends; what runs on them then has no
// links any more.
type Hosts struct {
	t     testing.TB
	home  namespace // of this process
	sides [2]host
	links []*link
}

type host struct{ ns namespace }

// New makes two hosts with these links between them; without any, with one plain
// link. The test is skipped where the machine can't, and fails if REQUIRE_ALL=1.
func New(t testing.TB, links ...Link) *Hosts {
	t.Helper()
	h := &Hosts{t: t}
	err := h.open(links)
	if err != nil {
		needs.Missing(t, "no two hosts on this machine: %v", err)
	}
	return h
}

func (h *Hosts) open(links []Link) error {
	var err error
	if h.home.File, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	h.t.Cleanup(func() { h.check(h.home.Close()) })
	for i := range h.sides {
		s := &h.sides[i]
		if s.ns, err = newNamespace(); err != nil {
			return err
		}
		h.t.Cleanup(func() { h.check(s.ns.Close()) })
	}
	for _, program := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: see scripts/setup, or install iproute2", err)
		}
	}
	if len(links) == 0 {
		links = []Link{{}}
	}
	for i := range h.sides {
		if err := h.sides[i].ns.run("ip link set lo up"); err != nil {
			return err
		}
	}
	for i, l := range links {
		made, err := h.link(i, l)
		if err != nil {
			return err
		}
		h.links = append(h.links, made)
	}
	return nil
}

// check is for what goes wrong where no caller can do anything about it.
func (h *Hosts) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Errorf("nettest: %v", err)
	}
}

// Addr is the address of a host (0 or 1) on a link.
func (h *Hosts) Addr(host, link int) netip.Addr { return h.links[link].address(host) }

// On runs f on a host: sockets that f opens are that host's, later too, and so are
// processes that it starts. f must not leave that to goroutines of its own.
func (h *Hosts) On(host int, f func() error) error { return h.sides[host].ns.do(f) }

// Visit runs f on a host and in this goroutine, which is back when it returns. It takes some
// microseconds, and On the time of a thread.
func (h *Hosts) Visit(host int, f func()) error {
	runtime.LockOSThread()
	if err := h.sides[host].ns.enter(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	f()
	if err := h.home.enter(); err != nil {
		return err // the thread is of no use any more, and ends with the goroutine
	}
	runtime.UnlockOSThread()
	return nil
}

// Run runs commands of the system on a host, one after another, such as
// "ip route add prohibit 10.77.0.2/32".
func (h *Hosts) Run(host int, commands ...string) {
	h.t.Helper()
	for _, c := range commands {
		h.check(h.sides[host].ns.run(c))
	}
}

// Listen listens at a host's address on a link.
func (h *Hosts) Listen(host, link int) (l *net.TCPListener, err error) {
	err = h.On(host, func() error {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(h.Addr(host, link), 0)))
		return err
	})
	return l, err
}

// Dial connects from a host to an address of the other one.
func (h *Hosts) Dial(host int, to net.Addr) (c *net.TCPConn, err error) {
	err = h.On(host, func() error {
		c, err = net.DialTCP("tcp", nil, to.(*net.TCPAddr))
		return err
	})
	return c, err
}
