// Package nettest simulates two hosts on this machine for tests of networks. The hosts are network
// namespaces with links between them. A link has a rate, can be cut and joined while a test runs,
// and may lose, delay and reorder packets by a seed. It needs the right to create namespaces (root)
// and iproute2.
//
//	func TestMain(m *testing.M) { nettest.Enter(); ... }
//
//	h := nettest.New(t, nettest.Link{Rate: 1e9}, nettest.Link{Rate: 1e9})
//	job := exec.Command("ferry", append([]string{"run", "-n", "4", nettest.Nodes}, h.Command("bin/spmv")...)...)
//	h.Cut(0)
//
// The lower half of a job's ranks is on host 0 and the upper half on host 1. Each host is a node
// (ferry run --nodes). The namespaces end with the open descriptors of this process and of the
// processes on the hosts.
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

// Hosts are two hosts. They end with the test. Processes that still run on them have no links then.
type Hosts struct {
	t testing.TB
	// Namespace of this process.
	homeNamespace namespace
	hosts         [2]host
	links         []*link
}

type host struct{ namespace namespace }

// New creates two hosts with the given links, or with one plain link. It skips the test if the
// machine does not support that, and fails it with REQUIRE_ALL=1.
func New(t testing.TB, links ...Link) *Hosts {
	t.Helper()
	h := &Hosts{t: t}
	err := h.create(links)
	if err != nil {
		needs.Missing(t, "cannot simulate two hosts: %v", err)
	}
	return h
}

func (h *Hosts) create(links []Link) error {
	var err error
	if h.homeNamespace.File, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	h.t.Cleanup(func() { h.check(h.homeNamespace.Close()) })
	for i := range h.hosts {
		s := &h.hosts[i]
		if s.namespace, err = newNamespace(); err != nil {
			return err
		}
		h.t.Cleanup(func() { h.check(s.namespace.Close()) })
	}
	for _, program := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: run scripts/setup or install iproute2", err)
		}
	}
	if len(links) == 0 {
		links = []Link{{}}
	}
	for i := range h.hosts {
		if err := h.hosts[i].namespace.run("ip link set lo up"); err != nil {
			return err
		}
	}
	for i, l := range links {
		made, err := h.createLink(i, l)
		if err != nil {
			return err
		}
		h.links = append(h.links, made)
	}
	return nil
}

// check reports an error that no caller can handle.
func (h *Hosts) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Errorf("nettest: %v", err)
	}
}

// Addr returns the address of a host (0 or 1) on a link.
func (h *Hosts) Addr(host, link int) netip.Addr { return h.links[link].address(host) }

// On runs f on a host. Sockets that f opens and processes that it starts remain on the host. f must
// not open them on other goroutines.
func (h *Hosts) On(host int, f func() error) error { return h.hosts[host].namespace.do(f) }

// Visit runs f on a host in this goroutine. It takes some microseconds, while On creates a thread.
func (h *Hosts) Visit(host int, f func()) error {
	runtime.LockOSThread()
	if err := h.hosts[host].namespace.enter(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	f()
	if err := h.homeNamespace.enter(); err != nil {
		return err // The thread is unusable and ends with the goroutine.
	}
	runtime.UnlockOSThread()
	return nil
}

// Run runs system commands on a host in order, such as "ip route add prohibit 10.77.0.2/32".
func (h *Hosts) Run(host int, commands ...string) {
	h.t.Helper()
	for _, c := range commands {
		h.check(h.hosts[host].namespace.run(c))
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
