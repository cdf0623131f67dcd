package pmi1

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/bootstrap/pmi1/internal/wire"
)

// Environment variables of PMI-1. A server passes a descriptor, rank and size, or its port and a
// number for the process, with which it requests the rest.
const (
	envFD        = launched.PMIFD
	envRank      = launched.PMIRank
	envSize      = launched.PMISize
	envPort      = launched.PMIPort
	envID        = "PMI_ID"
	envLocalRank = "MPI_LOCALRANKID"
	envLocalSize = "MPI_LOCALNRANKS"
	// "1" in a process that another process has started by a spawn.
	envSpawned = "PMI_SPAWNED"
	// Job and step of Slurm.
	envSlurmStep = "PMI_JOBID"
)

// serverAddress is the address of this process's PMI-1 server.
type serverAddress struct {
	// -1 in port mode.
	fd int
	// As host:port, in port mode.
	port string

	// In port mode.
	pmiID int
	// In descriptor mode.
	rank, size int

	// -1 if unknown.
	localRank, localSize int

	isSpawned bool
	// "" under other launchers.
	slurmStep string
}

// key identifies a server address. Tests have several processes.
func (p serverAddress) key() string {
	if p.fd >= 0 {
		return fmt.Sprintf("%s=%d", envFD, p.fd)
	}
	return fmt.Sprintf("%s=%s %s=%d", envPort, p.port, envID, p.pmiID)
}

// errNoServer means that the environment has no sign of PMI-1.
var errNoServer = errors.New("no PMI-1 server started this process (" + envFD + " and " + envPort + " are not set)")

// findServer returns the server address from params and the environment. A descriptor takes
// precedence.
func findServer(params *Params, lookup func(string) (string, bool)) (serverAddress, error) {
	p := serverAddress{fd: -1, localRank: -1, localSize: -1}
	for name, into := range map[string]*int{envLocalRank: &p.localRank, envLocalSize: &p.localSize} {
		if n, ok, err := readNumber(lookup, name, 0); ok && err == nil {
			*into = n // These are used for a check only, so an invalid value is ignored.
		}
	}
	if params.Port != "" {
		p.port, p.pmiID, p.isSpawned = params.Port, params.ID, params.Spawned
		p.localRank, p.localSize = -1, -1
		return p, checkPort(p.port)
	}
	spawned, _ := lookup(envSpawned)
	p.isSpawned = spawned == "1"
	var ok bool
	var err error
	p.slurmStep, _ = lookup(envSlurmStep)
	if p.fd, ok, err = readNumber(lookup, envFD, 0); ok || err != nil {
		if err == nil {
			err = p.rankAndSize(lookup)
		}
		return p, err
	}
	p.fd = -1
	if p.port, ok = lookup(envPort); ok {
		if p.pmiID, ok, err = readNumber(lookup, envID, 0); err == nil && !ok {
			err = fmt.Errorf("%s is set, but not %s", envPort, envID)
		}
		if err == nil {
			err = checkPort(p.port)
		}
		return p, err
	}
	for _, name := range []string{envRank, envSize} {
		if _, ok := lookup(name); ok {
			return p, fmt.Errorf("%s is set, but neither %s nor %s: the launcher has no PMI-1 server", name, envFD, envPort)
		}
	}
	return p, errNoServer
}

func (p *serverAddress) rankAndSize(lookup func(string) (string, bool)) error {
	for _, v := range []struct {
		name  string
		least int
		into  *int
	}{{envSize, 1, &p.size}, {envRank, 0, &p.rank}} {
		n, ok, err := readNumber(lookup, v.name, v.least)
		if err == nil && !ok {
			err = fmt.Errorf("%s is set, but not %s", envFD, v.name)
		}
		if err != nil {
			return err
		}
		*v.into = n
	}
	if p.rank >= p.size || p.size > wire.MaxSize {
		return fmt.Errorf("%s=%d and %s=%d are inconsistent", envRank, p.rank, envSize, p.size)
	}
	return nil
}

// readNumber reads a variable with a number of at least least.
func readNumber(lookup func(string) (string, bool), name string, least int) (n int, ok bool, err error) {
	text, ok := lookup(name)
	if !ok {
		return 0, false, nil
	}
	if n, err = strconv.Atoi(text); err != nil || n < least {
		return 0, true, fmt.Errorf("%s=%q is not a number of at least %d", name, text, least)
	}
	return n, true, nil
}

func checkPort(port string) error {
	host, number, err := net.SplitHostPort(port)
	if n, bad := strconv.ParseUint(number, 10, 16); err == nil && (host == "" || bad != nil || n == 0) {
		err = errors.New("no host and number")
	}
	if err != nil {
		return fmt.Errorf("%s=%q: want host:port (%w)", envPort, port, err)
	}
	return nil
}

// checkInherited returns an error unless the descriptor can be that of the server, a stream socket
// that was inherited through exec. Otherwise the variable was meant for an ancestor of this
// process.
func checkInherited(fd int) error {
	const meant = "it was meant for a process that started this one"
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil {
		return fmt.Errorf("%s=%d is not an open descriptor: %s", envFD, fd, meant)
	}
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM || flags&unix.FD_CLOEXEC != 0 {
		return fmt.Errorf("%s=%d is not a connection that was handed to this process: %s", envFD, fd, meant)
	}
	return nil
}

// isFromParent reports whether the parent of this process, which is then its launcher, made a
// connection.
func isFromParent(fd int) bool {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && int(cred.Pid) == os.Getppid()
}

// dial connects to the server. The connection owns the descriptor, which becomes close-on-exec, so
// that children of this process do not hold it open.
func (p serverAddress) dial(ctx context.Context) (net.Conn, error) {
	if p.fd < 0 {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", p.port)
	}
	if err := checkInherited(p.fd); err != nil {
		return nil, err
	}
	unix.CloseOnExec(p.fd)
	f := os.NewFile(uintptr(p.fd), envFD)
	defer f.Close() // FileConn has a descriptor of its own.
	return net.FileConn(f)
}
