package pmix

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// server names the server, as the environment does.
func serverName() string {
	if at := serverURI(os.Getenv); at != "" {
		return "the PMIx server at " + at
	}
	return "the PMIx server"
}

// address is the server's, such as tcp4://127.0.0.1:1234; empty: it isn't named.
func serverURI(getenv func(string) string) string {
	for _, name := range []string{"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"} {
		if _, at, ok := strings.Cut(getenv(name), ";"); ok {
			return at
		}
	}
	return ""
}

// reachTimeout is how long a server may take to be connected to that is on another host,
// which is that of a container's, if it is one at all.
const reachTimeout = 1500 * time.Millisecond

// reach says why there is no server at an address; nil if there is one, or nobody knows.
// libpmix itself takes a second to find that out where nobody listens, and minutes
// where nobody answers. A server doesn't mind those who connect and leave.
func checkReachable(ctx context.Context, at string) error {
	_, hostport, ok := strings.Cut(at, "://")
	to, err := netip.ParseAddrPort(hostport)
	if !ok || err != nil {
		return nil // libpmix may know what it means
	}
	d := net.Dialer{Timeout: reachTimeout}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err == nil {
		return c.Close()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && isLocalAddr(to.Addr()) {
		return nil // it has very much to do
	}
	return noServerError(err)
}

// here reports whether an address is this host's.
func isLocalAddr(a netip.Addr) bool {
	ifs, _ := netaddr.Host()
	return slices.ContainsFunc(ifs, func(i netaddr.Interface) bool {
		return slices.ContainsFunc(i.Nets, func(n netip.Prefix) bool { return n.Addr() == a.Unmap() })
	})
}

// absent is what to do about a server that isn't there.
func noServerError(err error) error {
	return fmt.Errorf("%w: no server answers, although %s is set: the launcher that set it has ended, or is not on this machine; start the program with mpirun, prun or srun --mpi=pmix; %s",
		err, launched.PMIxNamespace, launched.SingletonHint)
}
