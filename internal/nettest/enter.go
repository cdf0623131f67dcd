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

// Command is what `ferry run` is told to start, for ranks that run a program on the
// hosts: this test binary, whose TestMain calls Enter, enters the host of its rank
// and becomes the program there.
func (h *Hosts) Command(program string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	line := []string{self, enter}
	for i := range h.sides {
		line = append(line, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.sides[i].ns.Fd()), h.sides[i].dir)
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
// namespace and the directory of each host, then the program and its arguments.
func become(args []string) error {
	if len(args) < 5 {
		return fmt.Errorf("arguments of a wrapper: %q", args)
	}
	var n [2]int
	for i, name := range []string{"bootstrap.local.rank", "bootstrap.local.size"} {
		var err error
		if n[i], err = strconv.Atoi(os.Getenv(framework.EnvName(name))); err != nil {
			return fmt.Errorf("not a rank of ferry run: %s: %w", framework.EnvName(name), err)
		}
	}
	rank, size := n[0], n[1]
	half := (size + 1) / 2
	host, locals := 0, fmt.Sprintf("0-%d", half-1)
	if rank >= half {
		host, locals = 1, fmt.Sprintf("%d-%d", half, size-1)
	}
	for name, value := range map[string]string{
		"bootstrap.local.locals": locals, "btl.shm.dir": args[2*host+1], "btl.shm.fallback_dir": args[2*host+1],
	} {
		if err := os.Setenv(framework.EnvName(name), value); err != nil {
			return err
		}
	}
	path, err := exec.LookPath(args[4])
	if err != nil {
		return err
	}
	f, err := os.Open(args[2*host])
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
	return &os.PathError{Op: "execute", Path: path, Err: syscall.Exec(path, args[4:], os.Environ())}
}
