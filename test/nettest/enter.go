package nettest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"github.com/ferrympi/ferry/framework"
)

// enterArgument is the first argument of a test binary that acts as a wrapper.
const enterArgument = "nettest-enter"

// Nodes is the flag of `ferry run` that makes each host a node.
const Nodes = "--nodes=2"

// Command returns the command line of `ferry run` for ranks that run a program on the hosts. It
// starts this test binary, whose TestMain calls Enter. Enter enters the host of the rank and
// executes the program there. The job needs the flag Nodes, which assigns the ranks of the first
// node to the first host.
func (h *Hosts) Command(program string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	line := []string{self, enterArgument}
	for i := range h.hosts {
		line = append(line, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.hosts[i].namespace.Fd()))
	}
	return slices.Concat(line, []string{program}, args)
}

// Enter returns unless this process is a wrapper of Command.
func Enter() {
	if len(os.Args) < 2 || os.Args[1] != enterArgument {
		return
	}
	fmt.Fprintln(os.Stderr, "nettest:", executeOnHost(os.Args[2:]))
	os.Exit(1)
}

// executeOnHost enters the host of this rank and executes the program. args are the namespaces of both
// hosts, the program and its arguments.
func executeOnHost(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("invalid arguments of a wrapper: %q", args)
	}
	var n [2]int
	for i, name := range []string{"bootstrap.local.rank", "bootstrap.local.size"} {
		var err error
		if n[i], err = strconv.Atoi(os.Getenv(framework.EnvName(name))); err != nil {
			return fmt.Errorf("not a rank of ferry run: %s: %w", framework.EnvName(name), err)
		}
	}
	host := 0
	if rank, size := n[0], n[1]; rank >= (size+1)/2 {
		host = 1
	}
	path, err := exec.LookPath(args[2])
	if err != nil {
		return err
	}
	f, err := os.Open(args[host])
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the test that created the hosts has ended: %w", err)
	}
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := (namespace{f}).enter(); err != nil {
		return err
	}
	return &os.PathError{Op: "execute", Path: path, Err: syscall.Exec(path, args[2:], os.Environ())}
}
