package tcp

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/needs"
)

// absent returns an address that can't be bound, like a tentative one. It skips the test on a
// machine without IPv6.
func absent(t *testing.T) []netip.Addr {
	t.Helper()
	fd, _, err := bind(netip.IPv6Unspecified(), 1, 0, 0)
	if err != nil {
		needs.Missing(t, "no IPv6 (%v): enable it, sysctl net.ipv6.conf.all.disable_ipv6=0", err)
	}
	unix.Close(fd)
	return addrs("2001:db8::1")
}

func TestListen_AddressStaysTentative_ListensAtAllAddresses(t *testing.T) {
	all := absent(t)
	fd, port, err := listen(t.Context(), all, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if at := localAddr(fd); at.Addr() != netip.IPv6Unspecified() || int(at.Port()) != port {
		t.Errorf("listens at %v, want [::]:%d", at, port)
	}
}

func TestListen_ContextEndsWhileAddressIsTentative_ReturnsItsCause(t *testing.T) {
	all := absent(t)
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, _, err := listen(ctx, all, 0, 0); !errors.Is(err, cause) {
		t.Error(err)
	}
}

func TestAttempt_NeighborDiscoveryFails_IsNotFinal(t *testing.T) {
	for _, c := range []struct {
		addr      string
		errno     unix.Errno
		elapsed   time.Duration
		tentative bool
	}{
		{"fd00::1", unix.EHOSTUNREACH, 3 * time.Second, true},
		{"fd00::1", unix.EHOSTUNREACH, time.Millisecond, false}, // a router's answer
		{"fd00::1", unix.EADDRNOTAVAIL, 0, true},
		{"fd00::1", unix.ECONNREFUSED, 3 * time.Second, false},
		{"10.1.0.1", unix.EHOSTUNREACH, 3 * time.Second, false},
	} {
		m := &module{timers: timers{lastClock: time.Minute + c.elapsed}}
		a := &dialAttempt{peer: &peerConn{module: m}, remoteAddr: netip.AddrPortFrom(netip.MustParseAddr(c.addr), 1), startedAt: time.Minute}
		if got := a.isTentative(c.errno); got != c.tentative {
			t.Errorf("%s: %v after %v: tentative %t", c.addr, c.errno, c.elapsed, got)
		}
	}
}
