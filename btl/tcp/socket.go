package tcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// backlog is the number of connections that may wait to be accepted. All processes of a large job may
// connect at once.
const backlog = 1024

// newSocket returns a nonblocking TCP socket without Nagle's algorithm.
func newSocket(isIPv6 bool) (int, error) {
	family := unix.AF_INET
	if isIPv6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fd, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrOf(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

func localAddr(fd int) netip.AddrPort {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return addrOf(sa)
}

// listen returns a listening socket for published addresses, and its port. A new IPv6 address cannot be
// bound while it is tentative (RFC 4862). If it is the only address, listen waits for tentativeTimeout,
// and then listens at [::].
func listen(ctx context.Context, addrs []netip.Addr, low, high int) (fd, port int, err error) {
	at, ipv6Only := netip.IPv4Unspecified(), 1
	switch hasIPv6 := slices.ContainsFunc(addrs, netip.Addr.Is6); {
	case len(addrs) == 1:
		at = addrs[0]
	case hasIPv6:
		at, ipv6Only = netip.IPv6Unspecified(), 0
	}
	fd, port, err = bind(at, ipv6Only, low, high)
	if !at.Is6() || !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fd, port, err
	}
	tick, end := time.NewTicker(tentativePollPeriod), time.NewTimer(tentativeTimeout)
	defer tick.Stop()
	defer end.Stop()
	for errors.Is(err, unix.EADDRNOTAVAIL) {
		select {
		case <-ctx.Done():
			return -1, 0, fmt.Errorf("wait for %v: %w", at, context.Cause(ctx))
		case <-tick.C:
			fd, port, err = bind(at, ipv6Only, low, high)
		case <-end.C:
			return bind(netip.IPv6Unspecified(), ipv6Only, low, high)
		}
	}
	return fd, port, err
}

// With the defaults of Linux an address is tentative for one to two seconds.
const (
	tentativeTimeout    = time.Second
	tentativePollPeriod = 20 * time.Millisecond
)

// bind returns a listening socket at the first free port of low to high, and the port. If both are 0, the
// system chooses it.
func bind(at netip.Addr, ipv6Only, low, high int) (fd, port int, err error) {
	for port := low; port <= high; port++ {
		fd, err := newSocket(at.Is6())
		if err != nil {
			return -1, 0, err
		}
		if at.Is6() {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, ipv6Only)
		}
		// A port of an earlier job is free again.
		if err == nil && low > 0 {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		}
		if err == nil {
			err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(at, uint16(port))))
		}
		if err == nil {
			err = unix.Listen(fd, backlog)
		}
		if err == nil {
			return fd, int(localAddr(fd).Port()), nil
		}
		unix.Close(fd)
		if err != unix.EADDRINUSE {
			return -1, 0, fmt.Errorf("listen at %v: %w", netip.AddrPortFrom(at, uint16(port)), err)
		}
	}
	if low == 0 {
		return -1, 0, errors.New("the system has no free port")
	}
	return -1, 0, fmt.Errorf("no port of btl.tcp.port_range %d-%d is free", low, high)
}
