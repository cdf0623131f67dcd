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

// enter is the first argument of a test binary that shall be a wrapper.
const enter = "nettest-enter"

// Nodes is the flag of `ferry run` for ranks on the hosts, so that each host is a node.
const Nodes = "--nodes=2"

// Command returns the program of `ferry run` and its arguments for ranks that run a program on the
// hosts. The program of `ferry run` is this test binary. Its TestMain calls Enter, which enters the host of the rank
// and executes the program there. The job needs the flag Nodes, which gives the first host the ranks of the first node.
func (h *Hosts) Command(program string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	line := []string{self, enter}
	for i := range h.sides {
		line = append(line, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.sides[i].ns.Fd()))
	}
	return slices.Concat(line, []string{program}, args)
}

// Enter returns, unless this process is the wrapper of Command.
func Enter() {
	if len(os.Args) < 2 || os.Args[1] != enter {
		return
	}
	fmt.Fprintln(os.Stderr, "nettest:", become(os.Args[2:]))
	os.Exit(1)
}

// become enters the host of this rank and executes the program. args are the
// namespaces of both hosts, then the program and its arguments.
func become(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("arguments of a wrapper: %q", args)
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
		return fmt.Errorf("the test that made the hosts has ended: %w", err)
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
