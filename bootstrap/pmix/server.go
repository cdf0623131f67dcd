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

// serverName names the server for errors.
func serverName() string {
	if at := serverURI(os.Getenv); at != "" {
		return "the PMIx server at " + at
	}
	return "the PMIx server"
}

// serverURI returns the address of the server, such as tcp4://127.0.0.1:1234, or "" if it is not
// named.
func serverURI(getenv func(string) string) string {
	_, at, _ := strings.Cut(serverVariable(getenv), ";")
	return at
}

// serverVariable returns the first variable with the name and the address of the server, such as
// job.0;tcp4://127.0.0.1:1234, or "".
func serverVariable(getenv func(string) string) string {
	for _, name := range []string{"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"} {
		if v := getenv(name); strings.Contains(v, ";") {
			return v
		}
	}
	return ""
}

// serverNamespace returns the namespace of the launcher's servers. Their addresses begin with it.
func serverNamespace(getenv func(string) string) string {
	name, _, _ := strings.Cut(serverVariable(getenv), ";")
	if at := strings.LastIndexByte(name, '.'); at >= 0 { // A rank follows.
		name = name[:at]
	}
	return name
}

// LauncherName implements mesh.Named.
func (l *launcher) LauncherName() string { return launcherName(os.LookupEnv) }

// launcherName returns the name of the launcher of this process for errors.
func launcherName(lookup launched.Lookup) string {
	if launched.IsSlurmPMIx(lookup) {
		return "srun --mpi=pmix"
	}
	for _, l := range []struct{ variable, name string }{{"OMPI_COMM_WORLD_SIZE", "mpirun"}, {"PRTE_LAUNCHED", "prterun"}} {
		if _, ok := lookup(l.variable); ok {
			return l.name
		}
	}
	return "the launcher with PMIx"
}

// reachTimeout limits the connection to a server on another host, such as that of a container.
const reachTimeout = 1500 * time.Millisecond

// checkReachable returns an error if there is no server at an address, and nil otherwise or if that
// is unknown. libpmix itself takes a second without a listener, and minutes if the host does not
// answer. Servers ignore connections that close at once.
func checkReachable(ctx context.Context, at string) error {
	_, hostport, ok := strings.Cut(at, "://")
	to, err := netip.ParseAddrPort(hostport)
	if !ok || err != nil {
		return nil // libpmix may understand it.
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
		return nil // The server is busy.
	}
	return noServerError(err)
}

// isLocalAddr reports whether an address is this host's.
func isLocalAddr(a netip.Addr) bool {
	ifs, _ := netaddr.Host()
	return slices.ContainsFunc(ifs, func(i netaddr.Interface) bool {
		return slices.ContainsFunc(i.Nets, func(n netip.Prefix) bool { return n.Addr() == a.Unmap() })
	})
}

// noServerError adds the remedy for a missing server.
func noServerError(err error) error {
	return fmt.Errorf("%w: no server answers, although %s is set: the launcher that set it has ended, or is not on this machine; start the program with mpirun, prun or srun --mpi=pmix; %s",
		err, launched.PMIxNamespace, launched.SingletonHint)
}
